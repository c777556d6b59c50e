//! The verdict of node 0, and what each node is told of it. Pure.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::cross;
use super::culprit::{self, Fault, Place, What};
use super::evidence::{Came, Evidence, Gone, Try};
use super::names::host;
use super::outliers::{self, Figure, Slow, Who};
use super::words;
use crate::text::{condensed_to, counted, visible};

pub const SCHEMA: &str = "rdma-init/preflight/1";

/// Faults in the one sentence that has to name the culprit.
const NAMED: usize = 3;

/// What the verdict depends on besides the pairs.
#[derive(Debug, Default)]
pub struct Asked<'a> {
    /// The least bandwidth of a rail, in Gbit/s.
    pub least_gbps: Option<f32>,
    /// Whether what is slow is a reason to refuse.
    pub enforce_slow: bool,
    /// Nodes whose own self-test has failed, and why.
    pub unfit: &'a [(u32, String)],
    /// In what nodes differ from the others, and other warnings, as sentences.
    pub warnings: &'a [String],
    /// In seconds, from the first node to the verdict.
    pub seconds: f64,
    /// `verbs` or `sockets`.
    pub transport: &'a str,
}

pub struct Verdict<'a> {
    pub evidence: &'a Evidence,
    pub passed: bool,
    pub faults: Vec<Fault>,
    pub slow: Vec<Slow>,
    /// Whether what is slow was a reason to refuse.
    pub is_slow_refused: bool,
    pub warnings: &'a [String],
    pub seconds: f64,
    pub transport: &'a str,
}

/// Judges everything that was tried.
pub fn judge<'a>(evidence: &'a Evidence, asked: &Asked<'a>) -> Verdict<'a> {
    let faults = culprit::faults(evidence, asked.unfit);
    let slow = outliers::find(evidence, asked.least_gbps);
    // Other rails may be faster by design. Nobody can leave a rail out as a node.
    let counts = |slow: &Slow| slow.is_wanted || !matches!(slow.who, Who::Rail { .. });
    let is_slow_refused = asked.enforce_slow && slow.iter().any(counts);
    Verdict {
        evidence,
        passed: faults.iter().all(Fault::is_warning) && !is_slow_refused,
        faults,
        slow,
        is_slow_refused,
        warnings: asked.warnings,
        seconds: asked.seconds,
        transport: asked.transport,
    }
}

