//! Packages of Python's that move a job's data, or that start its processes: what pip, or a
//! build in place, has noted about them. No package is imported, and none of its files is opened.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tree::Tree;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Package {
    /// In lower case and with hyphens, as pip compares names: `nvidia-nvshmem-cu12`.
    pub name: String,
    /// `3.4.5`, `1.2.1+c50f3d6`.
    pub version: String,
    /// The folder of packages that it is in.
    pub path: PathBuf,
}

/// The beginnings of their names: a name is one of these, or goes on with a hyphen.
const STARTS: &[&str] = &[
    "deep-ep",
    "libucx",
    "mooncake-transfer-engine",
    "mpi4py",
    "nixl",
    "nvidia-nvshmem",
    "ray",
    "uccl",
    "vllm",
];

/// The most packages that are kept; no image has as many.
const MOST: usize = 64;

/// Those that Python finds, in its order.
pub fn read(tree: &Tree, sites: &[PathBuf]) -> Vec<Package> {
    let mut found = Vec::new();
    for site in sites {
        let names = tree.names(site);
        let packages = names.iter().filter_map(|entry| noted(entry));
        found.extend(packages.map(|(name, version)| Package { name, version, path: site.clone() }));
    }
    found.truncate(MOST);
    found
}

/// Whether an entry of a folder is the note about one of these packages.
pub fn is_note(entry: &str) -> bool {
    noted(entry).is_some()
}

/// The name and the version in `nixl_cu12-0.7.1.dist-info`, `mpi4py-3.1.4.egg-info` and
/// `deep_ep-1.2.1+c50f3d6-py3.12-linux-x86_64.egg`.
fn noted(entry: &str) -> Option<(String, String)> {
    // Most entries of such a folder end here.
    let whole = [".dist-info", ".egg-info", ".egg"].iter().find_map(|end| entry.strip_suffix(end))?;
    let (name, rest) = whole.split_once('-')?;
    let version = rest.split_once("-py3").map_or(rest, |(version, _)| version);
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    let is_known =
        |start: &&str| name.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let known = STARTS.iter().any(is_known);
    (known && version.starts_with(|c: char| c.is_ascii_digit())).then(|| (name, version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "xnixl-1.0.dist-info",
            "ray-.dist-info",
            "uccl.egg-link",
        ] {
            assert_eq!(noted(entry), None, "{entry}");
        }
    }
}
