//! Packages of Python's that move a job's data, or that start its processes: what pip, or a
//! build in place, has noted about them. No package is imported, and of its files only the sizes are
//! looked at.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::wheel;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Package {
    /// In lower case and with hyphens, as pip compares names: `nvidia-nvshmem-cu12`.
    pub name: String,
    /// `3.4.5`, `1.2.1+c50f3d6`.
    pub version: String,
    /// The directory of packages that it is in.
    pub path: PathBuf,
    /// Libraries (`*.so*`) that the package has brought, by pip's list of its files, and that are not
    /// there, relative to the directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<PathBuf>,
    /// Those that exist, with another size than in the list: another package, or a person, has
    /// put other files in their place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<PathBuf>,
    /// A libibverbs of its own, if the package contains one and it is unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libibverbs: Option<OwnLibibverbs>,
}

/// A libibverbs in a package, under its own name (`libibverbs-1de1263b.so.1.14.48.0`), as auditwheel
/// gives libraries that it puts into a wheel. The image's providers are made for `libibverbs.so.1` and
/// report to that one alone; this one has those that lie beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnLibibverbs {
    /// Relative to the directory of packages.
    pub path: PathBuf,
    /// The providers that the package has brought with it: `mlx5`.
    pub providers: Vec<String>,
}

impl Package {
    /// Returns whether its libraries are those that it has brought.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.replaced.is_empty()
    }
}

/// The beginnings of their names: a name is one of these, or, but for [`ALONE`], continues with a hyphen.
const STARTS: &[&str] = &[
    "deep-ep",
    "libucx",
    "mooncake-transfer-engine",
    "mpi4py",
    "nixl",
    "nvidia-nvshmem",
    "ray",
    "sglang",
    "torch",
    "uccl",
    "vllm",
];

/// Names that other packages extend: `torch-geometric`.
const ALONE: &[&str] = &["ray", "sglang", "torch"];

/// The most packages that are kept; no image has as many.
const MOST: usize = 64;

/// The most libraries of a package to examine.
const LIBRARIES: usize = 64;

/// The providers of rdma-core that a library can be linked with.
const PROVIDERS: &[&str] = &["bnxt_re", "efa", "erdma", "hns", "ionic", "mana", "mlx4", "mlx5"];

/// Returns those that Python finds, in its order.
pub(crate) fn read(tree: &Tree, sites: &[PathBuf]) -> Vec<Package> {
    let mut found = Vec::new();
    for site in sites {
        let names = tree.names(site);
        let notes = names.iter().filter_map(|entry| match noted(entry) {
            Some((name, version)) => {
                let package = Package { name, version, path: site.clone(), ..Package::default() };
                Some(looked_at(tree, package, entry))
            }
            None => linked(tree, site, entry),
        });
        found.extend(notes.take(MOST - found.len()));
    }
    found
}

/// Returns the package that `NAME.egg-link` leads to, as `setup.py develop` leaves one: its first line is the
/// project's directory, whose `NAME.egg-info/PKG-INFO` has the version.
fn linked(tree: &Tree, site: &Path, entry: &str) -> Option<Package> {
    let name = of_link(entry)?;
    let text = tree.text(&site.join(entry))?;
    let path = PathBuf::from(text.lines().next()?.trim());
    let of_name = |spelt: &str| path.join(format!("{spelt}.egg-info/PKG-INFO"));
    let notes = [entry.strip_suffix(LINK)?.to_owned(), name.replace('-', "_")];
    let note = notes.iter().find_map(|spelt| tree.text(&of_name(spelt)))?;
    let version = note.lines().find_map(|line| line.strip_prefix("Version:"))?.trim().to_owned();
    path.is_absolute().then(|| Package { name, version, path, ..Package::default() })
}

const LINK: &str = ".egg-link";

/// Returns the name of a package in `deep_ep.egg-link`.
fn of_link(entry: &str) -> Option<String> {
    known(entry.strip_suffix(LINK)?)
}

/// Returns the package, with what has become of its libraries.
fn looked_at(tree: &Tree, mut package: Package, note: &str) -> Package {
    let record = tree.list(&package.path.join(note).join("RECORD")).unwrap_or_default();
    let is_library = |file: &str| {
        let name = file.rsplit('/').next().unwrap_or_default();
        !file.starts_with(['/', '.', '"']) && (name.ends_with(".so") || name.contains(".so."))
    };
    let libraries = || wheel::files(&record).filter(|(file, _)| is_library(file));
    for (file, size) in libraries().take(LIBRARIES) {
        match became(tree, &package, file, size) {
            Became::Missing => package.missing.push(file.into()),
            Became::Replaced => package.replaced.push(file.into()),
            Became::Whole => {}
        }
    }
    let own = libraries().find(|(file, _)| repaired(file) == Some("ibverbs"));
    let own = own.filter(|(file, size)| became(tree, &package, file, size) == Became::Whole);
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

/// What has become of a library that a package has brought.
#[derive(PartialEq)]
enum Became {
    Whole,
    Missing,
    Replaced,
}

fn became(tree: &Tree, package: &Package, file: &str, size: &str) -> Became {
    let real = tree.real(&package.path.join(file));
    match real.and_then(|real| tree.open(&real)?.metadata().ok()) {
        None => Became::Missing,
        Some(data) if data.len().to_string() != size && !size.is_empty() => Became::Replaced,
        Some(_) => Became::Whole,
    }
}

/// `ibverbs` of `nixl_cu12.libs/libibverbs-1de1263b.so.1.14.48.0`: what the library was called before
/// auditwheel has put it into the wheel.
pub(super) fn repaired(file: &str) -> Option<&str> {
    let (folder, name) = file.rsplit_once('/')?;
    let (name, hash) = name.strip_prefix("lib")?.split_once('-')?;
    let hash = hash.split('.').next()?;
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (folder.ends_with(".libs") && is_hash).then_some(name)
}

/// Returns whether an entry of a directory is the note about one of these packages.
pub(crate) fn is_note(entry: &str) -> bool {
    noted(entry).is_some() || of_link(entry).is_some()
}

/// Returns the name and the version in `nixl_cu12-0.7.1.dist-info`, `mpi4py-3.1.4.egg-info` and
/// `deep_ep-1.2.1+c50f3d6-py3.12-linux-x86_64.egg`.
pub(super) fn noted(entry: &str) -> Option<(String, String)> {
    // Most entries of such a directory end here.
    let whole = [".dist-info", ".egg-info", ".egg"].iter().find_map(|end| entry.strip_suffix(end))?;
    let (name, rest) = whole.split_once('-')?;
    let version = rest.split_once("-py3").map_or(rest, |(version, _)| version);
    let is_version = version.starts_with(|c: char| c.is_ascii_digit());
    Some((known(name)?, version.to_owned())).filter(|_| is_version)
}

/// Returns the name as pip compares names, if it is one of these packages.
fn known(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    // Packages such as `ray-...` extend them.
    let goes_on = |start: &str, rest: &str| rest.starts_with('-') && !ALONE.contains(&start);
    let is_known =
        |start: &&str| name.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || goes_on(start, rest));
    STARTS.iter().any(is_known).then_some(name)
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
        for entry in [
            "nixl",
            "nixl.libs",
            "rayon-1.0.dist-info",
            "torch_geometric-2.6.1.dist-info",
            "xnixl-1.0.dist-info",
            "ray-.dist-info",
            "uccl.egg-link",
        ] {
            assert_eq!(noted(entry), None, "{entry}");
        }
    }
}
