//! One node of the job: it connects to node 0, tests its pairs when node 0 assigns them, and gets the
//! verdict.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::compare::brief::Brief;
use crate::preflight::meet::message::{Join, MEETING, ToNode, ToZero, Told};
use crate::preflight::meet::missed::AttemptFailures;
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::meet::times::Times;
use crate::preflight::prove::rounds::{PairRounds, bounded};
use crate::preflight::who::addresses::Addresses;
use crate::preflight::who::own::{LocalRails, Network};
use crate::self_test::run::Scope;
use crate::sys::random::jittered;
use crate::text::{duration, shortened, visible};
use crate::wire::listen::Listener;
use crate::wire::reach::{self, Miss};
use crate::wire::stranger::Stranger;
use crate::wire::{Address, Channel};

/// What a node needs to take part.
pub struct Node<'a> {
    pub node: u32,
    pub nodes: u32,
    /// The job's ID from the launcher, if the launcher sets one.
    pub job: Option<String>,
    /// The address of node 0.
    pub meet: Address,
    /// Where this node listens, if it is node 0.
    pub listen: Address,
    /// As in [`Terms`](crate::preflight::meet::zero::Terms).
    pub unresolved: Option<String>,
    /// How long to wait until all nodes have joined.
    pub wait: Duration,
    /// How long to wait for the first other node, if this node has passed before and was started again.
    pub alone_after: Option<Duration>,
    pub token: &'a str,
    /// The names of all nodes, if the launcher provides them.
    pub names: &'a [String],
    /// As for [`Part`](crate::preflight::who::part::Part).
    pub are_names_certain: bool,
    /// What the proof does not test as the job will use it, as sentences.
    pub left_out: &'a [String],
    pub report: Brief,
    pub rails: LocalRails,
    pub network: Network,
    pub addresses: Addresses,
    pub extent: Scope,
    /// Which pairs to test, according to this node's configuration.
    pub rounds: Extent,
    pub say: &'a dyn Fn(&str),
}

/// How often a node and node 0 send each other a keep-alive.
pub const ALIVE: Duration = Duration::from_secs(5);

/// A node that has sent nothing for this long hangs, or its machine is off.
pub const HUNG: Duration = Duration::from_secs(25);

/// How long one attempt to connect may take.
const TRY: Duration = Duration::from_secs(5);

/// The pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A shorter wait is not worth a line in the log.
const SOON: Duration = Duration::from_secs(2);

/// How often this node logs what it is waiting for.
pub(in crate::preflight) const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Why a node has no verdict.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The node has passed before, and finds no other node.
    #[error("{0}")]
    Alone(String),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Why a node that joined got no verdict. Before the first pair, it may join again.
enum End {
    Again(anyhow::Error),
    For(anyhow::Error),
}

impl From<Stranger> for End {
    fn from(stranger: Stranger) -> End {
        End::Again(stranger.into())
    }
}

impl From<anyhow::Error> for End {
    fn from(error: anyhow::Error) -> End {
        End::For(error)
    }
}

