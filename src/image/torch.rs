//! PyTorch and how it gets NCCL.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::architecture::ForeignKind;
use super::collect::Collector;
use super::elf::{Elf, Not};
use super::library::{Library, LibraryPath, VersionFrom, Way};
use super::loader::Own;
use super::scan;
use super::tree::Tree;
use super::wheel;

/// The most bytes of PyTorch's texts to search for an NCCL.
const TEXTS: u64 = 64 * 1024 * 1024;

/// The library that calls NCCL. Some wheels before 2.0 split it in two.
const LIBRARIES: &[&str] = &["libtorch_cuda.so", "libtorch_cuda_cpp.so"];

/// The package `torch` that Python would import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Torch {
    /// The package's directory.
    pub path: PathBuf,
    /// For example, `2.4.0+cu121`.
    pub version: Option<String>,
    pub linkage: Linkage,
    /// The file of the NCCL that PyTorch uses, which is the `path` of an entry of `Image::nccl`; `None` if
    /// there is no such file or it is unknown.
    pub nccl: Option<PathBuf>,
}

/// How PyTorch gets NCCL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Linkage {
    /// The dynamic loader loads NCCL (DT_NEEDED).
    Dynamic,
    /// NCCL is linked statically.
    Static,
    /// There is no library for CUDA, so there is no NCCL.
    None,
    /// The library for CUDA cannot be read, or contains no recognizable NCCL.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Returns the package in the first Python directory that contains one. Adds its NCCL to the libraries that
/// were found.
pub(crate) fn read(tree: &Tree, sites: &[PathBuf], nccl: &mut Collector) -> Option<Torch> {
    let is_package = |site: &&PathBuf| {
        let has = |file: &str| tree.is_there(&site.join("torch").join(file));
        tree.names(site).iter().any(|name| name == "torch") && (has("__init__.py") || has("version.py"))
    };
    let site = sites.iter().find(is_package)?;
    let path = site.join("torch");
    let version = version(tree, site);
    let mut torch = Torch { version, linkage: Linkage::None, nccl: None, path };
    let library = |name: &&str| tree.real(&torch.path.join("lib").join(name));
    for real in LIBRARIES.iter().filter_map(library).collect::<Vec<_>>() {
        torch.linkage = Linkage::Unknown;
        if let Some((linkage, used)) = linked(tree, &real, nccl) {
            torch.linkage = linkage;
            torch.nccl = used;
            break;
        }
    }
    Some(torch)
}

/// Returns how a library gets NCCL, and from which file; `None` if it does not use NCCL.
fn linked(tree: &Tree, real: &Path, nccl: &mut Collector) -> Option<(Linkage, Option<PathBuf>)> {
    let file = tree.open(real)?;
    let elf = match Elf::open(&file) {
        Ok(elf) => elf,
        Err(Not::OurMachine(architecture @ Some(_))) => {
            nccl.pass_over(ForeignKind::Torch, real, architecture);
            return None;
        }
        Err(_) => {
            tree.remember(real, "it is not a library");
            return None;
        }
    };
    let dynamic = elf.dynamic()?;
    if let Some(name) = dynamic.needed.iter().find(|name| name.starts_with("libnccl.so")) {
        let own = Own::of(&dynamic, real);
        for folder in own.rpath.iter().chain(&own.runpath) {
            nccl.add(LibraryPath { way: Way::TorchRpath, path: folder.join(name) });
        }
        let taken = nccl.taken(name, &own).map(|index| nccl.found[index].path.clone());
        return Some((Linkage::Dynamic, taken));
    }
    let version = scan::nccl_version(&file, &elf, TEXTS)?;
    nccl.found.push(Library {
        path: real.to_owned(),
        version: Some(version),
        version_from: Some(VersionFrom::Text),
        reached: vec![LibraryPath { way: Way::TorchStatic, path: real.to_owned() }],
        ..Library::default()
    });
    Some((Linkage::Static, Some(real.to_owned())))
}

/// Returns the version from `__version__ = '2.4.0+cu121'`, or else from pip's record.
fn version(tree: &Tree, site: &Path) -> Option<String> {
    let text = tree.text(&site.join("torch/version.py")).unwrap_or_default();
    let written = text.lines().find_map(|line| {
        let value = line.strip_prefix("__version__")?.trim_start_matches(": str").trim_start();
        let value = value.strip_prefix('=')?.trim().trim_matches(['\'', '"']);
        (!value.is_empty()).then(|| value.to_owned())
    });
    written.or_else(|| {
        let names = tree.names(site);
        let noted = wheel::noted(&names, "torch").find(|(folder, _)| folder.starts_with("torch-"));
        noted.map(|(_, version)| version.to_owned())
    })
}
