//! The verdict of node 0, and what it sends to each node. Pure.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::time::SystemTime;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::preflight::judge::bisection::{self, Bisection};
use crate::preflight::judge::cross;
use crate::preflight::judge::culprit::{self, Fault, Place, What};
use crate::preflight::judge::evidence::{Evidence, Gone, Try, TryOutcome};
use crate::preflight::judge::outliers::{self, Basis, Figure, Slow, Who};
use crate::preflight::judge::words;
use crate::preflight::prove::pair::Sent;
use crate::preflight::who::scheduler::Name;
use crate::text::{condensed_to, counted, name_program, visible};

pub const SCHEMA: &str = "rdma-init/preflight/1";

/// How many faults the one-line reason names.
const NAMED: usize = 3;

/// What the verdict depends on, in addition to the pairs.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The least bandwidth of a rail, in Gbit/s.
    pub least_gbps: Option<f32>,
    /// Whether the job must not start if something is slow.
    pub enforce_slow: bool,
    /// Nodes that failed their own self-test, and why.
    pub unfit: Vec<(u32, String)>,
    /// How nodes differ from the others, and other warnings, as sentences.
    pub warnings: Vec<String>,
    /// In seconds, from the first node to the verdict.
    pub seconds: f64,
    /// `verbs` or `sockets`.
    pub transport: String,
    /// The job's ID from the launcher, and when the job was judged.
    pub job: Option<String>,
    pub at: Option<SystemTime>,
}

pub struct Verdict<'a> {
    pub evidence: &'a Evidence,
    pub inputs: Inputs,
    pub passed: bool,
    pub faults: Vec<Fault>,
    pub slow: Vec<Slow>,
    /// Whether the job must not start because something is slow.
    pub is_slow_refused: bool,
    /// Why no command may start, with the names of what is faulty; `None` if commands may start.
    reason: Option<String>,
    /// What it says if it has passed: the same on all nodes, which may be thousands.
    summary: OnceCell<String>,
    /// The faulty nodes, in order.
    accused: Vec<u32>,
}

/// Judges everything that was tested.
pub fn judge<'a>(evidence: &'a Evidence, inputs: &Inputs) -> Verdict<'a> {
    let faults = culprit::faults(evidence, &inputs.unfit);
    let mut slow = outliers::find(evidence, inputs.least_gbps);
    slow.retain(|slow| match slow.who {
        Who::Node { node, rail } => !evidence.wrong_addresses().explain(&[node], Some(rail)),
        Who::Link { nodes, rail } => !evidence.wrong_addresses().explain(&nodes, Some(rail)),
        Who::Group { .. } | Who::Rail { .. } => true,
    });
    // Other rails may be faster by design.
    let counts = |slow: &Slow| slow.basis != Basis::Others || !matches!(slow.who, Who::Rail { .. });
    let is_slow_refused = inputs.enforce_slow && slow.iter().any(counts);
    let mut verdict = Verdict {
        evidence,
        inputs: inputs.clone(),
        passed: faults.iter().all(Fault::is_warning) && !is_slow_refused,
        faults,
        slow,
        is_slow_refused,
        reason: None,
        summary: OnceCell::new(),
        accused: Vec::new(),
    };
    // These are computed once, and not for each of many nodes.
    verdict.reason = verdict.worded();
    verdict.accused = verdict.at_fault();
    verdict
}

