//! What is wrong with the variables of a library on this host, as findings: each file says it where it finds it.

use std::fmt::Display;

use super::LibraryContext;
use crate::finding::{Finding, Id};

/// A finding about a library, with what other findings need to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFinding {
    pub finding: Finding,
    /// The GID that it is about, if one is wrong.
    pub gid: Option<WrongGid>,
}

/// A library takes a GID that is not this container's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongGid {
    /// Because of a variable.
    OfVariable {
        variable: &'static str,
        /// A clause: what the library takes with it.
        what: String,
        port: String,
        /// The variable for an index, and the one that is right on all ports.
        instead: Option<(&'static str, u32)>,
    },
    /// By itself, and no index is right on all ports.
    WithoutRemedy,
}

impl From<Finding> for LibraryFinding {
    fn from(finding: Finding) -> LibraryFinding {
        LibraryFinding { finding, gid: None }
    }
}

impl LibraryContext<'_> {
    /// A variable as it is set, and where: `GLOO_SOCKET_IFNAME=^lo (environment)`.
    pub(super) fn shown(&self, variable: &str) -> String {
        match self.setting(variable) {
            Some(setting) => setting.to_string(),
            None => format!("{variable}={}", self.value(variable).unwrap_or_default()),
        }
    }

    /// It is unknown whether the job uses a library at all, so what is wrong with its variable is a warning.
    pub(super) fn warning(&self, id: Id, variable: &str, what: impl Display) -> Finding {
        Finding::warning(id, format!("{}: {what}", self.shown(variable))).about_variables([variable])
    }
}
