//! Tests of UCX, its modules, and packages that were built in place.

use super::*;

fn library(root: &Root, path: &str) {
    root.file(path, fake::empty());
}

/// Returns the path of each UCX, and whether it has its RDMA module.
fn found<const N: usize>(root: &Root, environment: [(&str, &str); N]) -> Vec<(String, Option<bool>)> {
    let (image, errors) = root.read(environment);
    assert_eq!(errors, [""; 0]);
    image.ucx.iter().map(|ucx| (ucx.path.display().to_string(), ucx.verbs)).collect()
}

#[test]
fn the_modules_beside_ucx_tell_whether_it_has_verbs() {
    let root = Root::new();
    library(&root, &format!("{MULTIARCH}/libucp.so.0.0.0"));
    let system = format!("/{MULTIARCH}/libucp.so.0.0.0");
    assert_eq!(found(&root, []), [(system.clone(), None)], "it may have its transports inside");
    library(&root, &format!("{MULTIARCH}/ucx/libuct_cma.so.0"));
    assert_eq!(found(&root, []), [(system.clone(), Some(false))]);
    library(&root, "opt/modules/libuct_ib.so.0.0.0");
    assert_eq!(found(&root, [("UCX_MODULE_DIR", "/opt/modules")]), [(system.clone(), Some(true))]);
    library(&root, &format!("{MULTIARCH}/ucx/libuct_ib_mlx5.so.0"));
    assert_eq!(
        found(&root, []),
        [(system.clone(), Some(false))],
        "the module that this one needs is not there"
    );
    library(&root, &format!("{MULTIARCH}/ucx/libuct_ib.so.0"));
    assert_eq!(found(&root, []), [(system, Some(true))]);
    let has_gda = |root: &Root| root.read([]).0.ucx[0].gda;
    assert!(!has_gda(&root));
    library(&root, &format!("{MULTIARCH}/ucx/libuct_ib_mlx5_gda.so.0.0.0"));
    assert!(has_gda(&root));
}

#[test]
fn the_ucx_of_a_conda_environment_counts_where_its_python_does() {
    let root = Root::new();
    root.file("opt/conda/bin/python3.12", "");
    root.link("python3.12", "opt/conda/bin/python3");
    root.file("usr/bin/python3", "");
    library(&root, "opt/conda/lib/libucp.so.0");
    library(&root, "opt/conda/lib/ucx/libuct_ib.so.0");
    let first = ("PATH", "/opt/conda/bin:/usr/bin");
    assert_eq!(found(&root, [first]), [], "it is no conda environment");
    root.file("opt/conda/conda-meta/history", "");
    let conda = [("/opt/conda/lib/libucp.so.0".to_owned(), Some(true))];
    assert_eq!(found(&root, [first]), conda);
    assert_eq!(found(&root, [("PATH", "/usr/bin:/opt/conda/bin")]), []);
    assert_eq!(found(&root, [("PATH", "/usr/bin"), ("CONDA_PREFIX", "/opt/conda")]), conda);
}

#[test]
fn an_egg_link_leads_to_a_package_that_is_built_in_place() {
    let root = Root::new();
    root.file("usr/bin/python3", "");
    root.file(&format!("{SITE}/deep-ep.egg-link"), "/src/DeepEP\n.");
    root.file(&format!("{SITE}/uccl.egg-link"), "/nowhere\n.");
    root.file(&format!("{SITE}/numpy.egg-link"), "/src/numpy\n.");
    root.file(
        "src/DeepEP/deep_ep.egg-info/PKG-INFO",
        "Metadata-Version: 2.1\nName: deep_ep\nVersion: 1.2.1+c50\n",
    );
    let (image, _) = root.read([("PATH", "/usr/bin")]);
    let packages: Vec<_> = image.packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
    assert_eq!(packages, [("deep-ep", "1.2.1+c50")]);
    assert_eq!(image.packages[0].path, Path::new("/src/DeepEP"));
}
