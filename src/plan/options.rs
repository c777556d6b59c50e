//! The part of the configuration that the plan needs.

use std::collections::BTreeSet;

use indexmap::IndexMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub profile: ProfileOption,
    /// Variables never to fill.
    pub keep: BTreeSet<String>,
    /// Variables to set, as if by the user.
    pub set: IndexMap<String, String>,
}

/// Which profile to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProfileOption {
    /// The one whose evidence is there.
    #[default]
    Auto,
    /// Fill nothing.
    None,
    Named(String),
}
