//! The preflight of one process: as node 0, or as any other node.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nix::errno::Errno;

use crate::preflight::judge::culprit;
use crate::preflight::judge::judging::{self, Judged, Limits};
use crate::preflight::judge::outliers;
use crate::preflight::judge::verdict;
use crate::preflight::meet::message::Told;
use crate::preflight::meet::node::{Node, NodeError};
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::meet::times::Times;
use crate::preflight::meet::zero::{Terms, Zero};
use crate::preflight::prove::task::Task;
use crate::text::duration;
use crate::wire::Address;
use crate::wire::listen::{ListenError, Listener, allow_connections};

/// How the preflight ended.
pub struct Outcome {
    pub told: Told,
    /// Whether nothing was proven, because this node has passed before and was started again alone.
    pub is_alone: bool,
    /// All that node 0 knows; other nodes know only their own line.
    pub judged: Option<Judged>,
}

impl Outcome {
    /// Returns the outcome of a node that knows only what node 0 sent it.
    pub fn heard(told: Told) -> Outcome {
        Outcome { told, is_alone: false, judged: None }
    }

    fn alone(why: &str) -> Outcome {
        let line =
            format!("preflight not repeated: this node has passed before and was started again, and {why}.");
        Outcome { told: Told { passed: true, line, reason: None }, is_alone: true, judged: None }
    }
}

/// Returns the longest time that a preflight of this many nodes takes, if it waits this long for them.
pub fn longest(wait: Duration, nodes: u32, extent: Extent, each: Duration) -> Duration {
    wait.saturating_add(Times { each }.whole(&Schedule { nodes, extent }))
}

/// What to do if node 0 cannot listen on the port.
const TAKEN: &str = "Another job may be on this machine: give all nodes of this one another port, as in --meet HOST:PORT (before a command preflight-meet)";

pub(super) fn no_process(errno: Errno) -> anyhow::Error {
    anyhow!("cannot start a process for this node: {errno}")
}

/// Takes part as this node, in a process of its own, which must be single-threaded.
///
/// # Errors
/// There is no verdict.
pub fn run(node: &Node, limits: Limits, show: Option<&dyn Fn(&Progress)>) -> anyhow::Result<Outcome> {
    match node.node {
        0 => zero(node, limits, show),
        _ => match node.take_part() {
            Ok(told) => Ok(Outcome::heard(told)),
            Err(NodeError::Alone(why)) => Ok(Outcome::alone(&why)),
            Err(NodeError::Other(why)) => Err(why),
        },
    }
}

/// Runs node 0: one process receives from all nodes, and another one takes part like any node.
fn zero(node: &Node, limits: Limits, show: Option<&dyn Fn(&Progress)>) -> anyhow::Result<Outcome> {
    let until = Instant::now() + node.wait;
    let listener = Listener::at(&node.listen, until).map_err(|why| match why {
        ListenError::InUse { .. } => anyhow!("{why}. {TAKEN}"),
        why => why.into(),
    })?;
    let own = match listener.own.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.own.port()),
        ip => SocketAddr::new(ip, listener.own.port()),
    };
    let own = node.at(Address::of(own));
    let terms = Terms {
        nodes: node.nodes,
        job: node.job.clone(),
        meet: node.meet.to_string(),
        unresolved: node.unresolved.as_deref(),
        wait: node.wait,
        until,
        alone_after: node.alone_after,
        token: node.token,
        extent: node.rounds,
        times: Times { each: node.extent.each },
        names: node.names,
        are_names_certain: node.are_names_certain,
        left_out: node.left_out,
        say: node.say,
        show,
    };
    let longest = longest(node.wait, node.nodes, node.rounds, node.extent.each);
    let mut task =
        Task::start(longest, &[], || own.take_part().map_err(|why| why.to_string())).map_err(no_process)?;
    // The limit is that of this process alone, which does not become the command.
    let _ = allow_connections(node.nodes);
    let told = hear(&terms, limits, listener, &task);
    let said = task.result::<Result<Told, String>>();
    told.map_err(|why| {
        match said {
            // The process that takes part for node 0 says why it has ended.
            Some(Ok(Err(of_node))) => anyhow!("{why}. {of_node}"),
            _ => why,
        }
    })
}

fn hear(terms: &Terms, limits: Limits, listener: Listener, task: &Task) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut zero = Zero::new(terms, listener)?;
    let own = task.fd();
    zero.meet(own)?;
    if zero.is_alone() {
        let within = duration(terms.alone_after.unwrap_or_default());
        return Ok(Outcome::alone(&format!("no other node joined within {within}")));
    }
    zero.prove(own)?;
    if !culprit::is_mixed(&zero.heard().evidence) {
        test_again(&mut zero, terms, limits, own)?;
    }
    zero.settle();
    zero.send_keep_alive();
    let seconds = started.elapsed();
    tracing::debug!("preflight: the rounds are over");
    let inputs = judging::collect_inputs(zero.heard(), limits, seconds);
    zero.send_keep_alive();
    let verdict = verdict::judge(&zero.heard().evidence, &inputs);
    let (passed, reason) = (verdict.passed, verdict.reason().map(str::to_owned));
    let lines: Vec<String> = (0..terms.nodes).map(|node| verdict.line_of(node)).collect();
    let told = |node: u32| Told {
        passed,
        line: lines.get(node as usize).cloned().unwrap_or_default(),
        reason: reason.clone(),
    };
    zero.tell(told, own);
    Ok(Outcome {
        told: told(0),
        is_alone: false,
        judged: Some(Judged { evidence: zero.into_heard().evidence, inputs }),
    })
}

/// Has the nodes test everything that follows the scheduled pairs.
fn test_again(zero: &mut Zero, terms: &Terms, limits: Limits, own: BorrowedFd) -> anyhow::Result<()> {
    if limits.together {
        zero.together(own)?;
    }
    let mut next = zero.heard().evidence.rounds();
    for _ in 0..culprit::MOST_TIMES {
        zero.send_keep_alive();
        let evidence = &zero.heard().evidence;
        let again = culprit::next_rounds(evidence, &outliers::suspects(evidence, limits.least_gbps));
        if again.is_empty() {
            break;
        }
        let said = "preflight: node 0 retries nodes that failed or were slow, with nodes that passed";
        (terms.say)(said);
        let rounds = zero.again(next, &again, own)?;
        if rounds == 0 {
            break;
        }
        next = next.saturating_add(rounds.try_into().unwrap_or(u16::MAX));
    }
    zero.send_keep_alive();
    zero.cross(next, own)
}