impl Verdict<'_> {
    /// Returns why no command may start, with the names of what is faulty; `None` if commands may
    /// start.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    fn worded(&self) -> Option<String> {
        if self.passed {
            return None;
        }
        let faults = || self.faults.iter().filter(|fault| !fault.is_warning());
        let slow = || self.slow.iter().filter(|_| self.is_slow_refused);
        let more = (faults().count() + slow().count()).saturating_sub(NAMED);
        let faults = faults().map(|fault| words::fault(self.evidence, fault));
        let slow = slow().map(|slow| words::slow(self.evidence, slow));
        let mut all: Vec<String> = faults.chain(slow).take(NAMED).collect();
        if more > 0 {
            all.push(format!("and {more} more"));
        }
        Some(all.join("; "))
    }

    /// Returns the line that a node logs.
    pub fn line_of(&self, node: u32) -> String {
        let own = if self.accused.binary_search(&node).is_ok() { ", and this node is faulty" } else { "" };
        match self.reason() {
            Some(reason) => format!("preflight failed{own}: {reason}{}", self.untried()),
            None => format!("preflight passed: {}", self.summary.get_or_init(|| self.summary())),
        }
    }

    /// Returns ` (20 of 55 pairs were tried)`; empty if all were.
    fn untried(&self) -> String {
        let is_told = |fault: &Fault| matches!(fault.what, What::Unfinished { .. });
        match self.evidence.tried() == self.evidence.scheduled() || self.faults.iter().any(is_told) {
            true => String::new(),
            false => format!(" ({})", words::tried(self.evidence)),
        }
    }

    /// Returns a summary: `256 nodes, 8 rails, 1024 pairs in 14 s; 2 warnings, which node 0 reports`.
    fn summary(&self) -> String {
        let evidence = self.evidence;
        let nodes = counted(evidence.members().len(), "node");
        if evidence.members().len() < 2 {
            return format!("{nodes}, so there is no path between nodes to test");
        }
        let rails = words::rails(evidence, &self.inputs.transport);
        let pairs = counted(evidence.tries().len(), "pair");
        let time = words::seconds(self.inputs.seconds);
        let warnings = match self.warning_count() {
            0 => String::new(),
            some => format!("; {}, which node 0 reports", counted(some, "warning")),
        };
        format!("{nodes}, {rails}, {pairs} in {time}{warnings}")
    }

    /// Returns the time of the verdict: `2026-11-23T08:05:00Z`.
    pub fn time(&self) -> Option<String> {
        self.inputs.at.map(|at| humantime::format_rfc3339_seconds(at).to_string())
    }

    /// Returns the faults as the document contains them.
    pub fn described_faults(&self) -> impl Iterator<Item = FaultDocument> {
        self.faults.iter().map(|fault| FaultDocument::new(self.evidence, fault))
    }

    pub fn warning_count(&self) -> usize {
        let unsteady = self.faults.iter().filter(|fault| fault.is_warning()).count();
        let slow = if self.is_slow_refused { 0 } else { self.slow.len() };
        unsteady + slow + self.inputs.warnings.len()
    }

    /// Returns the faulty nodes, in order.
    pub fn accused(&self) -> &[u32] {
        &self.accused
    }

    /// Returns whether half of the job or more is faulty. Without these nodes it would be a different
    /// job, and the fault is hardly theirs alone.
    fn are_too_many(&self) -> bool {
        self.accused.len() * 2 >= self.evidence.members().len()
    }

    fn at_fault(&self) -> Vec<u32> {
        let slow = self.slow.iter().filter(|_| self.is_slow_refused).filter_map(|slow| match slow.who {
            Who::Node { node, .. } if slow.is_certain => Some(node),
            Who::Node { .. } | Who::Link { .. } | Who::Group { .. } | Who::Rail { .. } => None,
        });
        let mut all: Vec<u32> = self.faults.iter().flat_map(Fault::accused).chain(slow).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the names of the faulty nodes, so that a scheduler can start the job again without them.
    /// Only names that the launcher has given node 0 are in the list. A node without such a name cannot
    /// be excluded. Neither can a node with a name that is not a host name: `gpu-[0-99]` would exclude
    /// other nodes. The list never contains half of the job or more.
    pub fn exclude(&self) -> Vec<String> {
        if self.are_too_many() {
            return Vec::new();
        }
        let names = self.accused.iter().filter_map(|node| self.of_scheduler(*node));
        names.collect::<indexmap::IndexSet<&str>>().into_iter().map(str::to_owned).collect()
    }

    /// Returns a sentence about what a scheduler would need to know and [`exclude`](Verdict::exclude)
    /// does not contain.
    pub fn gap(&self) -> Option<String> {
        if !self.accused.is_empty() && self.are_too_many() {
            return Some(format!(
                "the list of faulty nodes is empty, because it would contain half of the job or more: {} of {}",
                self.accused.len(),
                counted(self.evidence.members().len(), "node")
            ));
        }
        let nameless = self.accused.iter().filter(|node| self.of_scheduler(**node).is_none());
        let names: Vec<String> = nameless.map(|node| self.evidence.name(*node)).collect();
        let mut of_no_node =
            self.faults.iter().filter(|fault| !fault.is_warning() && fault.accused().is_empty());
        let what = match names.len() {
            0 if self.passed => return None,
            0 if self.accused.is_empty() => {
                return Some(
                    "the list of faulty nodes is empty, because no single node is faulty".to_owned(),
                );
            }
            0 => {
                let fault = words::fault(self.evidence, of_no_node.next()?);
                return Some(format!("a fault remains without the nodes in the list: {fault}"));
            }
            1 => "is faulty but has no name that a scheduler can use",
            _ => "are faulty but have no names that a scheduler can use",
        };
        let first = *self.accused.iter().find(|node| self.of_scheduler(**node).is_none())?;
        let names = condensed_to(&names, NAMED);
        let why = words::unlisted(self.evidence, first);
        Some(format!("the list of faulty nodes is incomplete: {names} {what}: {why}"))
    }

    /// Returns the name by which a scheduler knows a node. A name that only the node itself claims is
    /// just shown to people.
    fn of_scheduler(&self, node: u32) -> Option<&str> {
        match &self.evidence.members().get(node as usize)?.of_launcher {
            _ if self.evidence.contested().contains_key(&node) => None,
            Name::Launcher(name) if is_host(name) => Some(name),
            Name::Launcher(_) | Name::Unknown | Name::Differs(_) | Name::Shared(_) => None,
        }
    }
}

fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    name.bytes().all(is_plain) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Writes the document `rdma-init/preflight/1`.
impl Serialize for Verdict<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let evidence = self.evidence;
        let again =
            evidence.tries().iter().map(|one| one.round).filter(|round| evidence.is_again(*round)).max();
        let again = again.map_or(0, |last| last + 1 - evidence.rounds());
        let mut document = to.serialize_struct("Verdict", 20)?;
        document.serialize_field("schema", SCHEMA)?;
        document.serialize_field("passed", &self.passed)?;
        document.serialize_field("reason", &self.reason())?;
        document.serialize_field("job", &self.inputs.job)?;
        document.serialize_field("time", &self.time())?;
        document.serialize_field("nodes", &evidence.members().len())?;
        document.serialize_field("rails", &evidence.rails())?;
        document.serialize_field("transport", &self.inputs.transport)?;
        document.serialize_field("rounds", &evidence.rounds())?;
        document.serialize_field("second_tries", &again)?;
        document.serialize_field("pairs_scheduled", &evidence.scheduled())?;
        document.serialize_field("pairs_tried", &evidence.tried())?;
        document.serialize_field("seconds", &rounded(self.inputs.seconds, 1000.0))?;
        document.serialize_field("faults", &Each(|| self.described_faults()))?;
        let slow = || self.slow.iter().map(|slow| SlowDocument::new(evidence, slow));
        document.serialize_field("slow", &Each(slow))?;
        document.serialize_field("warnings", &self.inputs.warnings)?;
        document.serialize_field("exclude", &self.exclude())?;
        let probes = cross::probes(evidence);
        document.serialize_field("cross_rail", &cross::reach(&probes))?;
        document.serialize_field("cross_rail_tries", &probes)?;
        document.serialize_field("bisection", &bisection::sum(evidence).map(rounded_bisection))?;
        document.serialize_field("members", &Each(|| members(evidence)))?;
        document.serialize_field("pairs", &Each(|| evidence.tries().iter().map(pair)))?;
        document.end()
    }
}

/// A fault, as the document contains it.
#[derive(Serialize)]
pub struct FaultDocument {
    pub kind: &'static str,
    pub message: String,
    pub fix: Cow<'static, str>,
    /// The indices of the nodes.
    pub nodes: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rails: Option<Vec<usize>>,
    why: String,
}

impl FaultDocument {
    fn new(evidence: &Evidence, fault: &Fault) -> FaultDocument {
        let (kind, nodes) = match &fault.what {
            What::Gone { node, how } => (
                match how {
                    Gone::NeverJoined(_) => "never-came",
                    Gone::Left(_) => "left",
                    Gone::Silent(_) => "silent",
                },
                vec![*node],
            ),
            What::Owes { node, .. } => ("owes", vec![*node]),
            What::Unfinished { .. } => ("unfinished", Vec::new()),
            What::Unreached { .. } => ("unreached", Vec::new()),
            What::Contested { node, .. } => ("contested-index", vec![*node]),
            What::Unfit { node } => ("unfit", vec![*node]),
            What::Mixed { sockets, .. } => ("mixed-transports", sockets.clone()),
            What::Uneven { .. } => ("uneven", fault.accused()),
            What::Duplicate(shared) => ("duplicate-address", shared.nodes.clone()),
            What::Loopback(own) => ("loopback-address", own.nodes.clone()),
            What::Node { node, .. } => ("node", vec![*node]),
            What::Flapping { node, .. } => ("flapping", vec![*node]),
            What::Scattered { pairs, .. } => {
                let nodes: BTreeSet<u32> = pairs.iter().flatten().copied().collect();
                ("scattered", nodes.into_iter().collect())
            }
            What::Link { nodes } => ("link", nodes.to_vec()),
            What::Cut { nodes, .. } => ("cut", nodes.clone()),
            What::Partial { nodes, .. } => ("partial", nodes.clone()),
            What::Apart { parts, .. } => ("apart", parts.concat()),
            What::Unsteady { nodes } => ("unsteady", nodes.to_vec()),
        };
        let rails = match &fault.place {
            Place::Rails(rails) => Some(rails.clone()),
            Place::Whole | Place::Meeting => None,
        };
        let message = words::fault(evidence, fault);
        FaultDocument {
            kind,
            message,
            fix: name_program(words::fix(evidence, fault)),
            nodes,
            rails,
            why: visible(&fault.why),
        }
    }
}