impl Node<'_> {
    /// Returns this node for the process that connects to the node 0 on its own machine.
    pub fn at(&self, meet: Address) -> Node<'_> {
        Node {
            meet,
            listen: self.listen.clone(),
            unresolved: None,
            alone_after: None,
            job: self.job.clone(),
            report: self.report.clone(),
            rails: self.rails.clone(),
            network: self.network.clone(),
            addresses: self.addresses.clone(),
            ..*self
        }
    }

    /// Returns how long the rounds may take, with everything that follows after all nodes have joined.
    pub fn rounds_time(&self) -> Duration {
        Times { each: self.extent.each }.whole(&Schedule { nodes: self.nodes, extent: self.rounds })
    }

    /// Takes part up to the verdict.
    ///
    /// # Errors
    /// There is no verdict.
    pub fn take_part(&self) -> Result<Told, NodeError> {
        // The node listens before other nodes know about it, so that no connection is refused.
        let listener = Listener::on_port(0).map_err(|error| anyhow!("cannot listen on any port: {error}"))?;
        let end = Instant::now() + self.wait;
        let mut lost = None;
        loop {
            let channel = self.reach(end, lost.take())?;
            match self.stay(channel, &listener) {
                Ok(told) => return Ok(told),
                Err(End::Again(why)) if Instant::now() < end => lost = Some(why),
                Err(End::Again(why) | End::For(why)) => return Err(why.into()),
            }
        }
    }

    /// Connects to node 0, and tries as often as necessary.
    fn reach(&self, end: Instant, lost: Option<anyhow::Error>) -> Result<Channel, NodeError> {
        let started = Instant::now();
        // If node 0 was there a moment ago, it will come back.
        let alone_after = self.alone_after.filter(|_| lost.is_none());
        let end = alone_after.map_or(end, |after| end.min(started + after));
        let mut pause = FIRST_PAUSE;
        let mut said: Option<Instant> = None;
        let mut misses = AttemptFailures::default();
        if let Some(why) = lost {
            (self.say)(&format!("preflight: reconnecting to node 0: {why}."));
            pause = LONGEST_PAUSE;
        }
        loop {
            let now = Instant::now();
            // A node that has waited for a long time still gets enough time for this.
            let until = end.clamp(now + TRY, now + 2 * TRY);
            let why = match reach::attempt(&self.meet, &MEETING, self.token.as_bytes(), ALIVE, until) {
                Ok((channel, _)) => return Ok(channel),
                Err(Miss::Wrong(stranger)) => return Err(anyhow::Error::new(stranger).into()),
                Err(miss) => miss,
            };
            misses.add(why.kind());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(after) = alone_after {
                    let within = duration(after);
                    return Err(NodeError::Alone(format!("node 0 was not reachable within {within}: {why}")));
                }
                return Err(anyhow!(
                    "this node did not reach node 0 at {} within {} (preflight-wait): {}; the last one: {why}. {}",
                    self.meet,
                    duration(self.wait),
                    misses.sentence(),
                    misses.fix()
                )
                .into());
            }
            // The nodes of a job do not start at the same moment, so a short wait is not logged.
            let is_due = started.elapsed() > SOON && said.is_none_or(|said| said.elapsed() > SAID_AGAIN);
            if is_due {
                (self.say)(&format!("preflight: waiting for node 0 at {}: {why}.", self.meet));
                said = Some(Instant::now());
            }
            std::thread::sleep(jittered(pause).min(left));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    /// Joins, and stays until the end.
    fn stay(&self, mut channel: Channel, listener: &Listener) -> Result<Told, End> {
        let ends = channel.connection().ends().map_err(|error| End::Again(error.into()))?;
        if let IpAddr::V6(own) = ends[0].ip()
            && own.is_unicast_link_local()
        {
            return Err(anyhow!(
                "{} resolves to an address that is valid on one link only, so node 0 cannot tell the other nodes how to reach this one: use another address or a name of node 0 (--meet, before a command preflight-meet)",
                self.meet
            )
            .into());
        }
        // Nothing may follow before node 0 has answered: it disconnects a node that it refuses, and data that
        // it has not read can make the kernel drop the reason.
        channel.send(&ToZero::Join(Box::new(self.join(ends, listener.own.port()))))?;
        let joined = Instant::now();
        let mut said: Option<Instant> = None;
        loop {
            match channel.receive(HUNG)? {
                ToNode::Waiting { missing } => {
                    // Most waits are short, and need no line in the log.
                    let is_due =
                        joined.elapsed() > ALIVE && said.is_none_or(|said| said.elapsed() > SAID_AGAIN);
                    if is_due {
                        (self.say)(&format!(
                            "preflight: node 0 is waiting for {}",
                            visible(&shortened(&missing))
                        ));
                        said = Some(Instant::now());
                    }
                    channel.send(&ToZero::Alive)?;
                }
                ToNode::Prove(order) => {
                    let zero = ends[1].ip().to_canonical();
                    let mut rounds = PairRounds::new(self, channel, listener, zero, &order);
                    return Ok(rounds.run(order)?);
                }
                ToNode::Verdict(told) => return Ok(presentable(told)),
                ToNode::Refused(why) => {
                    return Err(anyhow!("node 0 rejected this node: {}", visible(&bounded(why))).into());
                }
                ToNode::Working | ToNode::Gone { .. } => {}
            }
            // Node 0 knows when to stop waiting, and may have started later than this node. This check
            // is for a node 0 that never stops.
            if joined.elapsed() > self.wait + HUNG {
                return Err(anyhow!("node 0 waits longer than this node (preflight-wait)").into());
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
            rates: self.rails.rates(),
            addresses: self.addresses.clone(),
            transport: self.rails.transport().to_owned(),
            network: self.network.clone(),
            report: self.report.clone(),
        }
    }
}

/// Returns the parts of node 0's verdict in a form that is safe to show.
pub fn presentable(told: Told) -> Told {
    let shown = |text: String| visible(&bounded(text));
    Told { line: shown(told.line), reason: told.reason.map(shown), ..told }
}

#[cfg(test)]
impl Node<'static> {
    /// Returns node 3 of 4, without a rail.
    pub fn node_3_of_4() -> Node<'static> {
        use crate::self_test::kinds::Level;

        let report = r#"{"schema": "", "host": "", "passed": true, "hcas": [], "nccl": null, "profile": null, "filled": {}, "checks": []}"#;
        Node {
            node: 3,
            nodes: 4,
            job: None,
            meet: Address::everywhere(),
            listen: Address::everywhere(),
            unresolved: None,
            wait: Duration::from_secs(60),
            alone_after: None,
            token: "",
            names: &[],
            are_names_certain: false,
            left_out: &[],
            report: serde_json::from_str(report).unwrap(),
            rails: LocalRails::Sockets(Vec::new()),
            network: Network::default(),
            addresses: Addresses::default(),
            extent: Scope::new(Level::Verbs, 1, Duration::ZERO),
            rounds: Extent::Doubling,
            say: &|_| {},
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::wire::channel::channels_over;

    /// If it did not, node 0 would drop it once another node is [`HUNG`] late.
    #[test]
    fn a_node_answers_whenever_node_0_says_that_it_waits() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let node = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let [mut zero, its] = channels_over([listening.accept().unwrap().0, node]);
        let waiting = || ToNode::Waiting { missing: "node 2".to_owned() };
        let told = Told { passed: true, line: String::new(), reason: None };
        for message in [waiting(), waiting(), ToNode::Verdict(told)] {
            zero.send(&message).unwrap();
        }
        assert!(Node::node_3_of_4().stay(its, &Listener::on_port(0).unwrap()).is_ok());
        let heard = [(); 3].map(|()| zero.receive::<ToZero>(HUNG).unwrap());
        assert!(matches!(heard, [ToZero::Join(_), ToZero::Alive, ToZero::Alive]));
    }
}
