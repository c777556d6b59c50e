//! Images, laid out as folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::cache::tests::{after_old, cache};
use super::fake::{self, nccl};
use super::library::VersionFrom;
use super::*;
use crate::facts::settings::Environment;

const MULTIARCH: &str = "usr/lib/x86_64-linux-gnu";
const SITE: &str = "usr/local/lib/python3.10/dist-packages";

struct Root(TempDir);

impl Root {
    /// As Debian's images are.
    fn new() -> Root {
        let root = Root(tempfile::tempdir().unwrap());
        fs::create_dir_all(root.path(MULTIARCH)).unwrap();
        root.link("usr/lib", "lib");
        root
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn cache(&self, entries: &[(&str, &str)]) {
        let entries: Vec<_> = entries.iter().map(|(name, path)| (0x0303, 0, *name, *path)).collect();
        self.file("etc/ld.so.cache", cache(&entries));
    }

    /// Debian's package of NCCL.
    fn debian(&self, version: &str) {
        self.file(&format!("{MULTIARCH}/libnccl.so.{version}"), nccl(version));
        self.link(&format!("libnccl.so.{version}"), &format!("{MULTIARCH}/libnccl.so.2"));
    }

    /// The wheel of NCCL, whose library has this version.
    fn wheel(&self, site: &str, version: &str, in_library: &str) {
        let library = nccl(in_library);
        let size = nccl(version).len();
        self.file(&format!("{site}/nvidia/nccl/lib/libnccl.so.2"), library);
        self.file(
            &format!("{site}/nvidia_nccl_cu12-{version}.dist-info/RECORD"),
            format!("nvidia/__init__.py,,0\nnvidia/nccl/lib/libnccl.so.2,sha256=x,{size}\n"),
        );
    }

    fn torch(&self, site: &str, library: &fake::Library) {
        self.file(&format!("{site}/torch/__init__.py"), "");
        self.file(&format!("{site}/torch/version.py"), "__all__ = ['x']\n__version__ = '2.4.0+cu121'\n");
        self.file(&format!("{site}/torch/lib/libtorch_cuda.so"), library.bytes());
    }

    fn read<const N: usize>(&self, environment: [(&str, &str); N]) -> (Image, Vec<String>) {
        let reader = Reader::new(self.0.path());
        let image = read(&reader, Start::from(&Environment::from(environment)));
        // What a document says is what was read.
        let json = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<Image>(&json).unwrap(), image);
        (
            image,
            reader
                .into_unreadable()
                .into_iter()
                .map(|u| format!("{}: {}", u.path.display(), u.error))
                .collect(),
        )
    }
}

/// `version: how, how; ...` of all, and the version of the one that the job takes.
fn shown(image: &Image) -> (Vec<String>, Option<&str>) {
    let each = image.nccl.iter().map(|library| {
        let reached: Vec<String> =
            library.reached.iter().map(|r| format!("{:?} {}", r.way, r.path.display())).collect();
        format!("{} {}", library.version.as_deref().unwrap_or("?"), reached.join(", "))
    });
    (each.collect(), image.nccl_of_the_job().and_then(|library| library.version.as_deref()))
}

fn only_version(image: &Image) -> (Option<&str>, Option<VersionFrom>) {
    assert_eq!(image.nccl.len(), 1, "{:#?}", image.nccl);
    (image.nccl[0].version.as_deref(), image.nccl[0].version_from)
}

