//! Node 0: all nodes connect to it, get their pairs, report their results, and get the verdict. One
//! process receives from all of them at once, and never blocks on any of them.

mod hearing;
mod ledger;
mod meeting;
mod proving;
mod refusals;
mod secrets;
mod telling;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ledger::Ledger;
use refusals::Refusals;
use secrets::Secrets;

use crate::compare::comparison::ComparedNodes;
use crate::preflight::judge::evidence::{Evidence, Gone, Member};
use crate::preflight::meet::message::{LONGEST, MEETING, ToNode, ToZero};
use crate::preflight::meet::node::{ALIVE, HUNG};
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::schedule::Extent;
use crate::preflight::meet::times::Times;
use crate::text::{shortened, visible};
use crate::wire::Protocol;
use crate::wire::hub::{Hub, Peer};
use crate::wire::listen::Listener;
use crate::wire::stranger::Strangers;

/// What node 0 needs to coordinate the job.
pub struct Terms<'a> {
    pub nodes: u32,
    pub job: Option<String>,
    /// The address of node 0, as the other nodes were told: `10.0.0.1:18516`.
    pub meet: String,
    /// Why node 0 cannot resolve this name, as a clause, if it cannot.
    pub unresolved: Option<&'a str>,
    /// How long node 0 waits for nodes, and until when.
    pub wait: Duration,
    pub until: Instant,
    /// As for [`Node`](crate::preflight::meet::node::Node).
    pub alone_after: Option<Duration>,
    pub token: &'a str,
    pub extent: Extent,
    /// How long the parts of the preflight may take.
    pub times: Times,
    /// The names of all nodes, if the launcher provides them.
    pub names: &'a [String],
    /// As for [`Part`](crate::preflight::who::part::Part).
    pub are_names_certain: bool,
    /// What the proof does not test as the job will use it, as sentences.
    pub left_out: &'a [String],
    pub say: &'a dyn Fn(&str),
    /// Shows progress on a terminal. Without one, progress is logged.
    pub show: Option<&'a dyn Fn(&Progress)>,
}

/// Everything that was reported, for the verdict.
pub struct Heard {
    /// By index; `None` for a node that never joined.
    pub nodes: Vec<Option<Member>>,
    /// The pairs, and the nodes that have disconnected.
    pub evidence: Evidence,
    pub compared: ComparedNodes,
    /// Nodes whose self-tests failed on their own devices, and why.
    pub unfit: Vec<(u32, String)>,
    /// The job's ID from the launcher, safe to show.
    pub job: Option<String>,
    /// The rejected connections.
    pub refused: Refusals,
    /// The indices that two nodes joined with; see [`Evidence::contest`].
    pub contested: BTreeMap<u32, [String; 2]>,
    /// What the proof did not test as the job will use it, as sentences.
    pub left_out: Vec<String>,
    /// How many nodes were not compared with the others, because there was too much to keep.
    pub uncompared: usize,
    /// Whether the nodes have proven that they have the token.
    pub is_guarded: bool,
    pub proving: Duration,
}

/// How far the preflight has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobPhase {
    /// Nodes join, and those that left may join again.
    Meeting,
    /// The nodes that joined try their pairs; no other node may join.
    Proving,
    /// The nodes get the verdict.
    Telling,
}

/// Where the other nodes reach a node that has joined.
struct JoinedNode {
    address: Option<IpAddr>,
    port: u16,
}

impl Peer for JoinedNode {
    const PROTOCOL: &'static Protocol = &MEETING;
    const GUESTS: usize = 512;
    /// Node 0 has nothing else to do, and thousands of nodes may come at once.
    const PAUSE: Duration = Duration::from_millis(1);
    const LONGEST: usize = LONGEST;
    const SILENCE: Option<Duration> = Some(HUNG);
    type Message = ToZero;
    type Reply = ToNode;
}

/// The rounds that are in progress.
#[derive(Default)]
struct Series {
    first: u16,
    rounds: usize,
    /// How many pairs were assigned.
    pairs: usize,
}

pub struct Zero<'a> {
    terms: &'a Terms<'a>,
    hub: Hub<JoinedNode>,
    strangers: Strangers<'a>,
    /// What the members still owe.
    ledger: Ledger,
    /// How often a node of each index has joined.
    comings: BTreeMap<u32, usize>,
    secrets: Secrets,
    heard: Heard,
    /// The nodes that joined and left while node 0 was waiting for others, and why; they may rejoin.
    away: BTreeMap<u32, (Member, Gone)>,
    /// The phase of the job. Once the verdict is on its way, nodes may disconnect.
    phase: JobPhase,
    series: Series,
    /// When the retries must be over.
    again_until: Option<Instant>,
    /// When node 0 sends the next keep-alive.
    next_word: Instant,
    /// When node 0 reports progress again.
    next_line: Instant,
    /// The missing nodes, and when they were determined.
    missing: Option<(Instant, String)>,
}

const OWN_PROCESS_EXITED: &str = "the process that takes part for node 0 itself has exited";

impl<'a> Zero<'a> {
    /// # Errors
    /// The kernel gives no random number, or no descriptor.
    pub fn new(terms: &'a Terms<'a>, listener: Listener) -> anyhow::Result<Zero<'a>> {
        let secrets =
            Secrets::new().map_err(|error| anyhow!("cannot get a random number for the job: {error}"))?;
        let now = Instant::now();
        let nodes = usize::try_from(terms.nodes).unwrap_or_default();
        let hub = Hub::new(Ok(listener), terms.token.as_bytes(), terms.nodes);
        Ok(Zero {
            terms,
            hub: hub.map_err(|errno| anyhow!("cannot create an epoll instance: {errno}"))?,
            strangers: Strangers::new(terms.say, "preflight: node 0"),
            ledger: Ledger::default(),
            comings: BTreeMap::new(),
            secrets,
            heard: Heard {
                nodes: vec![None; nodes],
                evidence: Evidence::new(Vec::new(), 0),
                compared: ComparedNodes::default(),
                unfit: Vec::new(),
                job: terms.job.as_deref().map(|job| visible(&shortened(job))),
                refused: Refusals::default(),
                contested: BTreeMap::new(),
                left_out: terms.left_out.to_vec(),
                uncompared: 0,
                is_guarded: !terms.token.is_empty(),
                proving: Duration::ZERO,
            },
            away: BTreeMap::new(),
            phase: JobPhase::Meeting,
            series: Series::default(),
            again_until: None,
            next_word: now + ALIVE,
            next_line: now + telling::every(terms),
            missing: None,
        })
    }

    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    pub fn into_heard(self) -> Heard {
        self.heard
    }

    /// Returns whether all nodes have joined, before their rounds begin.
    fn is_complete(&self) -> bool {
        self.hub.members().len() >= self.heard.nodes.len()
    }

    /// Returns whether no other node has joined and this node, which has passed before, was started
    /// again.
    pub fn is_alone(&self) -> bool {
        let is_over = |after: Duration| Instant::now() + self.terms.wait >= self.terms.until + after;
        self.hub.members().len() < 2 && self.terms.alone_after.is_some_and(is_over)
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        let missing = self.heard.nodes.iter().zip(0..).filter(|(known, _)| known.is_none());
        missing.map(|(_, node)| node)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
