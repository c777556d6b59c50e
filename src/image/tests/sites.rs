//! Tests of Python's directories and wheels.

use super::*;

#[test]
fn a_wheel_that_was_written_over_is_not_believed() {
    let root = Root::new();
    root.wheel(SITE, "2.19.3", "2.19.3");
    let (image, _) = root.read([]);
    assert_eq!(only_version(&image), (Some("2.19.3"), Some(VersionFrom::Wheel)));
    // The loader does not find this library by its name, but it is the only one.
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
        let reader = root.reader();
        let tree = Tree::new(&reader, &|name| matters(name, None));
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
fn several_in_pythons_folders_decide_nothing() {
    let root = Root::new();
    root.wheel(SITE, "2.19.3", "2.19.3");
    root.wheel("opt/conda/lib/python3.11/site-packages", "2.20.5", "2.20.5");
    let (image, _) = root.read([]);
    assert_eq!((image.nccl.len(), image.nccl_of_the_job()), (2, None));
}

#[test]
fn a_package_tells_which_of_its_libraries_are_not_its_own() {
    let root = Root::new();
    let note = |name: &str, record: &str| root.file(&format!("{SITE}/{name}.dist-info/RECORD"), record);
    let (lib, module) = ("nvidia/nvshmem/lib/libnvshmem_host.so.3", "mooncake/engine.so");
    let library = nccl("2.21.5");
    root.file(&format!("{SITE}/{lib}"), &library);
    note(
        "nvidia_nvshmem_cu12-3.4.5",
        &format!("{lib},sha256=x,{}\r\nnvidia/nvshmem/a.h,,7\r\n", library.len()),
    );
    note("nvidia_nvshmem_cu13-3.8.0", &format!("{lib},sha256=x,1\n"));
    note(
        "mooncake_transfer_engine-0.3.9",
        &format!("../../x.so,,1\n/x.so,,1\n{module},,1\nmooncake/cli.py,,1\n"),
    );
    note("vllm-0.11.0", "__editable__.vllm.pth,,1\n");
    let own = "nixl_cu12.libs/libibverbs-1de1263b.so.1.14.48.0";
    let brought = format!(
        "{own},sha256=x,4\nnixl_cu12.libs/libmlx5-79ef1d27.so.1.24.48.0,,4\nnixl_cu12.libs/libgpr-3a8c5cf8.so.48,,4\n"
    );
    for library in brought.lines().filter_map(|line| line.split(',').next()) {
        root.file(&format!("{SITE}/{library}"), "here");
    }
    note("nixl_cu12-1.5.1", &brought);
    note("nixl_cu13-1.5.1", &brought.replace(",4", ",5"));
    let (image, errors) = root.read([("PATH", "/usr/bin")]);
    assert_eq!(errors, [""; 0]);
    let shown: Vec<(&str, usize, usize)> = image
        .packages
        .iter()
        .map(|package| (package.name.as_str(), package.missing.len(), package.replaced.len()))
        .collect();
    assert_eq!(
        shown,
        [
            ("mooncake-transfer-engine", 1, 0),
            ("nixl-cu12", 0, 0),
            ("nixl-cu13", 0, 3),
            ("nvidia-nvshmem-cu12", 0, 0),
            ("nvidia-nvshmem-cu13", 0, 1),
            ("vllm", 0, 0)
        ]
    );
    assert_eq!(image.packages[0].missing, [Path::new(module)]);
    let libibverbs: Vec<_> =
        image.packages.iter().filter_map(|package| package.libibverbs.as_ref()).collect();
    let providers = vec!["mlx5".to_owned()];
    assert_eq!(libibverbs, [&OwnLibibverbs { path: own.into(), providers }], "another file is not its own");
    let nvshmem: Vec<_> = image.nvshmem.iter().map(|library| library.version.as_deref()).collect();
    assert_eq!(nvshmem, [Some("3.4.5")], "the size tells whose the file is");
}
