//! Node 0: all nodes come here, are told whom to try their rails with, tell what they found, and
//! hear the verdict. One process hears them all at once, and waits for none of them.

mod hearing;
mod meeting;
mod newcomers;
mod proving;
mod room;
mod telling;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use newcomers::Newcomers;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use room::Room;

use super::evidence::{Evidence, Gone};
use super::message::{Job, MEETING};
use super::node::ALIVE;
use super::progress::Progress;
use super::schedule::Extent;
use crate::compare::comparison::Nodes;
use crate::sys::random;
use crate::wire::Channel;
use crate::wire::guests::Guests;
use crate::wire::listen::Listener;
use crate::wire::stranger::Strangers;

pub use proving::PROVING;

/// The most connections whose other end has not proven anything yet.
const MOST_GUESTS: usize = 512;

const OWN: &str = "the process that takes part for node 0 itself has ended.";

/// What node 0 goes by.
pub struct Terms<'a> {
    pub nodes: u32,
    pub job: Option<String>,
    /// How long nodes are waited for, and up to when.
    pub wait: Duration,
    pub until: Instant,
    pub token: &'a str,
    pub extent: Extent,
    /// The names of all nodes, where the launcher tells them.
    pub names: &'a [String],
    pub say: &'a dyn Fn(&str),
    /// Shows on a terminal how far the nodes are; elsewhere it is said.
    pub show: Option<&'a dyn Fn(&Progress)>,
}

/// A node, as node 0 knows it.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub name: String,
    /// The names of its rails.
    pub rails: Vec<String>,
    /// `verbs`, `sockets`.
    pub transport: String,
}

/// All that was told, for the verdict.
pub struct Heard {
    /// By index; `None` for a node that never came.
    pub nodes: Vec<Option<Known>>,
    /// The pairs, and who has gone.
    pub evidence: Evidence,
    pub compared: Nodes,
    /// Nodes whose own devices have failed their self-test, and why.
    pub unfit: Vec<(u32, String)>,
    /// Sentences about nodes that were refused.
    pub refused: Vec<String>,
    /// How many nodes were not compared with the others, because there was too much to keep.
    pub uncompared: usize,
    /// Whether the nodes have proven that they have the token.
    pub is_guarded: bool,
    pub meeting: Duration,
    pub proving: Duration,
}

struct Member {
    channel: Channel,
    address: Option<IpAddr>,
    port: u16,
    heard: Instant,
    round: u16,
    /// Whether it has not told yet what it found.
    at_work: bool,
    /// The pairs that it was told to try and has not reported: rounds and partners.
    owed: HashSet<(u16, u32)>,
}

/// The rounds that the nodes are in.
#[derive(Default)]
struct Series {
    first: u16,
    rounds: usize,
    /// How many pairs the nodes were told to try.
    pairs: usize,
}

pub struct Zero<'a> {
    terms: &'a Terms<'a>,
    listener: &'a Listener,
    guests: Guests<'a>,
    strangers: Strangers<'a>,
    newcomers: Newcomers,
    members: BTreeMap<u32, Member>,
    /// Who of the members has said something, or takes more of what it is told.
    ears: Epoll,
    room: Room,
    /// How many nodes have come, each counted as often as it came.
    comings: usize,
    job: Job,
    heard: Heard,
    /// Who has come and gone while others were waited for, and how; they may come again.
    away: BTreeMap<u32, (Known, Gone)>,
    /// Whether the verdict is on its way: who goes now may go.
    is_told: bool,
    series: Series,
    /// When the nodes hear again that node 0 is there.
    next_word: Instant,
    /// When progress is told again.
    next_line: Instant,
    /// When it is looked again who says nothing.
    next_look: Instant,
    /// Who was missing, and when that was looked up.
    missing: Option<(Instant, String)>,
}

impl<'a> Zero<'a> {
    /// # Errors
    /// A sentence: the kernel gives no random number, or no descriptor.
    pub fn new(terms: &'a Terms<'a>, listener: &'a Listener) -> Result<Zero<'a>, String> {
        let mut job = Job::default();
        random::fill(&mut job).map_err(|error| format!("no random number for the job: {error}."))?;
        let now = Instant::now();
        let nodes = usize::try_from(terms.nodes).unwrap_or_default();
        let ears = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        let ears =
            ears.map_err(|errno| format!("the kernel gives nothing to hear many nodes with: {errno}."))?;
        Ok(Zero {
            terms,
            listener,
            guests: Guests::new(&MEETING, terms.token.as_bytes(), ALIVE, MOST_GUESTS),
            strangers: Strangers::new(terms.say, "preflight: "),
            newcomers: Newcomers::default(),
            members: BTreeMap::new(),
            ears,
            room: Room::of(nodes),
            comings: 0,
            job,
            heard: Heard {
                nodes: vec![None; nodes],
                evidence: Evidence::new(Vec::new(), 0),
                compared: Nodes::default(),
                unfit: Vec::new(),
                refused: Vec::new(),
                uncompared: 0,
                is_guarded: !terms.token.is_empty(),
                meeting: Duration::ZERO,
                proving: Duration::ZERO,
            },
            away: BTreeMap::new(),
            is_told: false,
            series: Series::default(),
            next_word: now + ALIVE,
            next_line: now + telling::every(terms),
            next_look: now,
            missing: None,
        })
    }

    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    pub fn into_heard(self) -> Heard {
        self.heard
    }

    /// Whether all nodes are here, before their rounds have begun.
    fn is_complete(&self) -> bool {
        self.members.len() >= self.heard.nodes.len()
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        let came = self.heard.nodes.iter().zip(0..).filter(|(known, _)| known.is_none());
        came.map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests;
