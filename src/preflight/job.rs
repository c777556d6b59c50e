//! Has a process take part in the preflight of its job, on the terms that its caller sets.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ipnet::IpNet;
use nix::libc::SIGCHLD;
use serde::{Deserialize, Serialize};

use crate::compare::brief::Brief;
use crate::config::TOKEN_VARIABLE;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::preflight::judge::evidence::{Evidence, Member};
use crate::preflight::judge::judging::{Judged, Limits};
use crate::preflight::meet::listening;
use crate::preflight::meet::message::Told;
use crate::preflight::meet::node::Node;
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::schedule::Extent;
use crate::preflight::prove::task::{Task, TaskError};
use crate::preflight::run::{self, Outcome};
use crate::preflight::who::addresses::Addresses;
use crate::preflight::who::local;
use crate::preflight::who::own::{self, LocalRails, Network};
use crate::preflight::who::part::Part;
use crate::preflight::who::passed::{self, Passed};
use crate::self_test::pair;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::sys::signals;
use crate::wire::Address;

/// The terms on which a process takes part.
pub(crate) struct Terms<'a> {
    pub part: &'a Part,
    /// How long to wait for all nodes.
    pub wait: Duration,
    /// The secret by which the nodes recognize each other; empty if any peer may be a node of the job.
    pub token: &'a str,
    /// Why there is no token, if the job has one but it was kept from this process.
    pub kept_token: Option<&'static str>,
    pub rounds: Extent,
    pub scope: Scope,
    /// Whether a node that has passed before starts without a preflight if it finds no other node.
    pub may_be_alone: bool,
    pub limits: Limits,
    pub say: &'a dyn Fn(&str),
    /// As in node 0's [`Terms`](crate::preflight::meet::zero::Terms).
    pub show: Option<&'a dyn Fn(&Progress)>,
}

/// What the caller of a preflight gets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub told: Told,
    /// As for [`Outcome`].
    pub is_alone: bool,
    /// What could not be published, as sentences; `None` if this node has not judged.
    pub unpublished: Option<Vec<String>>,
}

impl Ending {
    fn heard(told: Told) -> Ending {
        Ending { told, is_alone: false, unpublished: None }
    }

    fn published(outcome: Outcome, publish: Publish) -> Ending {
        let Outcome { told, is_alone, judged } = outcome;
        Ending { told, is_alone, unpublished: judged.map(|judged| publish(&judged)) }
    }
}

/// Publishes what only the node that judges knows. Returns a sentence for each thing that it could not publish.
pub(crate) type Publish<'a> = &'a mut dyn FnMut(&Judged) -> Vec<String>;

/// Takes part, with what is known about this node. `publish` runs in the process that takes part. This process must be
/// single-threaded.
///
/// # Errors
/// There is no verdict.
pub(crate) fn run(
    terms: &Terms,
    facts: &Facts,
    plan: &Plan,
    report: &Report,
    publish: Publish,
) -> anyhow::Result<Ending> {
    let part = terms.part;
    if !terms.token.is_empty() {
        pair::sound(terms.token)?;
    }
    if part.nodes == 1 {
        return Ok(Ending::published(alone(terms, facts, plan, report), publish));
    }
    if part.local_rank > 0 {
        let meeting = local::Meeting::choose(part.job.as_deref(), part.node, part.local_rank)?;
        let longest = run::longest(terms.wait, part.nodes, terms.rounds, terms.scope.each);
        return Ok(Ending::heard(meeting.wait(terms.wait, longest, terms.say)?));
    }
    let passed = Passed::of(part, &report.host).filter(|_| terms.may_be_alone);
    let has_passed = passed.as_ref().is_some_and(Passed::is_known);
    let first = local::Meeting::choose(part.job.as_deref(), part.node, 0);
    let doer = first.as_ref().ok().and_then(|meeting| meeting.begin().ok());
    let ending = match terms.kept_token {
        Some(why) => Err(anyhow!(why)),
        None => apart(terms, || {
            let outcome = first_task(terms, has_passed, facts, plan, report)?;
            Ok(Ending::published(outcome, publish))
        }),
    };
    if let Some(passed) = passed {
        passed.remember(ending.as_ref().is_ok_and(|ending| ending.told.passed));
    }
    if let Some(doer) = doer {
        doer.tell(ending.as_ref().map(|ending| ending.told.clone()).map_err(ToString::to_string));
    }
    ending
}

/// How long node 0 may judge thousands of nodes, and write its files.
const JUDGING: Duration = Duration::from_secs(600);

