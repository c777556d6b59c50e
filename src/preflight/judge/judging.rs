//! What node 0 concludes from all reports that are not about pairs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;

use crate::compare::comparison::{self, Compared, Comparison};
use crate::config::TOKEN_VARIABLE;
use crate::preflight::judge::astray;
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::verdict::{self, Inputs, Verdict};
use crate::preflight::judge::words;
use crate::preflight::meet::zero::Heard;
use crate::preflight::who::addresses::odd_subnets;
use crate::text::{condensed_to, counted};

/// The most nodes that a warning names.
const NAMED: usize = 8;

/// What the user wants to know about the rails, and demands of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub least_gbps: Option<f32>,
    pub enforce_slow: bool,
    /// Whether all nodes move data at once after the pairs are tested.
    pub together: bool,
}

/// The evidence, and all that the verdict depends on.
pub struct Judged {
    pub evidence: Evidence,
    pub inputs: Inputs,
}

impl Judged {
    /// Returns the result for a job of one node.
    pub fn alone(evidence: Evidence, limits: Limits) -> Judged {
        let Limits { least_gbps, enforce_slow, .. } = limits;
        let at = Some(SystemTime::now());
        Judged { evidence, inputs: Inputs { least_gbps, enforce_slow, at, ..Inputs::default() } }
    }

    pub fn verdict(&self) -> Verdict<'_> {
        verdict::judge(&self.evidence, &self.inputs)
    }
}

/// Returns what the verdict depends on, in addition to the pairs.
pub fn collect_inputs(heard: &Heard, limits: Limits, took: Duration) -> Inputs {
    let mut transports: Vec<&str> =
        heard.nodes.iter().flatten().map(|known| known.transport.as_str()).collect();
    transports.sort_unstable();
    transports.dedup();
    let comparison = heard.compared.compare();
    let mut warnings = differences(&comparison);
    warnings.extend(odd_subnets(heard.evidence.members()).iter().map(|odd| subnets(&heard.evidence, odd)));
    warnings.extend(heard.left_out.iter().cloned());
    warnings.extend(astray::warning(&heard.evidence));
    warnings.extend(heard.refused.sentences(|why| heard.evidence.is_reported(why)));
    if heard.uncompared > 0 {
        warnings.push(format!(
            "the self-tests of {} are not compared with the others, because their differences are too large to store",
            counted(heard.uncompared, "node")
        ));
    }
    if !heard.is_guarded {
        warnings.push(format!(
            "no node has proven that it belongs to this job, because {TOKEN_VARIABLE} is not set: set it to one random text on all nodes"
        ));
    }
    Inputs {
        least_gbps: limits.least_gbps,
        enforce_slow: limits.enforce_slow,
        unfit: heard.unfit.clone(),
        warnings,
        seconds: took.as_secs_f64(),
        transport: transports.join(" and "),
        job: heard.job.clone(),
        at: Some(SystemTime::now()),
    }
}

/// Returns how nodes differ from the others, with a sentence for each difference.
fn differences(comparison: &Comparison) -> Vec<String> {
    let differ = comparison.properties.iter().filter(|property| !property.others.is_empty());
    let mut all: Vec<String> = differ.map(difference).collect();
    for failed in comparison.failed.iter().filter(|failed| failed.count < comparison.nodes) {
        let names = condensed_to(&failed.nodes, NAMED);
        all.push(format!("the check {} of the self-test fails on {names}, but not on the others", failed.id));
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
    let consequence = comparison::consequence(property.property);
    let follows = consequence.map(|follows| format!("; {follows}")).unwrap_or_default();
    format!("{what} differs: {}{follows}", all.join(", "))
}

/// Returns a sentence such as `on rail 3 (mlx5_3), the nodes are in several subnets, which need routes
/// between them: 10.0.3.0/24 (30 nodes), 10.0.4.0/24 (gpu-07)`.
fn subnets(evidence: &Evidence, (rail, subnets): &(usize, BTreeMap<IpNet, Vec<u32>>)) -> String {
    let most = subnets.values().map(Vec::len).max().unwrap_or_default();
    let shown = subnets.iter().take(NAMED).map(|(subnet, nodes)| match nodes.len() {
        count if count == most => format!("{subnet} ({})", counted(count, "node")),
        _ => {
            let names: Vec<String> = nodes.iter().map(|node| evidence.name(*node)).collect();
            format!("{subnet} ({})", condensed_to(&names, NAMED))
        }
    });
    let all: Vec<u32> = subnets.values().flatten().copied().collect();
    format!(
        "on {}, the nodes are in {}, which need routes between them: {}",
        words::rail_of(evidence, *rail, &all),
        counted(subnets.len(), "subnet"),
        shown.collect::<Vec<_>>().join(", ")
    )
}
