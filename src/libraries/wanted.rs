//! Which libraries beside NCCL the plan is for: the key `libraries`.

use std::collections::BTreeSet;

use super::{ALL, Library, LibraryContext};
use crate::image::ImageScope;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Those that the image holds, or that the environment shows in use.
    #[default]
    Found,
    /// Those of these names, found or not; none for NCCL alone.
    Named(BTreeSet<String>),
}

impl Wanted {
    /// Returns those that the job has.
    pub fn of(&self, subject: &LibraryContext) -> Vec<&'static Library> {
        let is_wanted = |library: &&Library| match self {
            Wanted::Found => (library.is_here)(subject),
            Wanted::Named(names) => names.contains(library.name),
        };
        ALL.iter().copied().filter(is_wanted).collect()
    }

    /// Returns whether a library may be decided for, if something else requests it.
    pub fn allows(&self, library: &Library) -> bool {
        match self {
            Wanted::Found => true,
            Wanted::Named(names) => names.contains(library.name),
        }
    }

    /// Returns which libraries have to be looked for.
    pub fn scope(&self) -> ImageScope {
        match self {
            Wanted::Named(names) if names.is_empty() => ImageScope::Nccl,
            Wanted::Named(_) | Wanted::Found => ImageScope::All,
        }
    }
}
