//! UCX: its library `libucp`, and whether it has its module for InfiniBand and RoCE.

use std::path::{Path, PathBuf};

use super::collect::{Collector, add_versions};
use super::library::{Library, LibraryFamily, Way};
use super::packages::Package;
use super::python;
use super::tree::Tree;
use crate::facts::start::Start;

/// UCX's directories outside the distribution's.
const FOLDERS: &[&str] = &["/opt/hpcx/ucx/lib", "/opt/ucx/lib", "/usr/local/ucx/lib"];

/// The variable for an additional module directory (`src/ucs/sys/module.c`).
const MODULES: &str = "UCX_MODULE_DIR";

/// The prefix of the file names of UCX's transport modules.
const MODULE: &str = "libuct_";
/// The prefix of the file name of its module for InfiniBand and RoCE.
const VERBS: &str = "libuct_ib.so";
/// The prefix of the file name of its module for transfers that a GPU starts (1.20 and later).
const GDA: &str = "libuct_ib_mlx5_gda.so";

/// Returns whether a name in a module directory matters.
pub(super) fn is_module(name: &str) -> bool {
    name.starts_with(MODULE)
}

/// Adds each UCX that the loader does not find, and reads what the file names do not contain. A conda
/// environment counts if the command finds its Python: the environment's programs find its libraries through
/// their own RPATH.
pub(super) fn read(mut found: Collector, tree: &Tree, start: Start, packages: &[Package]) -> Vec<Library> {
    FOLDERS.iter().for_each(|folder| found.folder(Way::Vendor, Path::new(folder)));
    for prefix in python::conda(tree, start) {
        found.folder(Way::Vendor, &prefix.join("lib"));
    }
    for package in packages {
        // auditwheel puts the libraries of a wheel that it repaired beside the package.
        match package.name.as_str() {
            name if name.starts_with("libucx") => found.wheel(&package.path, "libucx/lib", "libucx"),
            name if name.starts_with("nixl") => {
                let folder = format!("{}.libs", name.replace('-', "_"));
                found.folder(Way::SitePackages, &package.path.join(folder));
            }
            _ => {}
        }
    }
    found.finish()
}

/// Adds each UCX's version and which of the modules for HCAs it has.
pub(super) fn look_into(tree: &Tree, start: Start, libraries: &mut [Library]) {
    add_versions(tree, LibraryFamily::Ucp, libraries);
    let named = start.environment.get(MODULES).filter(|folder| folder.starts_with('/')).map(PathBuf::from);
    for library in libraries {
        let beside = library.path.parent().map(|folder| folder.join("ucx"));
        let folders = beside.into_iter().chain(named.clone());
        let modules: Vec<String> = folders.flat_map(|folder| tree.names(&folder).to_vec()).collect();
        library.gda = modules.iter().any(|name| name.starts_with(GDA));
        let mut modules = modules.iter().filter(|name| is_module(name)).peekable();
        // A UCX may have its transports built in and therefore no modules.
        library.verbs = modules.peek().is_some().then(|| modules.any(|name| name.starts_with(VERBS)));
    }
}
