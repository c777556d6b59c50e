//! Node 0: all nodes come here, are told whom to try their rails with, tell what they found, and
//! hear the verdict. One process hears them all at once, and waits for none of them.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use super::evidence::{Evidence, Gone, Member as Brought};
use super::message::{Job, Join, LONGEST, MEETING, PARTNERS_AT_ONCE, Partner, ToNode, ToZero, Told};
use super::node::{ALIVE, HUNG};
use super::schedule::{Extent, Schedule};
use crate::compare::comparison::Nodes;
use crate::self_test::check::Outcome;
use crate::sys::random;
use crate::text::{condensed_to, duration, shortened, visible};
use crate::wire::Channel;
use crate::wire::connection::timeout;
use crate::wire::guests::Guests;
use crate::wire::listen::Listener;
use crate::wire::stranger::Strangers;

/// The most connections whose other end has not proven anything yet.
const MOST_GUESTS: usize = 512;

/// The most nodes that have proven to be ours and have not said which ones they are. They say it at
/// once.
const MOST_NEWCOMERS: usize = 256;

/// The most sentences about nodes that were sent away. One that comes again and again needs no more.
const MOST_REFUSED: usize = 64;

/// How often each node may come, on average: a node that has gone may come again, and what was kept
/// of each report stays.
const MOST_COMINGS: usize = 16;

/// The most messages of one node that are heard before the others are. All reports of a node in the
/// largest job are fewer.
const MOST_AT_ONCE: usize = 2048;

/// The most nodes that are named where somebody is waited for.
const NAMED: usize = 8;

/// How long the verdict may take to all nodes.
const TELLING: Duration = Duration::from_secs(20);

/// How long a round may take, all pairs together, before those who have not told are given up. Their
/// partners give up far earlier.
const ROUND: Duration = Duration::from_secs(120);

/// The longest time for all rounds together.
pub const PROVING: Duration = Duration::from_secs(15 * 60);

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

pub struct Zero<'a> {
    terms: &'a Terms<'a>,
    listener: &'a Listener,
    guests: Guests<'a>,
    strangers: Strangers<'a>,
    /// Nodes that have proven to be ours, and have not said which ones they are.
    newcomers: Vec<(Channel, Instant)>,
    members: BTreeMap<u32, Member>,
    /// How many nodes have come, each counted as often as it came.
    comings: usize,
    job: Job,
    heard: Heard,
    /// Whether the verdict is on its way: who goes now may go.
    is_told: bool,
    /// When the nodes hear again that node 0 is there.
    next_word: Instant,
    /// When progress is told again.
    next_line: Instant,
}

/// The checks that try a device. The others may fail where the job runs on sockets.
const OF_DEVICES: &str = "verbs-";

/// How often progress is told.
const LINE: Duration = Duration::from_secs(10);

const OWN: &str = "the process that takes part for node 0 itself has ended.";

/// Whom a descriptor of poll(2) leads to.
enum Who {
    Listener,
    Guest,
    Newcomer(usize),
    Member(u32),
    Own,
}

