//! One node of the job: it goes to node 0, tries its pairs when it is told to, and hears the
//! verdict.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::message::{Join, MEETING, ToNode, ToZero, Told};
use super::own::Rails;
use super::rounds::Rounds;
use crate::compare::brief::Brief;
use crate::self_test::run::Scope;
use crate::sys::random;
use crate::text::{duration, shortened, visible};
use crate::wire::listen::Listener;
use crate::wire::stranger::{Fault, Stranger};
use crate::wire::{Address, Channel, reach};

/// What a node goes by.
pub struct Node<'a> {
    pub node: u32,
    pub nodes: u32,
    /// The job as its launcher calls it, where it does.
    pub job: Option<String>,
    /// Where node 0 is.
    pub meet: Address,
    /// The longest time until all nodes are there.
    pub wait: Duration,
    pub token: &'a str,
    /// The names of all nodes, where the launcher tells them.
    pub names: &'a [String],
    pub report: Brief,
    pub rails: Rails,
    pub extent: Scope,
    pub say: &'a dyn Fn(&str),
}

/// How often a node and node 0 tell each other that they are there.
pub const ALIVE: Duration = Duration::from_secs(5);

/// A node that has said nothing for so long hangs, or its machine is off.
pub const HUNG: Duration = Duration::from_secs(25);

/// The time for one try to connect.
const TRY: Duration = Duration::from_secs(5);

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A wait that is shorter is not worth a line.
const SOON: Duration = Duration::from_secs(2);

/// How often it is said for whom this node waits.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Why a node did not come to a verdict.
enum End {
    /// Node 0 was there, and went away before the first pair.
    Again(String),
    For(String),
}

impl Node<'_> {
    /// This node, as the process sees it that goes to the node 0 of its own machine.
    pub fn at(&self, meet: Address) -> Node<'_> {
        Node { meet, job: self.job.clone(), report: self.report.clone(), rails: self.rails.clone(), ..*self }
    }

    /// Takes part up to the verdict.
    ///
    /// # Errors
    /// A sentence: there is no verdict, and why.
    pub fn take_part(&self) -> Result<Told, String> {
        // Before anybody knows of this node, so that nobody who comes is refused.
        let listener =
            Listener::on_port(0).map_err(|error| format!("cannot listen on any port: {error}."))?;
        let end = Instant::now() + self.wait;
        let mut lost = None;
        loop {
            let channel = self.reach(end, lost.take())?;
            match self.stay(channel, &listener) {
                Ok(told) => return Ok(told),
                Err(End::Again(why)) if Instant::now() < end => lost = Some(why),
                Err(End::Again(why) | End::For(why)) => return Err(why),
            }
        }
    }

    /// Connects to node 0, as often as it takes.
    fn reach(&self, end: Instant, lost: Option<String>) -> Result<Channel, String> {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut said: Option<Instant> = None;
        if let Some(why) = lost {
            (self.say)(&format!("preflight: comes to node 0 again: {why}"));
            pause = LONGEST_PAUSE;
        }
        loop {
            let why = match self.once(end) {
                Ok(channel) => return Ok(channel),
                Err(Stranger { fault: Fault::Gone | Fault::Silent | Fault::PushedOut, why }) => why,
                Err(stranger) => return Err(stranger.why),
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let wait = duration(self.wait);
                return Err(format!("node 0 was not there within {wait} (preflight-wait): {why}"));
            }
            // The nodes of a job do not start at the same moment.
            let is_due = started.elapsed() > SOON && said.is_none_or(|said| said.elapsed() > SAID_AGAIN);
            if is_due {
                (self.say)(&format!("preflight: waits for node 0 at {}: {why}", self.meet));
                said = Some(Instant::now());
            }
            std::thread::sleep(jittered(pause).min(left));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    fn once(&self, end: Instant) -> Result<Channel, Stranger> {
        let name = self.meet.to_string();
        let gone = |why| Stranger { fault: Fault::Gone, why };
        let sockets = self.meet.sockets(end.min(Instant::now() + 2 * TRY)).map_err(gone)?;
        let connection = reach::connect(&sockets, TRY, &name, &MEETING)
            .map_err(|why| gone(format!("cannot reach {name}: {why}.")))?;
        // A node that has waited long gets the time that it needs.
        let patience = Instant::now() + TRY;
        let (channel, _) = reach::prove(connection, &MEETING, self.token.as_bytes(), ALIVE, patience)?;
        Ok(channel)
    }

    /// Joins, and stays to the end.
    fn stay(&self, mut channel: Channel, listener: &Listener) -> Result<Told, End> {
        let again = |stranger: Stranger| End::Again(stranger.why);
        let ends = channel.connection().ends().map_err(|error| End::Again(format!("{error}.")))?;
        channel.send(&ToZero::Join(Box::new(self.join(ends, listener.own.port())))).map_err(again)?;
        let came = Instant::now();
        let mut said: Option<Instant> = None;
        loop {
            match channel.receive(HUNG).map_err(again)? {
                ToNode::Waiting { missing } => {
                    // Most waits are short, and need no words.
                    let is_due =
                        came.elapsed() > ALIVE && said.is_none_or(|said| said.elapsed() > SAID_AGAIN);
                    if is_due {
                        (self.say)(&format!("preflight: node 0 waits for {}", visible(&shortened(&missing))));
                        said = Some(Instant::now());
                    }
                    channel.send(&ToZero::Alive { round: 0 }).map_err(again)?;
                }
                ToNode::Prove { job, pairs, more } => {
                    let zero = ends[1].ip().to_canonical();
                    let mut rounds = Rounds::new(self, channel, listener, zero, &job);
                    return rounds.run(pairs, more).map_err(End::For);
                }
                ToNode::Verdict(told) => return Ok(presentable(told)),
                ToNode::Refused(why) => {
                    return Err(End::For(format!("node 0 refuses this node: {}", visible(&shortened(&why)))));
                }
                ToNode::Working | ToNode::Gone { .. } => {}
            }
            // Node 0 knows when to stop waiting, and may have begun later than this node. This is for a
            // node 0 that does not stop.
            if came.elapsed() > self.wait + HUNG {
                return Err(End::For("node 0 waits for longer than this node (preflight-wait).".to_owned()));
            }
        }
    }

    fn join(&self, [own, _]: [SocketAddr; 2], port: u16) -> Join {
        let is_zero = self.node == 0;
        let own = own.ip().to_canonical();
        Join {
            node: self.node,
            nodes: self.nodes,
            job: self.job.clone(),
            address: (!is_zero).then_some(own),
            port,
            rails: self.rails.names(),
            transport: self.rails.transport().to_owned(),
            report: self.report.clone(),
        }
    }
}

/// What may be shown of what node 0 has told.
pub fn presentable(told: Told) -> Told {
    Told { line: visible(&told.line), reason: told.reason.map(|reason| visible(&reason)), ..told }
}

/// Between half of the time and all of it, so that many nodes do not come all at once.
fn jittered(time: Duration) -> Duration {
    let mut byte = [0];
    // Without random numbers, the nodes come together.
    let _ = random::fill(&mut byte);
    time / 2 + time / 2 * u32::from(byte[0]) / 255
}

/// Addresses of a partner.
pub fn sockets(address: Option<IpAddr>, zero: IpAddr, port: u16) -> [SocketAddr; 1] {
    [SocketAddr::new(address.unwrap_or(zero), port)]
}
