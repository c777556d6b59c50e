//! Where the dynamic loader looks for a name, and in what order (ld.so(8); glibc, `elf/dl-load.c`,
//! `_dl_map_object`).

use std::path::{Path, PathBuf};

use super::architecture::OURS;
use super::cache::{self, Entry};
use super::elf::Dynamic;
use super::library::{LibraryFamily, LibraryPath, Way};
use super::providers;
use super::tree::Tree;
use crate::facts::reader::Reader;
use crate::facts::start::Start;

/// The most directories to use from a list.
const FOLDERS: usize = 128;

/// The default directories of Debian's loader, which puts the architecture's directories first, and of other
/// distributions' loaders. musl's loader has `/lib`, `/usr/local/lib` and `/usr/lib`.
const STANDARD: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

pub struct Loader<'a> {
    tree: &'a Tree<'a>,
    /// The entries of `LD_PRELOAD`, as paths or as names.
    preloaded: Vec<String>,
    /// The directories of `LD_LIBRARY_PATH`.
    library_path: Vec<PathBuf>,
    cache: Vec<Entry>,
    standard: Vec<PathBuf>,
}

/// The search directories that a library itself names.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// The directories of DT_RPATH, which precede `LD_LIBRARY_PATH`. The loader ignores them if there is a
    /// DT_RUNPATH.
    pub rpath: Vec<PathBuf>,
    /// The directories of DT_RUNPATH, which follow `LD_LIBRARY_PATH`.
    pub runpath: Vec<PathBuf>,
}

impl Own {
    /// Returns the search directories that apply to the library at this path: DT_RUNPATH replaces DT_RPATH.
    pub fn of(dynamic: &Dynamic, real: &Path) -> Own {
        let origin = real.parent().unwrap_or(Path::new("/"));
        let folders =
            |path: &Option<String>| path.as_ref().map(|path| expanded(path, origin)).unwrap_or_default();
        match &dynamic.runpath {
            Some(_) => Own { rpath: Vec::new(), runpath: folders(&dynamic.runpath) },
            None => Own { rpath: folders(&dynamic.rpath), runpath: Vec::new() },
        }
    }
}

impl<'a> Loader<'a> {
    /// Returns a loader that can find the families of libraries and these names.
    pub fn new(reader: &Reader, tree: &'a Tree<'a>, start: Start, names: &[&Vec<String>]) -> Loader<'a> {
        let value = |name| start.environment.get(name).unwrap_or_default();
        let preloaded = value("LD_PRELOAD").split([':', ' ']).filter(|entry| !entry.is_empty());
        Loader {
            tree,
            preloaded: preloaded.take(FOLDERS).map(str::to_owned).collect(),
            library_path: distinct(tree, library_path(&start)),
            cache: cache::read(reader, tree, |name| {
                LibraryFamily::any_has(name)
                    || providers::is_file(name)
                    || names.iter().any(|names| names.iter().any(|known| known == name))
            }),
            standard: distinct(tree, standard()),
        }
    }

    /// Returns all files whose names match, in the order in which the loader finds them.
    pub fn all(&self, fits: impl Fn(&str) -> bool) -> Vec<LibraryPath> {
        let fits = &fits;
        let in_folders = |way, folders: &[PathBuf]| -> Vec<LibraryPath> {
            folders.iter().flat_map(|folder| in_folder(self.tree, way, folder, fits)).collect()
        };
        let preloaded = self.preloaded.iter().filter(|entry| plain(entry) && fits(file_name(entry)));
        let cached = self.cache.iter().filter(|(name, _)| fits(name));
        let mut all: Vec<LibraryPath> = preloaded.map(|entry| reach(Way::LdPreload, entry)).collect();
        all.extend(in_folders(Way::LdLibraryPath, &self.library_path));
        all.extend(cached.map(|(_, path)| reach(Way::Cache, path)));
        all.extend(in_folders(Way::Standard, &self.standard));
        all
    }

    /// Returns the paths that the loader tries for a name, in its order. If a library is preloaded under this
    /// name, the loader has already searched for it, without `own`.
    pub fn tried(&self, name: &str, own: &Own) -> Vec<LibraryPath> {
        let without = Own::default();
        let own = if self.preloaded.iter().any(|entry| entry == name) { &without } else { own };
        let in_folders = |way, folders: &[PathBuf]| -> Vec<LibraryPath> {
            let there = folders.iter().filter(|folder| self.tree.is_there(&folder.join(name)));
            there.map(|folder| reach(way, folder.join(name))).collect()
        };
        let preloaded = self.preloaded.iter().filter(|entry| plain(entry) && is_named(entry, name));
        let cached = self.cache.iter().filter(|(known, _)| known == name);
        let mut tried: Vec<LibraryPath> = preloaded.map(|entry| reach(Way::LdPreload, entry)).collect();
        if own.runpath.is_empty() {
            tried.extend(in_folders(Way::TorchRpath, &own.rpath));
        }
        tried.extend(in_folders(Way::LdLibraryPath, &self.library_path));
        tried.extend(in_folders(Way::TorchRpath, &own.runpath));
        // If several cache entries have this name, only the first counts.
        tried.extend(cached.take(1).map(|(_, path)| reach(Way::Cache, path)));
        tried.extend(in_folders(Way::Standard, &self.standard));
        tried
    }
}