/// Takes part in a process with few capabilities: what other nodes and strangers send is read there, and not in this
/// process, which becomes the command.
fn apart(terms: &Terms, take_part: impl FnOnce() -> anyhow::Result<Ending>) -> anyhow::Result<Ending> {
    let rounds = run::longest(terms.wait, terms.part.nodes, terms.rounds, terms.scope.each);
    // A node that waits for as long as it may can find a node 0 that has just started to wait.
    let longest = rounds.saturating_add(terms.wait).saturating_add(JUDGING);
    // If SIGCHLD were ignored, the kernel would discard how a child ended.
    let sigchld = signals::set_default(SIGCHLD);
    let task = Task::start(longest, &[], || take_part().map_err(|why| why.to_string()));
    let ending = match task.map(Task::wait::<Result<Ending, String>>) {
        Ok(Ok(Ok(ending))) => Ok(ending),
        // What the process that took part has said is safe to show.
        Ok(Ok(Err(why))) => Err(anyhow::Error::msg(why)),
        Ok(Err(TaskError::Ended)) => Err(anyhow!("the process that took part ended without a verdict")),
        Ok(Err(TaskError::Late)) => Err(anyhow!("the process that took part gave no verdict in its time")),
        Err(errno) => Err(run::no_process(errno)),
    };
    sigchld.restore();
    ending
}

/// Returns the outcome for a job of one node, which has nothing to prove between nodes. Only its first
/// task returns the details.
fn alone(terms: &Terms, facts: &Facts, plan: &Plan, report: &Report) -> Outcome {
    let rails = LocalRails::of(facts, plan, report, terms.scope).names();
    let member = Member { name: report.host.clone(), rails, ..Member::default() };
    let judged = Judged::alone(Evidence::new(vec![member], 0), terms.limits);
    let told = Told { passed: true, line: judged.verdict().line_of(0), reason: None };
    Outcome { told, is_alone: false, judged: (terms.part.local_rank == 0).then_some(judged) }
}

/// How long node 0 looks up its own name. It can do without the result.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Returns where node 0 listens, and why it cannot resolve its own name, if it cannot: then the other nodes can hardly
/// resolve it either.
fn listen(meet: &Address, terms: &Terms, facts: &Facts) -> (Address, Option<String>) {
    let resolved = match meet.is_empty() || meet.is_loopback() {
        true => Ok(Vec::new()),
        false => meet.sockets(Instant::now() + LOOK_UP.min(terms.wait)),
    };
    let addresses = facts.net.interfaces.iter().flat_map(|interface| &interface.addresses);
    let own: Vec<IpAddr> = addresses.map(IpNet::addr).collect();
    let unresolved = resolved.as_ref().err().map(ToString::to_string);
    let place = listening::place(meet, !terms.token.is_empty(), &resolved.unwrap_or_default(), &own);
    (place, unresolved)
}

fn first_task(
    terms: &Terms,
    has_passed: bool,
    facts: &Facts,
    plan: &Plan,
    report: &Report,
) -> anyhow::Result<Outcome> {
    let part = terms.part;
    if terms.token.is_empty() {
        (terms.say)(&format!(
            "preflight: accepts any process as a node of this job, because {TOKEN_VARIABLE} is not set"
        ));
    }
    // Node 0 needs no address: without one, it listens on all of its addresses.
    let meet = part.meet.as_deref().map_or(Ok(Address::everywhere()), str::parse)?;
    let rails = LocalRails::of(facts, plan, report, terms.scope);
    if meet.is_link_local() {
        bail!(
            "{meet} is valid on one link only, so node 0 cannot tell the other nodes how to reach each other: use another address or a name of node 0 (--meet, before a command preflight-meet)"
        );
    }
    let (listen, unresolved) = match part.node {
        0 => listen(&meet, terms, facts),
        _ => (Address::everywhere(), None),
    };
    let left_out = own::left_out(facts, plan, report, terms.scope);
    let node = Node {
        node: part.node,
        nodes: part.nodes,
        job: part.job.clone(),
        meet,
        listen,
        unresolved,
        wait: terms.wait,
        alone_after: has_passed.then_some(passed::PATIENCE.min(terms.wait)),
        token: terms.token,
        names: &part.names,
        are_names_certain: part.are_names_certain,
        left_out: &left_out,
        addresses: Addresses::of(&rails, facts),
        rails,
        network: Network::from_plan(plan),
        report: Brief::from(report),
        extent: terms.scope,
        rounds: terms.rounds,
        say: terms.say,
    };
    run::run(&node, terms.limits, terms.show)
}
