//! The vocabulary of findings: what a person should know, and how bad it is. Every module that finds
//! something uses it, and this module does not depend on those modules.

mod about;
mod id;
mod source;

pub use about::About;
pub use id::{Blocks, Id};
pub use source::Source;

use serde::Serialize;

use crate::text::name_program;

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
    /// The findings that explain this one if they are about one of its variables, the best explanation first, and what
    /// each does not say itself about the consequence; see [`Finding::drop_explained`].
    #[serde(skip)]
    pub causes: &'static [(Id, &'static str)],
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
    /// Returns the name in documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning | Severity::Error => self.as_str(),
        }
    }

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
        let (severity, fix, about, causes) = (Severity::Info, None, About::default(), [].as_slice());
        Finding { id, severity, message: message.into(), fix, about, causes }
    }

    pub fn warning(id: Id, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::info(id, message) }
    }

    pub fn error(id: Id, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, ..Finding::info(id, message) }
    }

    pub fn with_fix(self, fix: impl AsRef<str>) -> Finding {
        Finding { fix: Some(name_program(fix.as_ref()).into_owned()), ..self }
    }

    /// Names findings that say the same by its cause, each with the sentence that adds the consequence to it: see
    /// [`Finding::drop_explained`].
    pub fn explained_by(self, causes: &'static [(Id, &'static str)]) -> Finding {
        Finding { causes, ..self }
    }

    /// Drops each finding that another one explains. The cause becomes as severe, and states the consequence.
    pub fn drop_explained(findings: &mut Vec<Finding>) {
        for place in (0..findings.len()).rev() {
            let explained = findings.get(place).filter(|finding| !finding.causes.is_empty());
            let Some(Finding { severity, causes, about, .. }) = explained.cloned() else { continue };
            let is_about_same = |cause: &&mut Finding| {
                cause.about.variables.iter().any(|variable| about.variables.contains(variable))
            };
            let explain = |(id, consequence): &(Id, &str)| {
                let mut known = findings.iter_mut().filter(|finding| finding.id == *id);
                let cause = known.find(is_about_same)?;
                cause.severity = cause.severity.max(severity);
                cause.message += consequence;
                Some(())
            };
            if causes.iter().find_map(explain).is_some() {
                drop(findings.remove(place));
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_replaces_its_consequence() {
        const CAUSES: &[(Id, &str)] = &[(Id::StaleHca, ""), (Id::ListSeparator, " So none is selected.")];
        let about = |finding: Finding, variable: &str| finding.about_variables([variable]);
        let consequence =
            || about(Finding::error(Id::NoHcaSelected, "None."), "NCCL_IB_HCA").explained_by(CAUSES);
        let kept = |mut findings: Vec<Finding>| {
            Finding::drop_explained(&mut findings);
            findings
        };
        let stale = || about(Finding::warning(Id::StaleHca, "Stale."), "NCCL_IB_HCA");
        assert_eq!(kept(vec![consequence(), stale()]), [Finding { severity: Severity::Error, ..stale() }]);
        let quoted = || about(Finding::warning(Id::ListSeparator, "Quotes."), "NCCL_IB_HCA");
        assert_eq!(kept(vec![quoted(), consequence()])[0].message, "Quotes. So none is selected.");
        let both = kept(vec![quoted(), consequence(), stale()]);
        assert_eq!(both, [quoted(), Finding { severity: Severity::Error, ..stale() }], "the best one");
        // A list of correct names may exclude all usable HCAs, and a fault in another list is not the cause.
        let other = about(Finding::warning(Id::ListSeparator, "Quotes."), "NCCL_SOCKET_IFNAME");
        assert_eq!(kept(vec![consequence(), other.clone()]), [consequence(), other]);
    }
}
