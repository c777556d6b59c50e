//! Collects the libraries of one family.

use std::path::Path;

use super::architecture::{Foreign, ForeignKind, foreign};
use super::elf::{Elf, Not};
use super::library::{Library, LibraryFamily, LibraryPath, MissingLibrary, VersionFrom, Way};
use super::loader::{Loader, Own, in_folder};
use super::scan;
use super::tree::Tree;
use super::wheel;

/// The most libraries of one family; no image has that many.
const LIBRARIES: usize = 64;

/// The most bytes of NCCL's texts to search; NCCL up to 2.32 has less than one million.
const NCCL_TEXTS: u64 = 16 * 1024 * 1024;

/// The most bytes of NVSHMEM's texts to search. The GPU code that precedes them grows with each release.
const NVSHMEM_TEXTS: u64 = 64 * 1024 * 1024;

pub(crate) struct Collector<'a> {
    tree: &'a Tree<'a>,
    loader: &'a Loader<'a>,
    family: LibraryFamily,
    pub found: Vec<Library>,
    /// Files that the loader skips because they are for another architecture.
    pub foreign: Vec<Foreign>,
}

impl<'a> Collector<'a> {
    /// Returns a collector that already contains the files that the dynamic loader can find.
    pub(crate) fn new(tree: &'a Tree<'a>, loader: &'a Loader<'a>, family: LibraryFamily) -> Collector<'a> {
        let mut collector = Collector { tree, loader, family, found: Vec::new(), foreign: Vec::new() };
        for reach in loader.all(|name| family.has(name)) {
            collector.add(reach);
        }
        collector
    }

    /// Adds the libraries in a directory.
    pub(crate) fn folder(&mut self, way: Way, folder: &Path) {
        for reach in in_folder(self.tree, way, folder, |name| self.family.has(name)) {
            self.add(reach);
        }
    }

    /// Adds the libraries that the wheel of this name installed in `folder` of `site`, a Python package
    /// directory.
    pub(crate) fn wheel(&mut self, site: &Path, folder: &str, name: &str) {
        for reach in in_folder(self.tree, Way::SitePackages, &site.join(folder), |name| self.family.has(name))
        {
            let path = reach.path.clone();
            let Some(index) = self.add(reach) else { continue };
            let library = &mut self.found[index];
            if library.version.is_none()
                && let Some(version) = wheel::version(self.tree, site, name, &path)
            {
                library.version = Some(version);
                library.version_from = Some(VersionFrom::Wheel);
            }
        }
    }

    /// Adds a file, or another way to a file that is already listed. Returns its index in the list, or `None`
    /// if there is no file that the loader could load.
    pub(crate) fn add(&mut self, reach: LibraryPath) -> Option<usize> {
        let real = self.tree.real(&reach.path)?;
        if let Some(index) = self.place(&real) {
            let reached = &mut self.found[index].reached;
            if !reached.contains(&reach) {
                reached.push(reach);
            }
            return Some(index);
        }
        if self.found.len() >= LIBRARIES {
            return None;
        }
        let file = self.tree.open(&real)?;
        match Elf::open(&file) {
            Ok(_) => {}
            Err(Not::OurMachine(architecture)) => {
                self.pass_over(ForeignKind::of_family(self.family), &real, architecture);
                return None;
            }
            Err(Not::Elf) => {
                self.tree.remember(&real, "it is not a library");
                return None;
            }
        }
        let name = real.file_name()?.to_str()?;
        let version = self.family.version(name);
        let version_from = version.as_ref().map(|_| VersionFrom::FileName);
        self.found.push(Library {
            path: real,
            version,
            version_from,
            reached: vec![reach],
            ..Library::default()
        });
        Some(self.found.len() - 1)
    }

    /// Records a library that is for another architecture.
    pub(crate) fn pass_over(&mut self, kind: ForeignKind, real: &Path, architecture: Option<&str>) {
        let known = self.foreign.iter().any(|foreign| foreign.path == real);
        if let Some(architecture) = architecture
            && !known
            && self.foreign.len() < LIBRARIES
        {
            self.foreign.push(foreign(kind, real, architecture));
        }
    }

    /// Returns the index of the found file that the loader takes for a name.
    pub(crate) fn taken(&self, name: &str, own: &Own) -> Option<usize> {
        let mut tried = self.loader.tried(name, own).into_iter();
        tried.find_map(|reach| self.place(&self.tree.real(&reach.path)?))
    }

    fn place(&self, real: &Path) -> Option<usize> {
        self.found.iter().position(|library| library.path == real)
    }

    /// Returns all libraries that were found, with the names for which the loader takes them. Adds the
    /// versions that only a text in the file shows, and adds to plugins the libraries that the loader cannot
    /// provide.
    pub(crate) fn finish(mut self) -> Vec<Library> {
        let mut names: Vec<String> = Vec::new();
        let reached = self.found.iter().flat_map(|library| library.reached.iter());
        for name in reached.filter_map(|reach| reach.path.file_name()?.to_str()) {
            if self.family.has(name) && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        for name in names {
            if let Some(index) = self.taken(&name, &Own::default()) {
                self.found[index].loads_as.push(name);
            }
        }
        if self.family.is_plugin() {
            for index in 0..self.found.len() {
                let missing = missing(self.tree, self.loader, &self.found[index].path);
                self.found[index].missing = missing.unwrap_or_default();
            }
        }
        if matches!(self.family, LibraryFamily::Nccl | LibraryFamily::Rccl) {
            add_versions(self.tree, self.family, &mut self.found);
        }
        self.found
    }
}

