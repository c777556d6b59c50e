//! Finds the libraries that variables name for NCCL to load, as dlopen(3) finds them: by path, or by name
//! through the dynamic loader's search.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::collect::{missing, versions_of};
use super::elf::Elf;
use super::library::{Library, LibraryPath, Way};
use super::loader::{Loader, Own};
use super::providers::{self, Verbs};
use super::tree::Tree;
use crate::facts::settings::Settings;
use crate::facts::start::Start;

/// The variable that names libibverbs (`src/misc/ibvsymbols.cc`).
pub const IBVERBS_LIB: &str = "NCCL_IBVERBS_LIB";

/// The variables that name plugins, and the prefix of each kind's file names (`src/plugin/plugin_open.cc`).
pub const PLUGINS: &[(&str, &str)] = &[
    ("NCCL_NET_PLUGIN", "libnccl-net"),
    ("NCCL_GIN_PLUGIN", "libnccl-gin"),
    ("NCCL_RMA_PLUGIN", "libnccl-rma"),
    ("NCCL_TUNER_PLUGIN", "libnccl-tuner"),
    ("NCCL_PROFILER_PLUGIN", "libnccl-profiler"),
    ("NCCL_ENV_PLUGIN", "libnccl-env"),
];

/// The most names to look for; a variable or a conf file may have any number.
const MOST: usize = 64;

/// In bytes: the longest name to look for (`MAX_STR_LEN`).
const LONGEST: usize = 255;

/// What the dynamic loader finds for a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: String,
    /// `None` if the loader finds no library for this machine.
    pub library: Option<Library>,
}

/// A libibverbs that a variable names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedVerbs {
    pub name: String,
    pub found: FoundVerbs,
}

/// What dlopen(3) returns for the name of a libibverbs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundVerbs {
    /// A libibverbs.
    Verbs(Verbs),
    /// A library, but not a libibverbs. The empty name stands for the program itself.
    OtherLibrary,
    /// No library for this machine.
    Nothing,
    /// An outcome that a later version of this program knows.
    #[default]
    #[serde(other)]
    Other,
}

/// Returns the names that any NCCL release may ask the dynamic loader for: the names as they are, and as file
/// names of plugins.
pub fn names(settings: &Settings) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for setting in &settings.0 {
        let Some((_, start)) = PLUGINS.iter().find(|(variable, _)| *variable == setting.variable) else {
            continue;
        };
        for name in setting.value.split(',').filter(|name| !name.is_empty()) {
            for name in [name.to_owned(), format!("{start}-{name}.so")] {
                if names.len() < MOST && name.len() <= LONGEST && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    names
}

/// Returns the values of the variable that names libibverbs.
pub fn ibverbs_names(settings: &Settings) -> Vec<String> {
    let named = settings.0.iter().filter(|setting| setting.variable == IBVERBS_LIB);
    let mut names: Vec<String> = Vec::new();
    for name in named.map(|setting| &setting.value).filter(|name| name.len() <= LONGEST) {
        if names.len() < MOST && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Returns what the loader finds for these names.
pub fn read(tree: &Tree, loader: &Loader, start: Start, names: &[String]) -> Vec<Named> {
    let named = |name: &String| Named { name: name.clone(), library: library(tree, loader, start, name) };
    names.iter().map(named).collect()
}

/// Returns what the loader finds for each libibverbs name.
pub fn verbs(
    tree: &Tree,
    loader: &Loader,
    start: Start,
    names: &[String],
    served: &[&str],
) -> Vec<NamedVerbs> {
    let named =
        |name: &String| NamedVerbs { name: name.clone(), found: found(tree, loader, start, name, served) };
    names.iter().map(named).collect()
}

fn found(tree: &Tree, loader: &Loader, start: Start, name: &str, served: &[&str]) -> FoundVerbs {
    if name.is_empty() {
        return FoundVerbs::OtherLibrary;
    }
    let Some(library) = library(tree, loader, start, name) else { return FoundVerbs::Nothing };
    match is_libibverbs(tree, &library.path) {
        true => FoundVerbs::Verbs(providers::verbs(tree, loader, &library.path, start.environment, served)),
        false => FoundVerbs::OtherLibrary,
    }
}

/// Returns whether a library defines the symbol version that NCCL requests (`IBVERBS_VERSION`). The loader
/// treats a library without versions as one that defines them all.
fn is_libibverbs(tree: &Tree, real: &Path) -> bool {
    versions_of(tree, real).is_none_or(|versions| versions.iter().any(|version| version == "IBVERBS_1.1"))
}

fn library(tree: &Tree, loader: &Loader, start: Start, name: &str) -> Option<Library> {
    let tried = match name.contains('/') {
        true => start.path(name).map(|path| LibraryPath { way: Way::Variable, path }).into_iter().collect(),
        false => loader.tried(name, &Own::default()),
    };
    tried.into_iter().find_map(|reach| {
        let path = tree.real(&reach.path)?;
        Elf::open(&tree.open(&path)?).ok()?;
        let missing = missing(tree, loader, &path).unwrap_or_default();
        Some(Library { path, reached: vec![reach], missing, ..Library::default() })
    })
}
