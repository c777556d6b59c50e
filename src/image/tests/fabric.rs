//! Tests of libibverbs with its providers and of the other libraries.

use super::*;

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
    // A file of any name counts, but only its `driver NAME` lines.
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
    // If RDMAV_DRIVERS is not set, the other variable applies.
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
fn providers_that_are_loaded_tell_the_abis_that_they_support() {
    let root = Root::new();
    let folder = &format!("{MULTIARCH}/libibverbs");
    root.file(&format!("{MULTIARCH}/libibverbs.so.1"), verbs(folder, 34));
    root.file(&format!("{folder}/libbnxt_re-rdmav34.so"), fake::provider("bnxt_re", 1, 1));
    root.file(&format!("{folder}/libirdma-rdmav34.so"), fake::provider("irdma", 0, 5));
    root.file(&format!("{folder}/libefa-rdmav34.so"), fake::provider("efa", 1, 1));
    root.file("opt/amd/libionic-rdmav34.so", fake::provider("ionic", 4, 4));
    root.file("etc/libibverbs.d/all", "driver bnxt_re\ndriver irdma\n");
    let (image, errors) = root.read([("RDMAV_DRIVERS", "/opt/amd/libionic")]);
    assert_eq!(errors, [""; 0]);
    let stated: Vec<_> = image
        .providers
        .iter()
        .map(|provider| (provider.name.as_str(), provider.kernel_abi.map(|abi| (abi.least, abi.most))))
        .collect();
    let wanted = [
        ("bnxt_re", Some((1, 1))),
        ("efa", None),
        ("irdma", Some((0, 5))),
        ("/opt/amd/libionic", Some((4, 4))),
    ];
    assert_eq!(stated, wanted);
}

#[test]
fn plugins_runtime_and_ucx_tell_whether_they_load() {
    let root = Root::new();
    let library = |path: &str| root.file(path, fake::empty());
    library(&format!("opt/amazon/ofi-nccl/lib/{}/libnccl-net-ofi.so", OURS.folder));
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

/// AWS's plugin has a RUNPATH to AWS's libfabric, or needs a libfabric from elsewhere.
#[test]
fn a_plugin_lists_its_missing_libraries() {
    let root = Root::new();
    let plugin = |runpath| {
        fake::FakeLibrary { needed: &["libfabric.so.1", "libcuda.so.1"], runpath, ..Default::default() }
            .bytes()
    };
    let missing = |root: &Root, path: Option<&str>| -> Vec<String> {
        let (image, errors) = root.read([("LD_LIBRARY_PATH", path.unwrap_or_default())]);
        assert_eq!(errors, [""; 0]);
        image.net_plugins.into_iter().flat_map(|library| library.missing).map(String::from).collect()
    };
    root.file(&format!("{MULTIARCH}/libnccl-net.so"), plugin(None));
    root.file(&format!("{MULTIARCH}/libnccl-ofi-tuner.so"), plugin(None));
    root.file(&format!("{MULTIARCH}/libnccl-gin.so"), fake::empty());
    assert_eq!(missing(&root, None), ["libfabric.so.1"]);
    root.file("opt/amazon/efa/lib/libfabric.so.1", fake::empty());
    assert_eq!(missing(&root, None), ["libfabric.so.1"], "it is not searched there");
    assert_eq!(missing(&root, Some("/opt/amazon/efa/lib")), [""; 0]);
    let (image, _) = root.read([]);
    let names = |libraries: &[Library]| libraries.len();
    assert_eq!([&image.libfabric, &image.gin_plugins, &image.tuner_plugins].map(|l| names(l)), [1, 1, 1]);
    assert_eq!(
        (&image.tuner_plugins[0].missing[..], &image.gin_plugins[0].missing[..]),
        (&[MissingLibrary { name: "libfabric.so.1".to_owned(), lacks: None }][..], &[][..])
    );
    root.file(&format!("{MULTIARCH}/libnccl-net.so"), plugin(Some("/opt/amazon/efa/lib")));
    assert_eq!(missing(&root, None), [""; 0]);
    root.file(&format!("{MULTIARCH}/libnccl-net.so"), plugin(None));
    root.file(&format!("{MULTIARCH}/libfabric.so.1"), fake::empty());
    assert_eq!(missing(&root, None), [""; 0]);
}

#[test]
fn a_libfabric_that_is_too_old_for_the_plugin_is_told() {
    let root = Root::new();
    let plugin = fake::FakeLibrary {
        needed: &["libfabric.so.1"],
        needs_version: Some(("libfabric.so.1", "FABRIC_1.8")),
        ..Default::default()
    };
    root.file(&format!("{MULTIARCH}/libnccl-net.so"), plugin.bytes());
    let missing = |has_version| -> Vec<String> {
        let fabric = fake::FakeLibrary { has_version, ..Default::default() }.bytes();
        root.file(&format!("{MULTIARCH}/libfabric.so.1"), fabric);
        root.read([])
            .0
            .net_plugins
            .into_iter()
            .flat_map(|library| library.missing)
            .map(String::from)
            .collect()
    };
    assert_eq!(missing(Some("FABRIC_1.6")), ["libfabric.so.1 (FABRIC_1.8)"]);
    assert_eq!(missing(Some("FABRIC_1.8")), [""; 0]);
    // The loader treats a library without versions as one that defines them all.
    assert_eq!(missing(None), [""; 0]);
}
