//! Reads what pip, or an in-place build, recorded about Python packages that move a job's data or start its
//! processes. Imports no package; of the packages' files, it looks only at the sizes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::wheel;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Package {
    /// In lower case and with hyphens, the form in which pip compares names: `nvidia-nvshmem-cu12`.
    pub name: String,
    /// For example, `3.4.5` or `1.2.1+c50f3d6`.
    pub version: String,
    /// The package directory that contains it.
    pub path: PathBuf,
    /// Libraries (`*.so*`) that the package installed, according to pip's file list, but that are missing.
    /// Relative to the directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<PathBuf>,
    /// Libraries that exist but whose size differs from the list: another package, or a person, replaced
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<PathBuf>,
    /// The package's own libibverbs, if the package contains one and it is unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libibverbs: Option<OwnLibibverbs>,
}

/// A libibverbs inside a package, under a name of its own (`libibverbs-1de1263b.so.1.14.48.0`), which
/// auditwheel gives to libraries that it puts into a wheel. The image's providers are built for
/// `libibverbs.so.1` and register only with that library; this one uses the providers beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnLibibverbs {
    /// Relative to the directory of packages.
    pub path: PathBuf,
    /// The providers that the package contains: `mlx5`.
    pub providers: Vec<String>,
}

impl Package {
    /// Returns whether all of the package's libraries are still the ones that it installed.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.replaced.is_empty()
    }
}

/// Returns whether a package with this name is the listed one. A listed name that ends with `-` also stands for all that
/// extend it: `nixl-` for `nixl` and `nixl-cu12`. Unrelated packages extend some names: `torch-geometric`.
pub(crate) fn is_listed(name: &str, listed: &str) -> bool {
    name.strip_prefix(listed.trim_end_matches('-'))
        .is_some_and(|rest| rest.is_empty() || listed.ends_with('-') && rest.starts_with('-'))
}

/// Returns whether a package with this name matters, in lower case and with hyphens.
pub(crate) type IsPackage = fn(&str) -> bool;

/// The most packages to keep; no image has that many.
const MOST: usize = 64;

/// The most libraries of a package to examine.
const LIBRARIES: usize = 64;

/// The rdma-core providers that can be linked into a library.
const PROVIDERS: &[&str] = &["bnxt_re", "efa", "erdma", "hns", "ionic", "mana", "mlx4", "mlx5"];

/// Returns the packages that Python finds, in its order.
pub(crate) fn read(tree: &Tree, sites: &[PathBuf], is_package: IsPackage) -> Vec<Package> {
    let mut found = Vec::new();
    for site in sites {
        let names = tree.names(site);
        let notes =
            names.iter().filter_map(|entry| match noted(entry).filter(|(name, _)| is_package(name)) {
                Some((name, version)) => {
                    let package = Package { name, version, path: site.clone(), ..Package::default() };
                    Some(looked_at(tree, package, entry))
                }
                None => linked(tree, site, entry, is_package),
            });
        found.extend(notes.take(MOST - found.len()));
    }
    found
}

/// Returns the package that `NAME.egg-link`, which `setup.py develop` writes, points to: its first line is
/// the project directory, and the version is in `NAME.egg-info/PKG-INFO` there.
fn linked(tree: &Tree, site: &Path, entry: &str, is_package: IsPackage) -> Option<Package> {
    let name = linked_name(entry).filter(|name| is_package(name))?;
    let text = tree.text(&site.join(entry))?;
    let path = PathBuf::from(text.lines().next()?.trim());
    let of_name = |spelt: &str| path.join(format!("{spelt}.egg-info/PKG-INFO"));
    let notes = [entry.strip_suffix(LINK)?.to_owned(), name.replace('-', "_")];
    let note = notes.iter().find_map(|spelt| tree.text(&of_name(spelt)))?;
    let version = note.lines().find_map(|line| line.strip_prefix("Version:"))?.trim().to_owned();
    path.is_absolute().then(|| Package { name, version, path, ..Package::default() })
}

const LINK: &str = ".egg-link";

/// Returns the package name in an entry such as `deep_ep.egg-link`.
fn linked_name(entry: &str) -> Option<String> {
    entry.strip_suffix(LINK).map(normalize)
}

/// Returns the package with the state of its libraries filled in.
fn looked_at(tree: &Tree, mut package: Package, note: &str) -> Package {
    let record = tree.list(&package.path.join(note).join("RECORD")).unwrap_or_default();
    let is_library = |file: &str| {
        let name = file.rsplit('/').next().unwrap_or_default();
        !file.starts_with(['/', '.', '"']) && (name.ends_with(".so") || name.contains(".so."))
    };
    let libraries = || wheel::files(&record).filter(|(file, _)| is_library(file));
    for (file, size) in libraries().take(LIBRARIES) {
        match became(tree, &package, file, size) {
            InstalledFileState::Missing => package.missing.push(file.into()),
            InstalledFileState::Replaced => package.replaced.push(file.into()),
            InstalledFileState::Whole => {}
        }
    }
    let own = libraries().find(|(file, _)| repaired(file) == Some("ibverbs"));
    let own = own.filter(|(file, size)| became(tree, &package, file, size) == InstalledFileState::Whole);
    package.libibverbs = own.map(|(file, _)| OwnLibibverbs {
        path: file.into(),
        providers: libraries()
            .filter_map(|(file, _)| repaired(file))
            .filter(|name| PROVIDERS.contains(name))
            .map(str::to_owned)
            .collect(),
    });
    package
}

