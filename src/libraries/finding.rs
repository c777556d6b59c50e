//! Findings about what is wrong with a library's variables on this host; each library's own file produces
//! them.

use std::fmt::Display;

use super::LibraryContext;
use crate::finding::{Finding, Id};

/// A finding about a library, with what other findings need to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFinding {
    pub finding: Finding,
    /// The wrong GID that the finding is about, if any.
    pub gid: Option<WrongGid>,
}

/// A library selects a GID that does not belong to this container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongGid {
    /// The library does so because of a variable.
    OfVariable {
        variable: &'static str,
        /// A clause that says what the library selects with the variable.
        what: String,
        port: String,
        /// The variable for an index, and the index that is right on all ports.
        instead: Option<(&'static str, u32)>,
    },
    /// The library does so on its own, and no index is right on all ports.
    WithoutRemedy,
}

impl From<Finding> for LibraryFinding {
    fn from(finding: Finding) -> LibraryFinding {
        LibraryFinding { finding, gid: None }
    }
}

impl LibraryContext<'_> {
    /// Returns a variable as it is set, and where: `GLOO_SOCKET_IFNAME=^lo (environment)`.
    pub(super) fn shown(&self, variable: &str) -> String {
        match self.setting(variable) {
            Some(setting) => setting.to_string(),
            None => format!("{variable}={}", self.value(variable).unwrap_or_default()),
        }
    }

    /// Returns a warning about a library's variable. It is only a warning because the job may not use the
    /// library at all.
    pub(super) fn warning(&self, id: Id, variable: &str, what: impl Display) -> Finding {
        Finding::warning(id, format!("{}: {what}", self.shown(variable))).about_variables([variable])
    }
}
