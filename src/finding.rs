//! The vocabulary of findings: what a person should know, and how bad it is. Every module that finds
//! something uses it, and this module does not depend on those modules.

mod about;
mod id;
mod source;

pub use about::About;
pub use id::Id;
pub use source::Source;

use serde::Serialize;

/// What is wrong, where it comes from, and what to do.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub id: Id,
    pub severity: Severity,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    #[serde(skip_serializing_if = "About::is_empty")]
    pub about: About,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Useful information.
    Info,
    /// The job may be slow, or fail later.
    Warning,
    /// The job will not use the fabric, or it will fail.
    Error,
}

/// When a finding is made: before the command runs, while it runs, or when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    Start,
    Run,
    End,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl Finding {
    pub fn info(id: Id, message: impl Into<String>) -> Finding {
        Finding { id, severity: Severity::Info, message: message.into(), fix: None, about: About::default() }
    }

    pub fn warning(id: Id, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::info(id, message) }
    }

    pub fn error(id: Id, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, ..Finding::info(id, message) }
    }

    pub fn with_fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }

    /// Adds the variables that the finding is about: all that its message names.
    pub fn about_variables(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Finding {
        About::add(&mut self.about.variables, names);
        self
    }

    /// Adds the ports that the finding is about, in the form `mlx5_0:1`.
    pub fn about_ports(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Finding {
        About::add(&mut self.about.ports, names);
        self
    }

    /// Adds the interfaces that the finding is about.
    pub fn about_interfaces(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Finding {
        About::add(&mut self.about.interfaces, names);
        self
    }
}