/// Returns the files in a directory whose names match.
pub(super) fn in_folder(
    tree: &Tree,
    way: Way,
    folder: &Path,
    fits: impl Fn(&str) -> bool,
) -> Vec<LibraryPath> {
    let names = tree.names(folder);
    names.iter().filter(|name| fits(name)).map(|name| reach(way, folder.join(name))).collect()
}

/// Returns the directories of an RPATH or RUNPATH; `$ORIGIN` stands for the library's directory.
fn expanded(path: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.to_str().unwrap_or_default();
    let expand = |entry: &str| entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
    path.split(':').take(FOLDERS).map(expand).filter(|folder| plain(folder)).map(PathBuf::from).collect()
}

/// Returns the directories of `LD_LIBRARY_PATH`. An empty entry means the working directory, unless the whole
/// variable is empty. Skips entries with `$ORIGIN` or `$LIB`, which depend on the program.
fn library_path<'s>(start: &Start<'s>) -> impl Iterator<Item = PathBuf> + use<'s> {
    let start = *start;
    let value = start.environment.get("LD_LIBRARY_PATH").filter(|value| !value.is_empty());
    let folders = value.into_iter().flat_map(|value| value.split([':', ';']));
    folders.filter(|folder| !folder.contains('$')).filter_map(move |folder| start.path(folder))
}

fn standard() -> impl Iterator<Item = PathBuf> {
    let of_architecture = ["/lib", "/usr/lib"].map(|folder| Path::new(folder).join(OURS.folder));
    of_architecture.into_iter().chain(STANDARD.iter().map(PathBuf::from))
}

/// Returns the directories that exist, without duplicates.
fn distinct(tree: &Tree, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let is_new = |folder: &PathBuf| {
        let real = tree.real(folder);
        let is_new = real.is_some() && !seen.contains(&real);
        seen.push(real);
        is_new
    };
    folders.take(FOLDERS).filter(is_new).collect()
}

/// Returns whether a path is absolute and has no variable that only the loader can expand.
fn plain(path: &str) -> bool {
    path.starts_with('/') && !path.contains('$')
}

/// Returns whether a preloaded file has this soname. The file name may be longer: `libnccl.so.2.21.5`.
fn is_named(path: &str, soname: &str) -> bool {
    let goes_on = |rest: &str| soname.contains(".so.") && rest.starts_with('.');
    file_name(path).strip_prefix(soname).is_some_and(|rest| rest.is_empty() || goes_on(rest))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn reach(way: Way, path: impl Into<PathBuf>) -> LibraryPath {
    LibraryPath { way, path: path.into() }
}