#[derive(Serialize)]
struct SlowDocument {
    kind: &'static str,
    figure: Figure,
    message: String,
    nodes: Vec<u32>,
    rail: usize,
    value: f64,
    first: Option<f64>,
    again: Option<f64>,
    usual: f64,
    basis: Basis,
    wanted: bool,
}

impl SlowDocument {
    fn new(evidence: &Evidence, slow: &Slow) -> SlowDocument {
        let (kind, nodes, rail) = match slow.who {
            Who::Node { node, rail } => ("node", vec![node], rail),
            Who::Link { nodes, rail } => ("link", nodes.to_vec(), rail),
            Who::Group { group, rail } => ("group", group.members().collect(), rail),
            Who::Rail { rail } => ("rail", Vec::new(), rail),
        };
        let number = |value: f32| rounded(value.into(), 1000.0);
        SlowDocument {
            kind,
            figure: slow.figure,
            message: words::slow(evidence, slow),
            nodes,
            rail,
            value: number(slow.value),
            first: slow.first.map(number),
            again: slow.again.map(number),
            usual: number(slow.usual),
            basis: slow.basis,
            wanted: slow.basis == Basis::Wanted,
        }
    }
}

/// Returns the figures rounded, as the document contains them.
fn rounded_bisection(mut one: Bisection) -> Bisection {
    one.gbps = rounded(one.gbps, 100.0);
    one.least.gbps = rounded(one.least.gbps, 100.0);
    one.share = one.share.map(|share| rounded(share, 1000.0));
    one
}

#[derive(Serialize)]
struct Member<'a> {
    node: usize,
    name: &'a str,
    rails: &'a [String],
    addresses: Vec<Option<String>>,
}

fn members(evidence: &Evidence) -> impl Iterator<Item = Member<'_>> {
    evidence.members().iter().enumerate().map(|(node, member)| Member {
        node,
        name: &member.name,
        rails: &member.rails,
        addresses: member.addresses.shown().collect(),
    })
}

#[derive(Serialize)]
struct Pair<'a> {
    round: u16,
    nodes: [u32; 2],
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    rails: Vec<RailOfPair<'a>>,
}

/// The figures, with the lower node's first.
#[derive(Serialize)]
struct RailOfPair<'a> {
    rail: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<[Option<f64>; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// The nodes that their peer could not connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_reached: Vec<u32>,
    /// What each end sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<[Option<Sent>; 2]>,
}

fn pair(one: &Try) -> Pair<'_> {
    let error = match one.meeting() {
        Some(TryOutcome::Failed(_, why)) => Some(why),
        _ => None,
    };
    let rails = (0..one.rails()).filter_map(|rail| {
        let outcome = one.rail(rail)?;
        let measured = one.measured(rail);
        let gbps = |end| one.said_of(end, rail).and_then(Result::ok).map(|of| rounded(of.gbps.into(), 100.0));
        Some(RailOfPair {
            rail,
            latency_us: measured.map(|of| rounded(of.latency_us.into(), 100.0)),
            gbps: measured.map(|_| [gbps(0), gbps(1)]),
            error: match outcome {
                TryOutcome::Failed(_, why) => Some(why),
                TryOutcome::Passed => None,
            },
            not_reached: one.not_reached(rail),
            sent: Some([0, 1].map(|end| one.sent(end, rail))).filter(|sent| sent.iter().any(Option::is_some)),
        })
    });
    Pair {
        round: one.round,
        nodes: one.nodes,
        seconds: rounded(one.seconds.into(), 1000.0),
        error,
        rails: rails.collect(),
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// A list that is written item by item, so that it is never in memory as a whole.
struct Each<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

#[cfg(test)]
mod tests;
