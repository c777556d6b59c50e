//! Tests of the libraries that variables name.

use super::*;
use crate::image::named::FoundVerbs;

/// Returns conda's libibverbs: it has its own provider directory and its own configuration directory.
fn of_conda() -> Vec<u8> {
    let texts =
        b"/etc/x.d\0/opt/conda/etc/libibverbs.d\0\0\0/opt/conda/lib/libibverbs/lib%s-rdmav59.so\0".as_slice();
    fake::FakeLibrary { texts, has_version: Some("IBVERBS_1.1"), ..Default::default() }.bytes()
}

#[test]
fn a_named_libibverbs_has_its_own_providers() {
    let root = Root::new();
    root.file("opt/conda/lib/libibverbs.so.1.14.59.0", of_conda());
    root.link("libibverbs.so.1.14.59.0", "opt/conda/lib/libibverbs.so");
    root.file("opt/conda/lib/libibverbs/libmlx5-rdmav59.so", fake::empty());
    root.file("opt/conda/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    root.file(&format!("{MULTIARCH}/libibverbs.so.1"), verbs(&format!("{MULTIARCH}/libibverbs"), 34));
    let (image, errors) = root.read([("NCCL_IBVERBS_LIB", "/opt/conda/lib/libibverbs.so")]);
    assert_eq!(errors, [""; 0]);
    let [named] = image.named_verbs.as_slice() else { panic!("{:?}", image.named_verbs) };
    let FoundVerbs::Verbs(verbs) = &named.found else { panic!("{named:?}") };
    assert_eq!(verbs.path, Path::new("/opt/conda/lib/libibverbs.so.1.14.59.0"));
    assert_eq!(verbs.provider_abi, Some(59));
    assert_eq!(verbs.provider_folder.as_deref(), Some(Path::new("/opt/conda/etc/libibverbs.d")));
    let mlx5 = providers::of_name(&verbs.providers, verbs.provider_abi, "mlx5").unwrap();
    assert_eq!(mlx5.named_by, ["/opt/conda/etc/libibverbs.d/mlx5.driver"]);
    // The libibverbs that the loader's search finds is read as usual.
    assert_eq!((image.provider_abi, image.provider_folder.as_ref()), (Some(34), None));
    assert_eq!(image.provider("mlx5"), None);
}

#[test]
fn a_name_may_lead_to_another_library_or_to_none() {
    let root = Root::new();
    let other = fake::FakeLibrary { has_version: Some("MLX5_1.0"), ..Default::default() }.bytes();
    root.file("job/libmlx5.so.1", other);
    root.file("job/libibverbs.so.1", of_conda());
    root.file("job/text", "not a library");
    root.file(&format!("{MULTIARCH}/libverbs-of-ours.so"), of_conda());
    root.cache(&[("libverbs-in-the-cache.so", "/job/libibverbs.so.1")]);
    let found = |value| match &root.read([("NCCL_IBVERBS_LIB", value)]).0.named_verbs[0].found {
        FoundVerbs::Verbs(_) => "verbs",
        FoundVerbs::OtherLibrary => "other",
        FoundVerbs::Nothing => "nothing",
        FoundVerbs::Other => panic!(),
    };
    for (value, wanted) in [
        ("./libibverbs.so.1", "verbs"),
        ("libverbs-of-ours.so", "verbs"),
        ("libverbs-in-the-cache.so", "verbs"),
        ("./libmlx5.so.1", "other"),
        ("", "other"),
        ("text", "nothing"),
        ("./text", "nothing"),
        ("/job", "nothing"),
        ("/missing/libibverbs.so.1", "nothing"),
    ] {
        assert_eq!(found(value), wanted, "{value:?}");
    }
}

#[test]
fn plugins_are_found_by_path_and_by_name() {
    let root = Root::new();
    let needy = fake::FakeLibrary { needed: &["libfabric.so.1"], ..Default::default() }.bytes();
    root.file("opt/mine/odd.so", needy);
    root.file(&format!("{MULTIARCH}/libodd.so"), fake::empty());
    root.file(&format!("{MULTIARCH}/libnccl-tuner-best.so"), fake::empty());
    root.file(&format!("{MULTIARCH}/libnccl-env.so"), fake::empty());
    root.cache(&[("named-in-the-cache", "/opt/mine/odd.so")]);
    let (image, errors) = root.read([
        ("NCCL_NET_PLUGIN", "/opt/mine/odd.so,libodd.so,named-in-the-cache"),
        ("NCCL_TUNER_PLUGIN", "best"),
    ]);
    assert_eq!(errors, [""; 0]);
    let found: Vec<(&str, String)> = image
        .named_plugins
        .iter()
        .filter_map(|named| {
            let library = named.library.as_ref()?;
            Some((
                named.name.as_str(),
                format!(
                    "{} {}",
                    library.path.display(),
                    library.missing.iter().map(MissingLibrary::to_string).collect::<String>()
                ),
            ))
        })
        .collect();
    let of_debian = |name: &str| format!("/{MULTIARCH}/{name} ");
    assert_eq!(
        found,
        [
            ("/opt/mine/odd.so", "/opt/mine/odd.so libfabric.so.1".to_owned()),
            ("libodd.so", of_debian("libodd.so")),
            ("named-in-the-cache", "/opt/mine/odd.so libfabric.so.1".to_owned()),
            ("libnccl-tuner-best.so", of_debian("libnccl-tuner-best.so")),
        ]
    );
    assert!(image.named_plugins.iter().any(|named| named.name == "best" && named.library.is_none()));
    assert!(image.env_plugins[0].loads_as("libnccl-env.so"));
}

#[test]
fn no_more_names_are_looked_for_than_a_job_has() {
    let many: Vec<String> = (0..100).map(|number| format!("/{number}")).collect();
    let (image, _) = Root::new().read([("NCCL_GIN_PLUGIN", many.join(",").as_str())]);
    assert_eq!(image.named_plugins.len(), 64);
    let (image, _) = Root::new().read([("NCCL_GIN_PLUGIN", "x".repeat(300).as_str())]);
    assert_eq!(image.named_plugins, []);
}