/// The state of a library that a package installed.
#[derive(PartialEq)]
enum InstalledFileState {
    Whole,
    Missing,
    Replaced,
}

fn became(tree: &Tree, package: &Package, file: &str, size: &str) -> InstalledFileState {
    let real = tree.real(&package.path.join(file));
    match real.and_then(|real| tree.open(&real)?.metadata().ok()) {
        None => InstalledFileState::Missing,
        Some(data) if data.len().to_string() != size && !size.is_empty() => InstalledFileState::Replaced,
        Some(_) => InstalledFileState::Whole,
    }
}

/// Returns the name that a library had before auditwheel put it into the wheel: `ibverbs` for
/// `nixl_cu12.libs/libibverbs-1de1263b.so.1.14.48.0`.
pub(super) fn repaired(file: &str) -> Option<&str> {
    let (folder, name) = file.rsplit_once('/')?;
    let (name, hash) = name.strip_prefix("lib")?.split_once('-')?;
    let hash = hash.split('.').next()?;
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (folder.ends_with(".libs") && is_hash).then_some(name)
}

/// Returns whether a directory entry is the record of a package that matters.
pub(crate) fn is_note(entry: &str, is_package: IsPackage) -> bool {
    let name = noted(entry).map(|(name, _)| name).or_else(|| linked_name(entry));
    name.is_some_and(|name| is_package(&name))
}

/// Returns the name and the version in `nixl_cu12-0.7.1.dist-info`, `mpi4py-3.1.4.egg-info` and
/// `deep_ep-1.2.1+c50f3d6-py3.12-linux-x86_64.egg`.
pub(super) fn noted(entry: &str) -> Option<(String, String)> {
    let whole = [".dist-info", ".egg-info", ".egg"].iter().find_map(|end| entry.strip_suffix(end))?;
    let (name, rest) = whole.split_once('-')?;
    let version = rest.split_once("-py3").map_or(rest, |(version, _)| version);
    let is_version = version.starts_with(|c: char| c.is_ascii_digit());
    is_version.then(|| (normalize(name), version.to_owned()))
}

/// Returns the name in the form in which pip compares names.
fn normalize(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_auditwheel_has_put_into_a_wheel_has_a_name_of_its_own() {
        for (file, name) in [
            ("nixl_cu12.libs/libibverbs-1de1263b.so.1.14.48.0", Some("ibverbs")),
            ("nixl_cu12.libs/libbnxt_re-79ef1d27.so.1", Some("bnxt_re")),
            ("nixl_cu12.libs/libnl-route-3-3ad497a3.so.200.26.0", None),
            ("nixl_cu12/lib/libibverbs-1de1263b.so.1", None),
            ("nixl_cu12.libs/libibverbs.so.1", None),
            ("nixl_cu12.libs/libibverbs-devel.so", None),
            ("libibverbs-1de1263b.so.1", None),
        ] {
            assert_eq!(repaired(file), name, "{file}");
        }
    }

    /// The names that a tree keeps are limited, and an image may have thousands of other packages.
    #[test]
    fn the_note_of_a_package_that_does_not_matter_is_not_kept() {
        let is_nixl = |name: &str| is_listed(name, "nixl-");
        for (entry, wanted) in [
            ("nixl_cu12-0.7.1.dist-info", true),
            ("nixl.egg-link", true),
            ("numpy-2.1.0.dist-info", false),
            ("numpy.egg-link", false),
        ] {
            assert_eq!(is_note(entry, is_nixl), wanted, "{entry}");
        }
    }

    #[test]
    fn a_note_tells_the_package_and_its_version() {
        for (entry, name, version) in [
            ("nixl_cu12-0.7.1.dist-info", "nixl-cu12", "0.7.1"),
            ("nvidia_nvshmem_cu12-3.4.5.dist-info", "nvidia-nvshmem-cu12", "3.4.5"),
            ("mooncake_transfer_engine-0.3.9.post1.dist-info", "mooncake-transfer-engine", "0.3.9.post1"),
            ("deep_ep-1.2.1+c50f3d6-py3.12-linux-x86_64.egg", "deep-ep", "1.2.1+c50f3d6"),
            ("mpi4py-3.1.4.egg-info", "mpi4py", "3.1.4"),
            ("vLLM-0.11.0.dist-info", "vllm", "0.11.0"),
            ("ray-2.50.1.dist-info", "ray", "2.50.1"),
        ] {
            assert_eq!(noted(entry), Some((name.to_owned(), version.to_owned())), "{entry}");
        }
        for entry in ["nixl", "nixl.libs", "ray-.dist-info", "uccl.egg-link"] {
            assert_eq!(noted(entry), None, "{entry}");
        }
    }
}