impl<'a> Zero<'a> {
    /// # Errors
    /// A sentence: the kernel gives no random number.
    pub fn new(terms: &'a Terms<'a>, listener: &'a Listener) -> Result<Zero<'a>, String> {
        let mut job = Job::default();
        random::fill(&mut job).map_err(|error| format!("no random number for the job: {error}."))?;
        let now = Instant::now();
        let nodes = usize::try_from(terms.nodes).unwrap_or_default();
        Ok(Zero {
            terms,
            listener,
            guests: Guests::new(&MEETING, terms.token.as_bytes(), ALIVE, MOST_GUESTS),
            strangers: Strangers::new(terms.say),
            newcomers: Vec::new(),
            members: BTreeMap::new(),
            comings: 0,
            job,
            heard: Heard {
                nodes: vec![None; nodes],
                evidence: Evidence::new(Vec::new(), 0),
                compared: Nodes::default(),
                unfit: Vec::new(),
                refused: Vec::new(),
                is_guarded: !terms.token.is_empty(),
                meeting: Duration::ZERO,
                proving: Duration::ZERO,
            },
            is_told: false,
            next_word: now + ALIVE,
            next_line: now + LINE,
        })
    }

    /// Waits for all nodes, until the time is over. `own` becomes readable if this node itself
    /// gives up.
    ///
    /// # Errors
    /// A sentence: nobody can connect any more, or this node itself cannot take part.
    pub fn meet(&mut self, own: BorrowedFd) -> Result<(), String> {
        let started = Instant::now();
        while self.missing().next().is_some() && Instant::now() < self.terms.until {
            if self.hear(self.terms.until, own)? {
                return Err(OWN.to_owned());
            }
            self.tell_waiting();
        }
        self.strangers.close();
        self.heard.meeting = started.elapsed();
        Ok(())
    }

    /// Has all nodes that came try the pairs of the schedule.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn prove(&mut self, own: BorrowedFd) -> Result<(), String> {
        let present: Vec<u32> = self.members.keys().copied().collect();
        let schedule = Schedule { nodes: present.len().try_into().unwrap_or(0), extent: self.terms.extent };
        let count = schedule.rounds().try_into().unwrap_or(u16::MAX);
        self.heard.evidence = self.evidence(count);
        let rounds = (0..schedule.rounds()).map(|round| {
            let pairs = schedule.pairs(round);
            let index = |place: u32| present.get(place as usize).copied();
            pairs.filter_map(|(low, high)| Some((index(low)?, index(high)?))).collect()
        });
        let rounds: Vec<Vec<(u32, u32)>> = rounds.collect();
        self.series(0, &rounds, own)
    }

    /// What is known before the first pair: who has come, and who has not.
    fn evidence(&self, rounds: u16) -> Evidence {
        let brought = |(place, known): (usize, &Option<Known>)| match known {
            Some(Known { name, rails, .. }) => Brought { name: name.clone(), rails: rails.clone() },
            None => {
                Brought { name: self.terms.names.get(place).cloned().unwrap_or_default(), rails: Vec::new() }
            }
        };
        let members = self.heard.nodes.iter().enumerate().map(brought).collect();
        let mut evidence = Evidence::new(members, rounds);
        let within = duration(self.terms.wait);
        for node in self.missing() {
            evidence.lose(node, Gone::NeverCame(within.clone()));
        }
        evidence
    }

