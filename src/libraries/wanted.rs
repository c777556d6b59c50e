//! Which libraries other than NCCL the plan covers: the key `libraries`.

use std::collections::BTreeSet;

use super::{ALL, Library, LibraryContext};
use crate::image::ImageScope;

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

    /// Returns which libraries the image's readers must look for.
    pub fn scope(&self) -> ImageScope {
        match self {
            Wanted::Named(names) if names.is_empty() => ImageScope::Nccl,
            Wanted::Named(_) | Wanted::Found => ImageScope::All,
        }
    }
}
