//! The preflight of one process: as node 0, or as any other node.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use nix::libc::SIGCHLD;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::culprit;
use super::judging::{Judged, Judging, Limits};
use super::message::Told;
use super::node::Node;
use super::outliers;
use super::progress::Progress;
use super::schedule::Extent;
use super::task::Task;
use super::verdict;
use super::zero::{PROVING, Terms, Zero};
use crate::sys::signals;
use crate::wire::Address;
use crate::wire::listen::Listener;

/// What to do where node 0 cannot have the port.
const TAKEN: &str = "Another job may be on this machine: give all nodes of this one another port, as in \
                     --meet HOST:PORT (before a command preflight-meet).";

/// How the preflight has ended.
pub struct Outcome {
    pub told: Told,
    /// All that node 0 knows; other nodes know no more than their line.
    pub judged: Option<Judged>,
}

/// The longest time that a preflight takes, where nodes are waited for this long.
pub fn longest(wait: Duration) -> Duration {
    // The rounds, the second tries, and telling.
    wait.saturating_add(PROVING).saturating_add(PROVING)
}

/// Takes part as this node. This process must be single-threaded.
///
/// # Errors
/// A sentence: there is no verdict, and why.
pub fn run(
    node: &Node,
    extent: Extent,
    limits: Limits,
    show: Option<&dyn Fn(&Progress)>,
) -> Result<Outcome, String> {
    // Where SIGCHLD is ignored, the kernel would forget how a child ended.
    let sigchld = signals::set_default(SIGCHLD);
    let outcome = match node.node {
        0 => zero(node, extent, limits, show),
        _ => node.take_part().map(|told| Outcome { told, judged: None }),
    };
    sigchld.restore();
    outcome
}

/// As node 0: one process hears all nodes, and another one takes part like any node.
fn zero(
    node: &Node,
    extent: Extent,
    limits: Limits,
    show: Option<&dyn Fn(&Progress)>,
) -> Result<Outcome, String> {
    let until = Instant::now() + node.wait;
    let everywhere = Address::on_port(node.meet.port);
    let place = if node.meet.is_loopback() { &node.meet } else { &everywhere };
    let listener = Listener::at(place, until).map_err(|why| match why.contains("in use") {
        true => format!("{why} {TAKEN}"),
        false => why,
    })?;
    let own = match listener.own.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.own.port()),
        ip => SocketAddr::new(ip, listener.own.port()),
    };
    let own = node.at(Address::of(own));
    let terms = Terms {
        nodes: node.nodes,
        job: node.job.clone(),
        wait: node.wait,
        until,
        token: node.token,
        extent,
        names: node.names,
        say: node.say,
        show,
    };
    let files = getrlimit(Resource::RLIMIT_NOFILE);
    let mut task = Task::start(longest(node.wait), &[], || own.take_part())
        .map_err(|errno| format!("no process for this node: {errno}."))?;
    allow_nodes(node.nodes);
    let told = hear(&terms, limits, &listener, &task);
    // The command gets the limit that this process had.
    if let Ok((soft, hard)) = files {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    }
    let said = task.result::<Result<Told, String>>();
    told.map_err(|why| match said {
        Some(Ok(Err(of_node))) => format!("{why} {of_node}"),
        _ => why,
    })
}

/// Raises the limit of open files, so that each node may have one; as far as the hard limit goes.
pub fn allow_nodes(nodes: u32) {
    // Guests, children, and what this process had before.
    let wanted = u64::from(nodes) + 1024;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
}

fn hear(terms: &Terms, limits: Limits, listener: &Listener, task: &Task) -> Result<Outcome, String> {
    let started = Instant::now();
    let mut zero = Zero::new(terms, listener)?;
    let own = task.fd();
    zero.meet(own)?;
    zero.prove(own)?;
    let mut next = zero.heard().evidence.rounds();
    for _ in 0..culprit::MOST_TIMES {
        let evidence = &zero.heard().evidence;
        let again = culprit::next_rounds(evidence, &outliers::find(evidence, limits.least_gbps));
        if again.is_empty() {
            break;
        }
        let said = "preflight: node 0 has nodes that failed or were slow tried again, with nodes that passed";
        (terms.say)(said);
        zero.series(next, &again, own)?;
        next = next.saturating_add(again.len().try_into().unwrap_or(u16::MAX));
    }
    zero.cross(next, own)?;
    let seconds = started.elapsed();
    tracing::debug!("preflight: the rounds are over");
    let judging = Judging::of(zero.heard(), limits, seconds);
    let verdict = verdict::judge(&zero.heard().evidence, &judging.asked());
    let (passed, reason) = (verdict.passed, verdict.reason());
    let lines: Vec<String> = (0..terms.nodes).map(|node| verdict.line_of(node)).collect();
    let told = |node: u32| Told {
        passed,
        line: lines.get(node as usize).cloned().unwrap_or_default(),
        reason: reason.clone(),
    };
    zero.tell(told, own);
    Ok(Outcome { told: told(0), judged: Some(Judged { evidence: zero.into_heard().evidence, judging }) })
}