impl Verdict<'_> {
    /// Why no command may start, with the culprits' names; `None` where it may.
    pub fn reason(&self) -> Option<String> {
        if self.passed {
            return None;
        }
        let faults = self.faults.iter().filter(|fault| !fault.is_warning());
        let faults = faults.map(|fault| words::fault(self.evidence, fault));
        let slow = self.slow.iter().filter(|_| self.is_slow_refused);
        let slow = slow.map(|slow| words::slow(self.evidence, slow));
        let mut all: Vec<String> = faults.chain(slow).collect();
        let more = all.len().saturating_sub(NAMED);
        all.truncate(NAMED);
        if more > 0 {
            all.push(format!("and {more} more"));
        }
        Some(all.join("; "))
    }

    /// What a node says: one line.
    pub fn line_of(&self, node: u32) -> String {
        let own = if self.accused().contains(&node) { ", and this node is at fault" } else { "" };
        match self.reason() {
            Some(reason) => format!("preflight failed{own}: {reason}"),
            None => format!("preflight passed: {}", self.summary()),
        }
    }

    /// `256 nodes, 8 rails, 1024 pairs in 14 s; 2 warnings, which node 0 tells`
    fn summary(&self) -> String {
        let evidence = self.evidence;
        let nodes = counted(evidence.members().len(), "node");
        if evidence.members().len() < 2 {
            return format!("{nodes}, so there is nothing between nodes to prove");
        }
        let rails = counted(evidence.rails(), "rail");
        let pairs = counted(evidence.tries().len(), "pair");
        let time = words::seconds(self.seconds);
        let warnings = match self.warning_count() {
            0 => String::new(),
            some => format!("; {}, which node 0 tells", counted(some, "warning")),
        };
        format!("{nodes}, {rails}, {pairs} in {time}{warnings}")
    }

    pub fn warning_count(&self) -> usize {
        let unsteady = self.faults.iter().filter(|fault| fault.is_warning()).count();
        let slow = if self.is_slow_refused { 0 } else { self.slow.len() };
        unsteady + slow + self.warnings.len()
    }

    /// The nodes at fault, in their order.
    pub fn accused(&self) -> Vec<u32> {
        let slow = self.slow.iter().filter(|_| self.is_slow_refused).filter_map(|slow| match slow.who {
            Who::Node { node, .. } => Some(node),
            Who::Link { .. } | Who::Rail { .. } => None,
        });
        let mut all: Vec<u32> = self.faults.iter().flat_map(Fault::accused).chain(slow).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The names of the nodes at fault, for a scheduler to start again without them. One that has no name
    /// cannot be left out, and neither can one whose name is none of a host: a node tells its name
    /// itself, and `gpu-[0-99]` would leave out others.
    pub fn exclude(&self) -> Vec<String> {
        let names = self.accused().into_iter().filter_map(|node| self.of_scheduler(node));
        names.collect::<indexmap::IndexSet<&str>>().into_iter().map(str::to_owned).collect()
    }

    /// What [`exclude`](Verdict::exclude) does not tell a scheduler that it would have to know, as a
    /// sentence.
    pub fn gap(&self) -> Option<String> {
        let nameless = self.accused().into_iter().filter(|node| self.of_scheduler(*node).is_none());
        let names: Vec<String> = nameless.map(|node| self.evidence.name(node)).collect();
        let mut of_nobody =
            self.faults.iter().filter(|fault| !fault.is_warning() && fault.accused().is_empty());
        let what = match names.len() {
            0 if self.passed => return None,
            0 if self.accused().is_empty() => {
                return Some(
                    "the list of nodes at fault is empty, because no node is at fault alone".to_owned(),
                );
            }
            0 => {
                let fault = words::fault(self.evidence, of_nobody.next()?);
                return Some(format!("without the nodes in the list, a fault is left: {fault}"));
            }
            1 => "is at fault, and has no name that a scheduler can use",
            _ => "are at fault, and have no names that a scheduler can use",
        };
        Some(format!("the list of nodes at fault is not whole: {} {what}", condensed_to(&names, NAMED)))
    }

    /// The name by which a scheduler knows a node.
    fn of_scheduler(&self, node: u32) -> Option<&str> {
        let member = self.evidence.members().get(node as usize)?;
        // A container may have a name of its own, which the scheduler does not know.
        let name = member.of_launcher.as_deref().unwrap_or_else(|| host(&member.name));
        is_host(name).then_some(name)
    }
}

fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    name.bytes().all(is_plain) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// The document `rdma-init/preflight/1`.
impl Serialize for Verdict<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let evidence = self.evidence;
        let again =
            evidence.tries().iter().map(|one| one.round).filter(|round| evidence.is_again(*round)).max();
        let again = again.map_or(0, |last| last + 1 - evidence.rounds());
        let mut document = to.serialize_struct("Verdict", 17)?;
        document.serialize_field("schema", SCHEMA)?;
        document.serialize_field("passed", &self.passed)?;
        document.serialize_field("reason", &self.reason())?;
        document.serialize_field("nodes", &evidence.members().len())?;
        document.serialize_field("rails", &evidence.rails())?;
        document.serialize_field("transport", self.transport)?;
        document.serialize_field("rounds", &evidence.rounds())?;
        document.serialize_field("second_tries", &again)?;
        document.serialize_field("seconds", &rounded(self.seconds, 1000.0))?;
        let told = |fault: &Fault| Told::new(evidence, fault);
        document.serialize_field("faults", &self.faults.iter().map(told).collect::<Vec<_>>())?;
        let slow: Vec<ToldSlow> = self.slow.iter().map(|slow| ToldSlow::new(evidence, slow)).collect();
        document.serialize_field("slow", &slow)?;
        document.serialize_field("warnings", self.warnings)?;
        document.serialize_field("exclude", &self.exclude())?;
        let probes = cross::probes(evidence);
        document.serialize_field("cross_rail", &cross::reach(&probes))?;
        document.serialize_field("cross_rail_tries", &probes)?;
        document.serialize_field("members", &Each(|| members(evidence)))?;
        document.serialize_field("pairs", &Each(|| evidence.tries().iter().map(pair)))?;
        document.end()
    }
}