    /// Has nodes try these pairs, round by round, beginning with a round of this number.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn series(&mut self, first: u16, rounds: &[Vec<(u32, u32)>], own: BorrowedFd) -> Result<(), String> {
        let started = Instant::now();
        let mut orders: BTreeMap<u32, Vec<Partner>> = BTreeMap::new();
        for (number, pairs) in rounds.iter().enumerate() {
            let round = first.saturating_add(number.try_into().unwrap_or(u16::MAX));
            for (low, high) in pairs {
                for (node, with) in [(low, high), (high, low)] {
                    let partner = self.partner(round, *with);
                    orders.entry(*node).or_default().extend(partner);
                }
            }
        }
        let number: u32 = rounds.len().try_into().unwrap_or(u32::MAX);
        let end = started + ROUND.saturating_mul(number).clamp(ROUND, PROVING);
        for (node, pairs) in orders {
            let job = self.job;
            let Some(member) = self.members.get_mut(&node) else { continue };
            member.at_work = true;
            member.owed.extend(pairs.iter().map(|pair| (pair.round, pair.node)));
            let mut chunks = pairs.chunks(PARTNERS_AT_ONCE).peekable();
            while let Some(pairs) = chunks.next() {
                let (pairs, more) = (pairs.to_vec(), chunks.peek().is_some());
                // A connection that is broken is noticed where it is heard.
                let _ = member.channel.queue(&ToNode::Prove { job, pairs, more });
            }
        }
        tracing::debug!("preflight: the rounds have begun");
        while self.members.values().any(|member| member.at_work) && Instant::now() < end {
            if self.hear(end, own)? {
                return Err(OWN.to_owned());
            }
            self.tell_working();
        }
        for member in self.members.values_mut() {
            member.at_work = false;
        }
        self.heard.proving += started.elapsed();
        Ok(())
    }

    /// Tells the nodes the end.
    pub fn tell(&mut self, verdict: impl Fn(u32) -> Told, own: BorrowedFd) {
        let end = Instant::now() + TELLING;
        self.is_told = true;
        for (node, member) in &mut self.members {
            let _ = member.channel.queue(&ToNode::Verdict(verdict(*node)));
        }
        let is_sending = |member: &Member| member.channel.connection().is_sending();
        while self.members.values().any(is_sending) && Instant::now() < end {
            // This node itself may have ended: it has heard the verdict.
            if self.hear(end, own).is_err() {
                return;
            }
        }
    }

    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    pub fn into_heard(self) -> Heard {
        self.heard
    }

    fn partner(&self, round: u16, node: u32) -> Option<Partner> {
        let member = self.members.get(&node)?;
        let name = self.heard.nodes.get(node as usize)?.as_ref()?.name.clone();
        Some(Partner { round, node, name, address: member.address, port: member.port })
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        let came = self.heard.nodes.iter().zip(0..).filter(|(known, _)| known.is_none());
        came.map(|(_, node)| node)
    }

    /// Waits for news, at most to this time, and takes it. Gives whether this node itself has ended.
    fn hear(&mut self, until: Instant, own: BorrowedFd) -> Result<bool, String> {
        let until = until.min(self.next_word).min(self.next_line);
        let ready = self.sleep(until, own);
        let mut has_ended = false;
        let mut newcomers = Vec::new();
        for who in ready {
            match who {
                Who::Listener => {
                    let strangers = &mut self.strangers;
                    self.guests
                        .accept(self.listener, self.terms.until, &mut |stranger| strangers.add(stranger))?;
                }
                Who::Guest => {}
                Who::Newcomer(index) => newcomers.push(index),
                Who::Member(node) => self.hear_member(node),
                Who::Own => has_ended = true,
            }
        }
        self.hear_newcomers(newcomers);
        let (guests, strangers) = (&mut self.guests, &mut self.strangers);
        while let Some(proven) = guests.hear(&mut |stranger| strangers.add(stranger)) {
            if self.newcomers.len() == MOST_NEWCOMERS {
                // The oldest one: it had the most time to say who it is.
                drop(self.newcomers.remove(0));
            }
            self.newcomers.push((proven.channel, Instant::now()));
        }
        // What they have sent right behind their proof has been read already.
        self.hear_newcomers((0..self.newcomers.len()).collect());
        self.look_for_hung();
        Ok(has_ended)
    }

    /// Waits until something happens: to whom.
    fn sleep(&self, until: Instant, own: BorrowedFd) -> Vec<Who> {
        let until = self.guests.until().map_or(until, |guest| guest.min(until));
        let mut who = vec![Who::Listener, Who::Own];
        let mut fds = vec![
            PollFd::new(self.listener.fd(), PollFlags::POLLIN),
            PollFd::new(own.as_fd(), PollFlags::POLLIN),
        ];
        for fd in self.guests.fds() {
            who.push(Who::Guest);
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
        }
        for (index, (channel, _)) in self.newcomers.iter().enumerate() {
            who.push(Who::Newcomer(index));
            fds.push(PollFd::new(channel.fd(), PollFlags::POLLIN));
        }
        for (node, member) in &self.members {
            let sends = member.channel.connection().is_sending();
            let out = if sends { PollFlags::POLLOUT } else { PollFlags::empty() };
            who.push(Who::Member(*node));
            fds.push(PollFd::new(member.channel.fd(), PollFlags::POLLIN | out));
        }
        let left = until.saturating_duration_since(Instant::now());
        // An interruption is as good as an event: the caller looks again.
        if poll(&mut fds, timeout(left)).is_err() {
            return Vec::new();
        }
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|happened| !happened.is_empty());
        who.into_iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|(who, _)| who).collect()
    }

    /// Hears newcomers, which have these places.
    fn hear_newcomers(&mut self, mut ready: Vec<usize>) {
        ready.sort_unstable();
        for index in ready.into_iter().rev() {
            let Some((channel, _)) = self.newcomers.get_mut(index) else { continue };
            match channel.receive_if_there(LONGEST) {
                Ok(None) => {}
                Ok(Some(ToZero::Join(join))) => {
                    let (channel, _) = self.newcomers.remove(index);
                    self.join(channel, *join);
                }
                Ok(Some(_)) | Err(_) => drop(self.newcomers.remove(index)),
            }
        }
        self.newcomers.retain(|(_, since)| since.elapsed() < HUNG);
    }

    /// A node comes.
    fn join(&mut self, mut channel: Channel, join: Join) {
        if let Some(why) = self.objection(&channel, &join) {
            if self.heard.refused.len() < MOST_REFUSED {
                (self.terms.say)(&format!("preflight: sends {} away: {why}", channel.address()));
                self.heard.refused.push(format!("{}: {why}", channel.address()));
            }
            // A message that is short fits into an empty queue: nobody is waited for.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        self.comings += 1;
        let Join { node, address, port, rails, transport, report, .. } = join;
        let host = visible(&shortened(&report.host));
        let is_taken = |known: &Known| known.name == host;
        let name = match host.is_empty() || self.heard.nodes.iter().flatten().any(is_taken) {
            true => format!("{host} (node {node})").trim_start().to_owned(),
            false => host,
        };
        self.heard.compared.add(&name, &report);
        let failed = report
            .checks
            .iter()
            .find(|check| check.outcome == Outcome::Failed && check.id.starts_with(OF_DEVICES));
        self.heard.unfit.retain(|(known, _)| *known != node);
        if let Some(check) = failed {
            let why = format!("its self-test fails at {}", visible(&shortened(&check.id)));
            self.heard.unfit.push((node, why));
        }
        let rails = rails.iter().take(256).map(|rail| visible(&shortened(rail))).collect();
        let known = Known { name, rails, transport: visible(&shortened(&transport)) };
        tracing::debug!("preflight: {} has come", known.name);
        if let Some(place) = self.heard.nodes.get_mut(node as usize) {
            *place = Some(known);
        }
        // A connection through a gateway may come from another address than the node knows.
        if self.missing().next().is_some() {
            let _ = channel.queue(&ToNode::Waiting { missing: self.shown_missing() });
        }
        let member = Member {
            channel,
            address,
            port,
            heard: Instant::now(),
            round: 0,
            at_work: false,
            owed: HashSet::new(),
        };
        self.members.insert(node, member);
    }

    /// Why a node cannot be a part of this job.
    fn objection(&self, channel: &Channel, join: &Join) -> Option<String> {
        let shown =
            |job: &Option<String>| job.as_deref().map_or("none".to_owned(), |job| visible(&shortened(job)));
        if join.job != self.terms.job {
            return Some(format!(
                "it is of the job {}, and node 0 of the job {}; give them different ports (--meet)",
                shown(&join.job),
                shown(&self.terms.job)
            ));
        }
        if join.nodes != self.terms.nodes {
            return Some(format!("it expects {} nodes, and node 0 expects {}", join.nodes, self.terms.nodes));
        }
        if join.node >= join.nodes {
            return Some(format!("its index is {}, and there are {} nodes", join.node, join.nodes));
        }
        let most = self.heard.nodes.len().saturating_add(1).saturating_mul(MOST_COMINGS);
        if self.comings >= most && self.heard.meeting == Duration::ZERO {
            return Some("nodes have come and gone too often".to_owned());
        }
        match (self.members.get(&join.node), self.heard.nodes.get(join.node as usize)) {
            (Some(member), Some(Some(known))) => Some(format!(
                "two nodes have the index {}: {} at {}, which came first, and {} at {}",
                join.node,
                known.name,
                member.channel.address(),
                visible(&shortened(&join.report.host)),
                channel.address()
            )),
            // Its rounds are over.
            (None, Some(Some(_))) if self.heard.meeting > Duration::ZERO => {
                Some("it left before, and the others have begun without it".to_owned())
            }
            _ if self.heard.meeting > Duration::ZERO => {
                Some("it comes too late: the others have begun without it".to_owned())
            }
            _ => None,
        }
    }

    fn hear_member(&mut self, node: u32) {
        let Some(member) = self.members.get_mut(&node) else { return };
        if member.channel.flush().is_err() {
            return self.leaves(node, Gone::Left("it takes no messages any more".to_owned()));
        }
        for _ in 0..MOST_AT_ONCE {
            match member.channel.receive_if_there(LONGEST) {
                Ok(None) => return,
                Ok(Some(ToZero::Alive { round })) => {
                    member.heard = Instant::now();
                    member.round = round;
                }
                Ok(Some(ToZero::Proved { reports, more })) => {
                    member.heard = Instant::now();
                    member.at_work &= more;
                    // Nobody speaks for another node, or of a pair that nobody has asked for.
                    for report in reports {
                        if report.node == node && member.owed.remove(&(report.round, report.partner)) {
                            self.heard.evidence.add(report);
                        }
                    }
                }
                Ok(Some(ToZero::Join(_))) => {
                    return self.leaves(node, Gone::Left("it does not keep to the protocol".to_owned()));
                }
                Err(stranger) => {
                    let why = stranger.why;
                    return self.leaves(node, Gone::Left(why.trim_end_matches('.').to_owned()));
                }
            }
        }
        self.leaves(node, Gone::Left("it does not stop to send messages".to_owned()));
    }

    /// A node has gone. Its partners do not wait for it.
    fn leaves(&mut self, node: u32, how: Gone) {
        self.members.remove(&node);
        if self.is_told {
            return;
        }
        if self.heard.meeting == Duration::ZERO {
            // It may come again, and until then it is missing.
            if let Some(place) = self.heard.nodes.get_mut(node as usize) {
                *place = None;
            }
            return;
        }
        let why = match &how {
            Gone::Left(why) | Gone::Silent(why) | Gone::NeverCame(why) => why.clone(),
        };
        (self.terms.say)(&format!("preflight: {} has gone: {why}", self.heard.evidence.name(node)));
        self.heard.evidence.lose(node, how);
        for member in self.members.values_mut().filter(|member| member.at_work) {
            let _ = member.channel.queue(&ToNode::Gone { node, why: why.clone() });
        }
    }

    fn look_for_hung(&mut self) {
        let hung = |member: &Member| member.heard.elapsed() > HUNG;
        let hung: Vec<u32> =
            self.members.iter().filter(|(_, member)| hung(member)).map(|(node, _)| *node).collect();
        for node in hung {
            self.leaves(node, Gone::Silent(format!("it has said nothing for {} s", HUNG.as_secs())));
        }
    }

    fn shown_missing(&self) -> String {
        let name = |node: u32| match self.terms.names.get(node as usize) {
            Some(name) => visible(&shortened(name)),
            None => format!("node {node}"),
        };
        let names: Vec<String> = self.missing().map(name).collect();
        condensed_to(&names, NAMED)
    }

    fn tell_waiting(&mut self) {
        let now = Instant::now();
        if now >= self.next_word {
            self.next_word = now + ALIVE;
            let missing = self.shown_missing();
            for member in self.members.values_mut() {
                let _ = member.channel.queue(&ToNode::Waiting { missing: missing.clone() });
            }
        }
        if now >= self.next_line {
            self.next_line = now + LINE;
            let (came, all) = (self.members.len(), self.terms.nodes);
            (self.terms.say)(&format!(
                "preflight: {came} of {all} nodes are here; waits for {}",
                self.shown_missing()
            ));
        }
    }

    fn tell_working(&mut self) {
        let now = Instant::now();
        if now >= self.next_word {
            self.next_word = now + ALIVE;
            for member in self.members.values_mut() {
                let _ = member.channel.queue(&ToNode::Working);
            }
        }
        if now >= self.next_line {
            self.next_line = now + LINE;
            let at_work = self.members.values().filter(|member| member.at_work);
            let rounds = at_work.clone().map(|member| member.round).min().unwrap_or_default();
            let left = at_work.count();
            (self.terms.say)(&format!(
                "preflight: {left} of {} nodes are at work, the last of them in round {}",
                self.members.len(),
                u32::from(rounds) + 1
            ));
        }
    }
}