#[test]
fn an_empty_image_has_nothing_and_nothing_is_wrong_with_it() {
    let root = Root(tempfile::tempdir().unwrap());
    let usual = [
        ("PATH", "/usr/bin:/bin"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64::relative"),
        ("HOME", "/root"),
    ];
    assert_eq!(root.read(usual), (Image::default(), Vec::new()));
}

#[test]
fn each_way_is_found_and_a_file_is_listed_once() {
    let root = Root::new();
    root.debian("2.21.5");
    root.file("opt/nccl/lib/libnccl.so.2.20.3", nccl("2.20.3"));
    // An absolute link leads below the root.
    root.link("/opt/nccl/lib/libnccl.so.2.20.3", "opt/nccl/lib/libnccl.so.2");
    root.cache(&[
        ("libnccl.so.2", "/lib/x86_64-linux-gnu/libnccl.so.2"),
        ("libnccl.so.2", "/opt/nccl/lib/libnccl.so.2"),
    ]);
    root.wheel(SITE, "2.19.3", "2.19.3");
    let (image, errors) = root.read([]);
    let (found, job) = shown(&image);
    assert_eq!(
        found,
        [
            "2.21.5 Cache /lib/x86_64-linux-gnu/libnccl.so.2, \
             Standard /lib/x86_64-linux-gnu/libnccl.so.2, Standard /lib/x86_64-linux-gnu/libnccl.so.2.21.5",
            "2.20.3 Cache /opt/nccl/lib/libnccl.so.2",
            "2.19.3 SitePackages /usr/local/lib/python3.10/dist-packages/nvidia/nccl/lib/libnccl.so.2",
        ]
    );
    assert_eq!(job, Some("2.21.5"));
    assert_eq!(image.nccl[0].path, Path::new("/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"));
    assert_eq!(image.nccl[0].loads_as, ["libnccl.so.2", "libnccl.so.2.21.5"]);
    assert_eq!(image.nccl[1].loads_as, [""; 0]);
    assert_eq!(image.nccl_versions(), ["2.21.5", "2.20.3", "2.19.3"]);
    assert_eq!(errors, [""; 0]);

    // LD_LIBRARY_PATH comes before the cache, its folders in their order.
    let (image, _) = root.read([("LD_LIBRARY_PATH", "/nowhere:/opt/nccl/lib:/usr/lib/x86_64-linux-gnu")]);
    let (found, job) = shown(&image);
    assert!(found[0].starts_with("2.20.3 LdLibraryPath /opt/nccl/lib/libnccl.so.2, "), "{found:#?}");
    assert_eq!(job, Some("2.20.3"));
    // And LD_PRELOAD before all.
    let path = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5";
    let (image, _) = root.read([("LD_LIBRARY_PATH", "/opt/nccl/lib"), ("LD_PRELOAD", path)]);
    assert_eq!(shown(&image).1, Some("2.21.5"));
}

#[test]
fn a_cache_after_an_old_one_counts_and_none_is_no_fault() {
    let root = Root::new();
    root.file("opt/nccl/libnccl.so.2", nccl("2.27.3"));
    let entry = (0x0303, 0, "libnccl.so.2", "/opt/nccl/libnccl.so.2");
    root.file("etc/ld.so.cache", after_old(3, &cache(&[entry])));
    let (image, _) = root.read([]);
    assert_eq!(only_version(&image), (Some("2.27.3"), Some(VersionFrom::Text)));
    assert_eq!(image.nccl_of_the_job(), Some(&image.nccl[0]));
    // As with musl.
    fs::remove_file(root.path("etc/ld.so.cache")).unwrap();
    root.debian("2.27.3");
    assert_eq!(shown(&root.read([]).0).1, Some("2.27.3"));
}

#[test]
fn caches_that_are_none_are_named() {
    let root = Root::new();
    root.debian("2.21.5");
    let none = "is not a cache that the dynamic loader would use";
    for (content, error) in [
        (b"garbage".to_vec(), none),
        (Vec::new(), none),
        (vec![0; 8 * 1024 * 1024 + 1], "is longer than 8388608 bytes"),
    ] {
        root.file("etc/ld.so.cache", content);
        let (image, errors) = root.read([]);
        assert_eq!(errors, [format!("/etc/ld.so.cache: {error}")]);
        assert_eq!(image.nccl.len(), 1);
    }
    fs::remove_file(root.path("etc/ld.so.cache")).unwrap();
    nix::unistd::mkfifo(&root.path("etc/ld.so.cache"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(root.read([]).1, ["/etc/ld.so.cache: is not a regular file"]);
}

#[test]
fn files_that_are_no_libraries_are_passed_over() {
    let root = Root::new();
    let put = |folder: &str, content: &[u8]| root.file(&format!("opt/{folder}/libnccl.so.2"), content);
    let mut elf32 = fake::empty();
    elf32[4] = 1;
    let mut big_endian = fake::empty();
    big_endian[5] = 2;
    put("32", &elf32);
    put("be", &big_endian);
    put("short", &nccl("2.1.1")[..40]);
    put("text", b"GROUP ( libnccl.so.2.21.5 )");
    root.link("/dev/nowhere", "opt/broken/libnccl.so.2");
    fs::create_dir_all(root.path("opt/fifo")).unwrap();
    nix::unistd::mkfifo(&root.path("opt/fifo/libnccl.so.2"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Only its start is a library: no texts, and so no version.
    put("cut", &fake::empty()[..64]);
    put("good", &nccl("2.21.5"));
    let path =
        ["32", "be", "short", "text", "broken", "fifo", "cut", "good"].map(|f| format!("/opt/{f}")).join(":");
    let (image, errors) = root.read([("LD_LIBRARY_PATH", &path)]);
    assert_eq!(
        errors,
        [
            "/opt/short/libnccl.so.2: is not a library",
            "/opt/text/libnccl.so.2: is not a library",
            "/opt/fifo/libnccl.so.2: is not a regular file",
        ]
    );
    let versions: Vec<_> = image.nccl.iter().map(|library| library.version.as_deref()).collect();
    assert_eq!(versions, [None, Some("2.21.5")]);
}

#[test]
fn a_wheel_that_was_written_over_is_not_believed() {
    let root = Root::new();
    root.wheel(SITE, "2.19.3", "2.19.3");
    let (image, _) = root.read([]);
    assert_eq!(only_version(&image), (Some("2.19.3"), Some(VersionFrom::Wheel)));
    // It does not load by its name, and is the only one.
    assert_eq!((image.nccl[0].loads_as.len(), shown(&image).1), (0, Some("2.19.3")));
    root.wheel(SITE, "2.19.3", "2.27.5-and-more");
    root.file(&format!("{SITE}/nvidia/nccl/lib/libnccl.so.2"), [nccl("2.27.5"), vec![0]].concat());
    assert_eq!(only_version(&root.read([]).0), (Some("2.27.5"), Some(VersionFrom::Text)));
}

#[test]
fn pythons_folders_are_found_in_pythons_order() {
    let root = Root::new();
    let file = |path: &str| root.file(path, "");
    file("usr/bin/python3.10");
    root.link("python3.10", "usr/bin/python3");
    root.link("/usr/bin/python3", "opt/venv/bin/python3");
    root.file("opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
    for site in [
        "opt/venv/lib/python3.10/site-packages",
        "root/.local/lib/python3.10/site-packages",
        "root/.local/lib/python3.12/site-packages",
        "usr/local/lib/python3.10/dist-packages",
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3.12/dist-packages",
        "opt/conda/lib/python3.11/site-packages",
        "code/site",
    ] {
        file(&format!("{site}/x"));
    }
    root.link("lib", "opt/venv/lib64");
    let sites = |environment: &[(&str, &str)]| -> Vec<String> {
        let reader = Reader::new(root.0.path());
        let tree = Tree::new(&reader, matters);
        let entries: Vec<_> =
            environment.iter().map(|(n, v)| std::ffi::CString::new(format!("{n}={v}")).unwrap()).collect();
        let sites = python::site_packages(&tree, Start::from(&Environment::new(&entries)));
        sites.iter().map(|site| site.to_str().unwrap().to_owned()).collect()
    };
    let venv = "/opt/venv/lib/python3.10/site-packages";
    let system = [
        "/usr/local/lib/python3.10/dist-packages",
        "/usr/local/lib/python3.12/dist-packages",
        "/usr/lib/python3/dist-packages",
    ];
    let conda = "/opt/conda/lib/python3.11/site-packages";
    let user = ["/root/.local/lib/python3.10/site-packages", "/root/.local/lib/python3.12/site-packages"];
    let home = ("HOME", "/root");
    let expected = |parts: &[&[&str]]| parts.concat().iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        sites(&[home, ("PATH", "/usr/bin"), ("PYTHONPATH", "relative::/code/site:/nowhere")]),
        expected(&[&["/code/site"], &user, &system, &[conda]])
    );
    let in_venv = sites(&[home, ("PATH", "/opt/venv/bin")]);
    assert_eq!(in_venv[..2], expected(&[&[venv, conda]]), "{in_venv:?}");
    root.file("opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n");
    let in_venv = sites(&[home, ("PATH", "/opt/venv/bin")]);
    assert_eq!(in_venv, expected(&[&[venv], &user, &system, &[conda]]));
    let without = sites(&[
        home,
        ("PYTHONNOUSERSITE", "1"),
        ("CONDA_PREFIX", "/opt/conda"),
        ("VIRTUAL_ENV", "/opt/venv"),
    ]);
    assert_eq!(without[..2], expected(&[&[venv, conda]]));
    assert!(!without.iter().any(|site| site.starts_with("/root")));
}

#[test]
fn torch_takes_nccl_in_the_loaders_order() {
    let root = Root::new();
    root.debian("2.21.5");
    root.wheel(SITE, "2.20.5", "2.20.5");
    root.file("opt/nccl/libnccl.so.2", nccl("2.27.3"));
    let origin = Some("$ORIGIN/../../nvidia/nccl/lib:${ORIGIN}:$LIB/x");
    let needed = &["libc10.so", "libnccl.so.2"];
    let job = |library: fake::Library, path: &str| {
        root.torch(SITE, &fake::Library { needed, ..library });
        let (image, errors) = root.read([("LD_LIBRARY_PATH", path)]);
        assert_eq!(errors, [""; 0]);
        let torch = image.torch.as_ref().unwrap();
        assert_eq!((torch.version.as_deref(), torch.linkage), (Some("2.4.0+cu121"), Linkage::Dynamic));
        assert_eq!(torch.path, Path::new("/usr/local/lib/python3.10/dist-packages/torch"));
        image.nccl_of_the_job().unwrap().version.clone().unwrap()
    };
    let rpath = || fake::Library { rpath: origin, ..Default::default() };
    let runpath = || fake::Library { runpath: origin, ..Default::default() };
    let both =
        || fake::Library { rpath: Some("/usr/lib/x86_64-linux-gnu"), runpath: origin, ..Default::default() };
    assert_eq!(job(rpath(), ""), "2.20.5");
    assert_eq!(job(rpath(), "/opt/nccl"), "2.20.5");
    assert_eq!(job(runpath(), ""), "2.20.5");
    assert_eq!(job(runpath(), "/opt/nccl"), "2.27.3");
    // With a RUNPATH the RPATH does not count.
    assert_eq!(job(both(), ""), "2.20.5");
    assert_eq!(job(fake::Library::default(), ""), "2.21.5");
    assert_eq!(job(fake::Library::default(), "/opt/nccl"), "2.27.3");

    // What is preloaded is there before any search.
    root.torch(SITE, &fake::Library { needed, ..rpath() });
    for preload in ["/opt/nccl/libnccl.so.2", "libnccl.so.2"] {
        let (image, _) = root.read([("LD_LIBRARY_PATH", "/opt/nccl"), ("LD_PRELOAD", preload)]);
        assert_eq!(shown(&image).1, Some("2.27.3"), "{preload}");
    }
}

#[test]
fn an_nccl_that_only_torchs_rpath_leads_to_is_listed() {
    let root = Root::new();
    let site = "opt/conda/lib/python3.11/site-packages";
    root.file("opt/conda/lib/libnccl.so.2.23.4", nccl("2.23.4"));
    root.link("libnccl.so.2.23.4", "opt/conda/lib/libnccl.so.2");
    let needed = &["libnccl.so.2"];
    root.torch(site, &fake::Library { needed, rpath: Some("$ORIGIN/../../../.."), ..Default::default() });
    let (image, _) = root.read([]);
    assert_eq!(
        shown(&image),
        (vec![format!("2.23.4 TorchRpath /{site}/torch/lib/../../../../libnccl.so.2")], Some("2.23.4"))
    );
    // And when it goes, torch has none, whatever else is there.
    fs::remove_file(root.path("opt/conda/lib/libnccl.so.2")).unwrap();
    root.wheel(SITE, "2.20.5", "2.20.5");
    let (image, _) = root.read([]);
    assert_eq!((image.nccl.len(), image.nccl_of_the_job()), (1, None));
}

#[test]
fn torch_may_have_nccl_in_itself_or_none_at_all() {
    let root = Root::new();
    root.debian("2.21.5");
    let texts = b"a+b\0NCCL version \0NCCL version 2.14.3+cuda11.7\0";
    root.torch(SITE, &fake::Library { needed: &["libcudart.so.11.0"], texts, ..Default::default() });
    let (image, _) = root.read([]);
    let torch = image.torch.as_ref().unwrap();
    assert_eq!((torch.linkage, shown(&image).1), (Linkage::Static, Some("2.14.3")));
    assert!(image.nccl_of_the_job().unwrap().is_reached(Way::TorchStatic));
    assert_eq!(image.nccl_versions(), ["2.21.5", "2.14.3"]);

    // The part of an older wheel that has it.
    root.torch(SITE, &fake::Library::default());
    assert_eq!(root.read([]).0.torch.unwrap().linkage, Linkage::Unknown);
    let library = fake::Library { texts, ..Default::default() };
    root.file(&format!("{SITE}/torch/lib/libtorch_cuda_cpp.so"), library.bytes());
    assert_eq!(shown(&root.read([]).0).1, Some("2.14.3"));
    fs::remove_file(root.path(&format!("{SITE}/torch/lib/libtorch_cuda_cpp.so"))).unwrap();

    // Broken: nothing can be told of the job's NCCL.
    root.file(&format!("{SITE}/torch/lib/libtorch_cuda.so"), "");
    let (image, errors) = root.read([]);
    assert_eq!((image.torch.as_ref().unwrap().linkage, image.nccl_of_the_job()), (Linkage::Unknown, None));
    assert_eq!(errors, [format!("/{SITE}/torch/lib/libtorch_cuda.so: is not a library")]);

    // For processors only: the loader's NCCL may be for something else.
    fs::remove_file(root.path(&format!("{SITE}/torch/lib/libtorch_cuda.so"))).unwrap();
    fs::remove_file(root.path(&format!("{SITE}/torch/version.py"))).unwrap();
    root.file(&format!("{SITE}/torch-2.4.1+cpu.dist-info/RECORD"), "");
    let (image, _) = root.read([]);
    let torch = image.torch.as_ref().unwrap();
    assert_eq!((torch.version.as_deref(), torch.linkage), (Some("2.4.1+cpu"), Linkage::None));
    assert_eq!(shown(&image).1, Some("2.21.5"));
}

#[test]
fn several_in_pythons_folders_decide_nothing() {
    let root = Root::new();
    root.wheel(SITE, "2.19.3", "2.19.3");
    root.wheel("opt/conda/lib/python3.11/site-packages", "2.20.5", "2.20.5");
    let (image, _) = root.read([]);
    assert_eq!((image.nccl.len(), image.nccl_of_the_job()), (2, None));
}

fn verbs(folder: &str, abi: u32) -> Vec<u8> {
    let texts = format!("lib%s-rdmav{abi}.so\0%s: no driver\0/{folder}/lib%s-rdmav{abi}.so\0");
    fake::Library { texts: texts.as_bytes(), ..Default::default() }.bytes()
}

#[test]
fn providers_are_those_that_libibverbs_would_load() {
    let root = Root::new();
    let folder = &format!("{MULTIARCH}/libibverbs");
    let library = |path: &str| root.file(path, fake::empty());
    root.file(&format!("{MULTIARCH}/libibverbs.so.1.14.44.0"), verbs(folder, 34));
    root.link("libibverbs.so.1.14.44.0", &format!("{MULTIARCH}/libibverbs.so.1"));
    library(&format!("{MULTIARCH}/libmlx5.so.1.24.44.0"));
    root.link("../libmlx5.so.1.24.44.0", &format!("{folder}/libmlx5-rdmav34.so"));
    library(&format!("{folder}/libefa-rdmav34.so"));
    library(&format!("{folder}/libmlx4-rdmav25.so"));
    library(&format!("{MULTIARCH}/liberdma-rdmav34.so"));
    library("opt/vendor/libodd-rdmav34.so");
    // Any file counts, and only `driver NAME` in it.
    root.file("etc/libibverbs.d/mlx5.driver", "# comment\n\n\tdriver \t mlx5 and more\nsomething else\n");
    root.file("etc/libibverbs.d/others", "driver mlx4\ndriver erdma\ndriver siw\ndriver\n");
    nix::unistd::mkfifo(&root.path("etc/libibverbs.d/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (image, errors) = root.read([("RDMAV_DRIVERS", "/opt/vendor/libodd;siw:"), ("IBV_DRIVERS", "efa")]);
    assert_eq!(errors, [""; 0]);
    assert_eq!(image.libibverbs_of_the_job().unwrap().version.as_deref(), Some("1.14.44.0"));
    assert_eq!(image.provider_abi, Some(34));
    let providers: Vec<String> = image
        .providers
        .iter()
        .map(|p| {
            let path = p.path.as_ref().map_or("no file", |path| path.file_name().unwrap().to_str().unwrap());
            format!("{} {path} {:?} {}", p.name, p.abi.unwrap_or_default(), p.named_by.join(" "))
        })
        .collect();
    assert_eq!(
        providers,
        [
            "efa libefa-rdmav34.so 34 ",
            "mlx4 libmlx4-rdmav25.so 25 /etc/libibverbs.d/others",
            "mlx5 libmlx5.so.1.24.44.0 34 /etc/libibverbs.d/mlx5.driver",
            "erdma liberdma-rdmav34.so 34 /etc/libibverbs.d/others",
            "siw no file 0 /etc/libibverbs.d/others RDMAV_DRIVERS",
            "/opt/vendor/libodd libodd-rdmav34.so 34 RDMAV_DRIVERS",
        ]
    );
    let loaded: Vec<&str> = ["efa", "mlx4", "mlx5", "erdma", "siw", "/opt/vendor/libodd"]
        .into_iter()
        .filter(|name| image.provider(name).is_some())
        .collect();
    assert_eq!(loaded, ["mlx5", "erdma", "/opt/vendor/libodd"]);
    // Without RDMAV_DRIVERS the other variable counts.
    assert!(root.read([("IBV_DRIVERS", "efa")]).0.provider("efa").is_some());
}

#[test]
fn a_libibverbs_that_tells_nothing_has_its_providers_beside_it() {
    let root = Root::new();
    root.file("opt/ofed/lib/libibverbs.so.1", fake::empty());
    root.file("opt/ofed/lib/libibverbs/libmlx5-rdmav2.so", fake::empty());
    root.file("etc/libibverbs.d/mlx5.driver", "driver mlx5");
    let (image, _) = root.read([("LD_LIBRARY_PATH", "/opt/ofed/lib")]);
    assert_eq!((image.provider_abi, image.provider("mlx5").unwrap().abi), (None, Some(2)));
}

#[test]
fn plugins_runtime_and_ucx_tell_whether_they_load() {
    let root = Root::new();
    let library = |path: &str| root.file(path, fake::empty());
    library("opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so");
    library(&format!("{MULTIARCH}/libnccl-net.so"));
    library(&format!("{MULTIARCH}/libucp.so.0.0.0"));
    root.link("libucp.so.0.0.0", &format!("{MULTIARCH}/libucp.so.0"));
    library(&format!("{MULTIARCH}/librdmacm.so.1.3.44.0"));
    library("usr/local/cuda-12.4/lib64/libcudart.so.12.4.127");
    root.link("/usr/local/cuda-12.4", "usr/local/cuda");
    root.file(&format!("{SITE}/nvidia/cu13/lib/libcudart.so.13"), fake::empty());
    root.file(
        &format!("{SITE}/nvidia_cuda_runtime-13.0.48.dist-info/RECORD"),
        format!("nvidia/cu13/lib/libcudart.so.13,sha256=x,{}\n", fake::empty().len()),
    );
    let (image, errors) = root.read([]);
    assert_eq!(errors, [""; 0]);
    let plugins: Vec<_> = image.net_plugins.iter().map(|l| (l.reached[0].way, l.loads_as.concat())).collect();
    assert_eq!(plugins, [(Way::Standard, "libnccl-net.so".to_owned()), (Way::Vendor, String::new())]);
    let runtimes: Vec<_> =
        image.cuda_runtime.iter().map(|l| (l.version.as_deref(), l.version_from)).collect();
    let of = |version, from| (Some(version), Some(from));
    assert_eq!(runtimes, [of("13.0.48", VersionFrom::Wheel), of("12.4.127", VersionFrom::FileName)]);
    assert_eq!(image.cuda_runtime[1].reached.len(), 2);
    assert_eq!((image.ucx.len(), image.ucx[0].loads_as("libucp.so.0")), (1, true));
    assert_eq!(image.librdmacm[0].version.as_deref(), Some("1.3.44.0"));
    assert_eq!(image.nccl, []);
}

/// At start-up; the commands that print read it always.
#[test]
fn without_an_hca_the_image_is_read_only_when_asked_for() {
    let root = Root::new();
    root.debian("2.21.5");
    let found = |image_in_any_case| {
        let environment = Environment::default();
        let sources = crate::facts::Sources {
            root: root.0.path(),
            start: Start::from(&environment),
            is_setting: &|_| false,
            is_marker: &|_| false,
            addresses: || Ok(Vec::new()),
            image_in_any_case,
        };
        crate::facts::read(sources, |_, _| false).image.map_or(0, |image| image.nccl.len())
    };
    assert_eq!((found(false), found(true)), (0, 1));
    fs::create_dir_all(root.path("sys/class/infiniband")).unwrap();
    assert_eq!(found(false), 0);
    fs::create_dir_all(root.path("sys/class/infiniband/mlx5_0")).unwrap();
    assert_eq!(found(false), 1);
}

/// Bytes that are anything, in every file whose inside is read.
#[test]
fn mutated_files_do_no_harm() {
    let root = Root::new();
    root.cache(&[("libnccl.so.2", "/opt/libnccl.so.2"), ("libibverbs.so.1", "/opt/libibverbs.so.1")]);
    root.file("opt/libnccl.so.2", nccl("2.21.5"));
    root.file("opt/libibverbs.so.1", verbs("/opt/libibverbs", 34));
    root.file("etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    root.wheel(SITE, "2.21.5", "2.21.5");
    root.torch(
        SITE,
        &fake::Library { needed: &["libnccl.so.2"], rpath: Some("$ORIGIN"), ..Default::default() },
    );
    let files = [
        "etc/ld.so.cache".to_owned(),
        "opt/libnccl.so.2".to_owned(),
        "opt/libibverbs.so.1".to_owned(),
        "etc/libibverbs.d/mlx5.driver".to_owned(),
        format!("{SITE}/torch/lib/libtorch_cuda.so"),
        format!("{SITE}/torch/version.py"),
        format!("{SITE}/nvidia_nccl_cu12-2.21.5.dist-info/RECORD"),
    ];
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(root.path(file)).unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..2000 {
        let which = random.usize(..files.len());
        let mut bytes = whole[which].clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            // Extremes are what sizes and offsets break on.
            let any = random.u8(..);
            bytes[at] = random.choice([0, 1, 0x7f, 0x80, 0xff, any]).unwrap();
        }
        if random.u8(..4) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        root.file(&files[which], bytes);
        root.read([("PATH", "/usr/bin"), ("LD_LIBRARY_PATH", "/opt")]);
        root.file(&files[which], &whole[which]);
    }
}

/// Which NCCL a command gets, by its first word.
fn for_command(root: &Root, command: &str, environment: &[(&str, &str)]) -> Option<String> {
    let entries: Vec<_> =
        environment.iter().map(|(n, v)| std::ffi::CString::new(format!("{n}={v}")).unwrap()).collect();
    let environment = Environment::new(&entries);
    let start = Start { environment: &environment, folder: Some(Path::new("/work")), command: Some(command) };
    let image = read(&Reader::new(root.0.path()), start);
    image.nccl_of_the_job()?.version.clone()
}

#[test]
fn the_python_of_the_command_comes_first() {
    let root = Root::new();
    for (name, version) in [("a", "2.21.5"), ("b", "2.27.7")] {
        let site = format!("opt/{name}/lib/python3.11/site-packages");
        root.wheel(&site, version, version);
        let rpath = Some("$ORIGIN/../../nvidia/nccl/lib");
        root.torch(&site, &fake::Library { needed: &["libnccl.so.2"], rpath, ..Default::default() });
        root.file(&format!("opt/{name}/pyvenv.cfg"), "home = /usr/bin\n");
        root.file(&format!("opt/{name}/bin/python3"), "");
        root.file(&format!("opt/{name}/bin/torchrun"), format!("#!/opt/{name}/bin/python3\nimport torch\n"));
    }
    root.file("work/train.py", "#!/usr/bin/env -S python3 -u\n");
    root.file("work/run.sh", "#!/bin/sh\nexec python3\n");
    let path = [("PATH", "/opt/a/bin:/usr/bin")];
    for (command, version) in [
        ("python3", "2.21.5"),
        ("/opt/b/bin/python3", "2.27.7"),
        ("/opt/b/bin/torchrun", "2.27.7"),
        ("../opt/b/bin/torchrun", "2.27.7"),
        ("./train.py", "2.21.5"),
        ("./run.sh", "2.21.5"),
        ("no-such-command", "2.21.5"),
        ("", "2.21.5"),
    ] {
        assert_eq!(for_command(&root, command, &path).as_deref(), Some(version), "{command}");
    }
    let other = [("PATH", "/opt/b/bin")];
    assert_eq!(for_command(&root, "/work/train.py", &other).as_deref(), Some("2.27.7"));
}

#[test]
fn an_empty_or_relative_entry_of_the_library_path_is_the_working_folder() {
    let root = Root::new();
    root.debian("2.19.3");
    root.file("work/libnccl.so.2", nccl("2.27.7"));
    root.file("work/lib/libnccl.so.2", nccl("2.30.7"));
    let with = |value| for_command(&root, "true", &[("LD_LIBRARY_PATH", value)]);
    assert_eq!(with("").as_deref(), Some("2.19.3"));
    assert_eq!(with(":/opt").as_deref(), Some("2.27.7"));
    assert_eq!(with("/opt:").as_deref(), Some("2.27.7"));
    assert_eq!(with("lib:").as_deref(), Some("2.30.7"));
    assert_eq!(with("$ORIGIN/lib").as_deref(), Some("2.19.3"));
}