#[derive(Serialize)]
struct Told {
    kind: &'static str,
    message: String,
    fix: &'static str,
    /// The indices.
    nodes: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rails: Option<Vec<usize>>,
    why: String,
}

impl Told {
    fn new(evidence: &Evidence, fault: &Fault) -> Told {
        let (kind, nodes) = match &fault.what {
            What::Gone { node, how } => (
                match how {
                    Gone::NeverCame(_) => "never-came",
                    Gone::Left(_) => "left",
                    Gone::Silent(_) => "silent",
                },
                vec![*node],
            ),
            What::Unfit { node } => ("unfit", vec![*node]),
            What::Uneven { .. } => ("uneven", fault.accused()),
            What::Node { node, .. } => ("node", vec![*node]),
            What::Link { nodes } => ("link", nodes.to_vec()),
            What::Cut { nodes, .. } => ("cut", nodes.clone()),
            What::Apart { parts, .. } => ("apart", parts.concat()),
            What::Unsteady { nodes } => ("unsteady", nodes.to_vec()),
        };
        let rails = match &fault.place {
            Place::Rails(rails) => Some(rails.clone()),
            Place::Whole | Place::Meeting => None,
        };
        let message = words::fault(evidence, fault);
        Told { kind, message, fix: words::fix(fault), nodes, rails, why: visible(&fault.why) }
    }
}

#[derive(Serialize)]
struct ToldSlow {
    kind: &'static str,
    figure: &'static str,
    message: String,
    nodes: Vec<u32>,
    rail: usize,
    value: f64,
    usual: f64,
    wanted: bool,
}

impl ToldSlow {
    fn new(evidence: &Evidence, slow: &Slow) -> ToldSlow {
        let (kind, nodes, rail) = match slow.who {
            Who::Node { node, rail } => ("node", vec![node], rail),
            Who::Link { nodes, rail } => ("link", nodes.to_vec(), rail),
            Who::Rail { rail } => ("rail", Vec::new(), rail),
        };
        ToldSlow {
            kind,
            figure: match slow.figure {
                Figure::Bandwidth => "gbps",
                Figure::Latency => "latency_us",
            },
            message: words::slow(evidence, slow),
            nodes,
            rail,
            value: rounded(slow.value.into(), 100.0),
            usual: rounded(slow.usual.into(), 100.0),
            wanted: slow.is_wanted,
        }
    }
}

#[derive(Serialize)]
struct Member<'a> {
    node: usize,
    name: &'a str,
    rails: &'a [String],
}

fn members(evidence: &Evidence) -> impl Iterator<Item = Member<'_>> {
    evidence.members().iter().enumerate().map(|(node, member)| Member {
        node,
        name: &member.name,
        rails: &member.rails,
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

/// The figures of the lower node first.
#[derive(Serialize)]
struct RailOfPair<'a> {
    rail: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<[Option<f64>; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

fn pair(one: &Try) -> Pair<'_> {
    let error = match one.meeting() {
        Some(Came::Ill(_, why)) => Some(why),
        _ => None,
    };
    let rails = (0..one.rails()).filter_map(|rail| {
        let came = one.rail(rail)?;
        let measured = one.measured(rail);
        let gbps = |end| one.said_of(end, rail).and_then(Result::ok).map(|of| rounded(of.gbps.into(), 100.0));
        Some(RailOfPair {
            rail,
            latency_us: measured.map(|of| rounded(of.latency_us.into(), 100.0)),
            gbps: measured.map(|_| [gbps(0), gbps(1)]),
            error: match came {
                Came::Ill(_, why) => Some(why),
                Came::Well => None,
            },
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

/// A list that is written one by one, and is never in memory as a whole.
struct Each<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

#[cfg(test)]
mod tests;
