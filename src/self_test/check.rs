//! A check, and its outcome.

use serde::{Deserialize, Serialize};

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The stable ID, for `--skip` and `--only`: `memlock`, `loopback`.
    pub id: String,
    pub title: String,
    pub outcome: Outcome,
    /// The device, port or interface that the check is about, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was found, in short lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What is wrong, if something is, or why the check was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// In microseconds.
    pub took_us: u64,
    /// Whether a finding of the plan already reports the problem, so that a report of both need not
    /// repeat it.
    #[serde(skip)]
    pub is_in_plan: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Passed,
    /// The check does not apply here, or the user skipped it.
    Skipped,
    /// The job may be slow, or fail later.
    Warning,
    /// The job will not use the fabric, or fail.
    Failed,
}