/// Returns the libraries that a plugin needs and that the loader does not find or finds too old. Checks only
/// libraries that the job has not loaded before ([`LibraryFamily::is_of_a_plugin`]).
pub(super) fn missing(tree: &Tree, loader: &Loader, real: &Path) -> Option<Vec<MissingLibrary>> {
    let file = tree.open(real)?;
    let elf = Elf::open(&file).ok()?;
    let dynamic = elf.dynamic()?;
    let own = Own::of(&dynamic, real);
    let versions = elf.versions_needed().unwrap_or_default();
    let missing = |name: String| {
        let tried = loader.tried(&name, &own);
        let Some(taken) = tried.iter().find_map(|reach| tree.real(&reach.path)) else {
            return Some(MissingLibrary { name, lacks: None });
        };
        let has = versions_of(tree, &taken)?;
        let lacks = versions.iter().find(|needed| needed.of == name && !has.contains(&needed.version))?;
        Some(MissingLibrary { lacks: Some(lacks.version.clone()), name })
    };
    let needed = dynamic.needed.into_iter().filter(|name| LibraryFamily::is_of_a_plugin(name));
    Some(needed.take(LIBRARIES).filter_map(missing).collect())
}

/// Returns the symbol versions that a library defines; `None` if it defines none or cannot be read.
pub(super) fn versions_of(tree: &Tree, real: &Path) -> Option<Vec<String>> {
    let file = tree.open(real)?;
    Elf::open(&file).ok()?.versions_defined()
}

/// Adds the versions that only texts in the files show.
pub(super) fn add_versions(tree: &Tree, family: LibraryFamily, libraries: &mut [Library]) {
    for library in libraries.iter_mut().filter(|library| library.version.is_none()) {
        library.version = version_in(tree, family, &library.path);
        library.version_from = library.version.as_ref().map(|_| VersionFrom::Text);
    }
}

/// Returns the version from a text in a library of NCCL, RCCL, UCX, NVSHMEM or aws-ofi-nccl.
fn version_in(tree: &Tree, family: LibraryFamily, real: &Path) -> Option<String> {
    let file = tree.open(real)?;
    let elf = Elf::open(&file).ok()?;
    match family {
        LibraryFamily::Rccl => scan::rccl_version(&file, &elf, NCCL_TEXTS),
        LibraryFamily::Ucp => scan::ucx_version(&file, &elf, NCCL_TEXTS),
        LibraryFamily::NetPlugin => scan::ofi_version(&file, &elf, NCCL_TEXTS),
        LibraryFamily::Nvshmem => scan::nvshmem_version(&file, &elf, NVSHMEM_TEXTS),
        _ => scan::nccl_version(&file, &elf, NCCL_TEXTS),
    }
}

/// Returns the library that the loader takes for a name.
pub(super) fn loaded<'l>(libraries: &'l [Library], name: &str) -> Option<&'l Library> {
    libraries.iter().find(|library| library.loads_as(name))
}
