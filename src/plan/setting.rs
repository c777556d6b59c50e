//! A variable with its value and its reason.

use std::fmt;

use serde::Serialize;

use super::rule::{Rule, RuleEvidence};
use crate::facts::secret::{HIDDEN, is_secret};
use crate::finding::Source;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub variable: String,
    /// The value in the form in which it may be shown; `None` if the variable stays unset.
    pub value: Option<String>,
    /// The value of a secret; only the command gets it.
    #[serde(skip)]
    pub secret: Option<Secret>,
    pub outcome: SettingOutcome,
    /// The source of the decision.
    pub source: Source,
    pub rule: Rule,
    /// The evidence for the decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<RuleEvidence>,
    /// Whether rdma-init already set this value when the container started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingOutcome {
    /// The plan puts it into the command's environment.
    Filled,
    /// The user set it, and rdma-init keeps it.
    User,
    /// The variable stays unset, because the library finds the right value itself.
    Left,
    /// The variable stays unset.
    Unset,
}

/// A value that is never shown or written.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Setting {
    /// Returns the same setting with a text about RCCL.
    pub fn of_rccl(self) -> Setting {
        Setting { rule: Rule::OfRccl(Box::new(self.rule)), ..self }
    }

    /// Makes a setting for a variable that goes into the command's environment.
    pub fn filled(variable: String, value: String, source: Source, rule: Rule) -> Setting {
        let (value, secret) = match is_secret(&variable) {
            true => (HIDDEN.to_owned(), Some(Secret(value))),
            false => (value, None),
        };
        let (value, outcome, evidence) = (Some(value), SettingOutcome::Filled, Vec::new());
        Setting { variable, value, secret, outcome, source, rule, evidence, at_start: false }
    }

    /// Makes a setting for a variable that rdma-init does not fill in.
    pub fn left(
        variable: String,
        value: Option<String>,
        outcome: SettingOutcome,
        source: Source,
        rule: Rule,
    ) -> Setting {
        let (secret, evidence, at_start) = (None, Vec::new(), false);
        Setting { variable, value, secret, outcome, source, rule, evidence, at_start }
    }

    /// Returns the value that the command gets, even if it is a secret.
    pub fn for_command(&self) -> Option<&str> {
        self.secret.as_ref().map(|Secret(value)| value.as_str()).or(self.value.as_deref())
    }
}

/// A value that the plan fills in unless the user decides on the variable.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub variable: String,
    /// `None` if the variable is left unset on purpose.
    pub value: Option<String>,
    pub source: Source,
    pub rule: Rule,
    pub evidence: Vec<RuleEvidence>,
}

impl Proposal {
    pub(crate) fn from_facts(variable: &str, value: impl Into<String>, rule: Rule) -> Proposal {
        Proposal {
            variable: variable.to_owned(),
            value: Some(value.into()),
            source: Source::Facts,
            rule,
            evidence: Vec::new(),
        }
    }

    pub(crate) fn from_profile(profile: &str, variable: &str, value: &str, rule: Rule) -> Proposal {
        Proposal {
            source: Source::Profile(profile.to_owned()),
            ..Proposal::from_facts(variable, value, rule)
        }
    }

    pub(crate) fn because(self, evidence: Vec<RuleEvidence>) -> Proposal {
        Proposal { evidence, ..self }
    }
}
