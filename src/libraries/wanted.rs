//! Which libraries other than NCCL the plan covers: the key `libraries`.

use std::collections::BTreeSet;

use super::{ALL, Library, LibraryContext};
use crate::image::packages::IsPackage;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The libraries that the image contains or that the environment shows to be in use.
    #[default]
    Found,
    /// The libraries with these names, found or not; an empty set means NCCL alone.
    Named(BTreeSet<String>),
}

impl Wanted {
    /// Returns the libraries that the job uses.
    pub fn of(&self, subject: &LibraryContext) -> Vec<&'static Library> {
        let is_wanted = |library: &&Library| match self {
            Wanted::Found => (library.is_here)(subject),
            Wanted::Named(names) => names.contains(library.name),
        };
        ALL.iter().copied().filter(is_wanted).collect()
    }

    /// Returns whether decisions for a library are allowed if something else requests it.
    pub fn allows(&self, library: &Library) -> bool {
        match self {
            Wanted::Found => true,
            Wanted::Named(names) => names.contains(library.name),
        }
    }

    /// Returns whether a Python package matters; `None` if only NCCL and what it needs do.
    pub fn is_package(&self) -> Option<IsPackage> {
        let is_nccl_alone = matches!(self, Wanted::Named(names) if names.is_empty());
        (!is_nccl_alone).then_some(super::is_package)
    }
}
