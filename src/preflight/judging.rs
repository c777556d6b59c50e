//! What node 0 makes of all that it has heard, besides the pairs.

use std::time::Duration;

use super::evidence::Evidence;
use super::verdict::{self, Asked, Verdict};
use super::zero::Heard;
use crate::compare::comparison::{Compared, Comparison};
use crate::config::TOKEN_VARIABLE;
use crate::text::{condensed_to, counted};

/// The most nodes that a warning names.
const NAMED: usize = 8;

/// What the user demands of the rails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub least_gbps: Option<f32>,
    pub enforce_slow: bool,
}

/// The evidence, and all that the verdict depends on.
pub struct Judged {
    pub evidence: Evidence,
    pub judging: Judging,
}

impl Judged {
    /// For a job of one node.
    pub fn alone(evidence: Evidence, limits: Limits) -> Judged {
        let judging = Judging {
            limits,
            unfit: Vec::new(),
            warnings: Vec::new(),
            seconds: 0.0,
            transport: String::new(),
        };
        Judged { evidence, judging }
    }

    pub fn verdict(&self) -> Verdict<'_> {
        verdict::judge(&self.evidence, &self.judging.asked())
    }
}

/// What a verdict depends on besides the pairs.
#[derive(Debug)]
pub struct Judging {
    limits: Limits,
    unfit: Vec<(u32, String)>,
    warnings: Vec<String>,
    seconds: f64,
    transport: String,
}

impl Judging {
    pub fn of(heard: &Heard, limits: Limits, took: Duration) -> Judging {
        let mut transports: Vec<&str> =
            heard.nodes.iter().flatten().map(|known| known.transport.as_str()).collect();
        transports.sort_unstable();
        transports.dedup();
        let comparison = heard.compared.compare();
        let mut warnings = differences(&comparison);
        warnings.extend(heard.refused.iter().map(|why| format!("sent away: {why}")));
        if heard.uncompared > 0 {
            warnings.push(format!(
                "the self-tests of {} are not compared with the others: what differs is too much to keep",
                counted(heard.uncompared, "node")
            ));
        }
        if !heard.is_guarded {
            warnings.push(format!(
                "nobody has proven to be of this job, as {TOKEN_VARIABLE} is not set: set it to one random text on all nodes"
            ));
        }
        Judging {
            limits,
            unfit: heard.unfit.clone(),
            warnings,
            seconds: took.as_secs_f64(),
            transport: transports.join(" and "),
        }
    }

    pub fn asked(&self) -> Asked<'_> {
        Asked {
            least_gbps: self.limits.least_gbps,
            enforce_slow: self.limits.enforce_slow,
            unfit: &self.unfit,
            warnings: &self.warnings,
            seconds: self.seconds,
            transport: &self.transport,
        }
    }
}

/// In what nodes differ from the others, each in a sentence.
fn differences(comparison: &Comparison) -> Vec<String> {
    let differ = comparison.properties.iter().filter(|property| !property.others.is_empty());
    let mut all: Vec<String> = differ.map(difference).collect();
    for failed in comparison.failed.iter().filter(|failed| failed.count < comparison.nodes) {
        let names = condensed_to(&failed.nodes, NAMED);
        all.push(format!("the check {} of the self-test fails on {names}, and not on the others", failed.id));
    }
    all
}

fn difference(property: &Compared) -> String {
    let what = match property.variable {
        Some(variable) => format!("the value of {variable}"),
        None => property.property.to_owned(),
    };
    let shown = |value: Option<&str>| value.unwrap_or("none").to_owned();
    let majority = property
        .majority
        .as_ref()
        .map(|most| format!("{} on {}", shown(most.value), counted(most.count, "node")));
    let others = property
        .others
        .iter()
        .map(|other| format!("{} on {}", shown(other.value), condensed_to(&other.nodes, NAMED)));
    let all: Vec<String> = majority.into_iter().chain(others).collect();
    format!("{what} differs: {}", all.join(", "))
}
