//! A process takes part in the preflight of its job, as what starts it says.

use std::time::Duration;

use super::evidence::{Evidence, Member};
use super::judging::{Judged, Limits};
use super::local;
use super::message::Told;
use super::node::Node;
use super::own::Rails;
use super::part::Part;
use super::progress::Progress;
use super::run::{self, Outcome};
use super::schedule::Extent;
use crate::compare::brief::Brief;
use crate::config::TOKEN_VARIABLE;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::self_test::pair;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::wire::Address;

/// How a process takes part.
pub struct Terms<'a> {
    pub part: &'a Part,
    /// How long all nodes are waited for.
    pub wait: Duration,
    /// What the nodes know each other by; empty where anybody may be one of them.
    pub token: &'a str,
    pub rounds: Extent,
    pub scope: Scope,
    pub limits: Limits,
    pub say: &'a dyn Fn(&str),
    /// As for [`Zero`](super::zero::Terms).
    pub show: Option<&'a dyn Fn(&Progress)>,
}

/// Takes part, with what is known of this node. This process must be single-threaded.
///
/// # Errors
/// A sentence: there is no verdict, and why.
pub fn run(terms: &Terms, facts: &Facts, plan: &Plan, report: &Report) -> Result<Outcome, String> {
    let part = terms.part;
    if !terms.token.is_empty() {
        pair::sound(terms.token)?;
    }
    if part.nodes == 1 {
        return Ok(alone(terms, facts, plan, report));
    }
    if part.local_rank > 0 {
        let meeting = local::Meeting::of(part.job.as_deref(), part.node, part.local_rank)?;
        return meeting.wait(run::longest(terms.wait)).map(|told| Outcome { told, judged: None });
    }
    let first = local::Meeting::of(part.job.as_deref(), part.node, 0);
    let doer = first.as_ref().ok().and_then(|meeting| meeting.begin().ok());
    let outcome = first_task(terms, facts, plan, report);
    if let Some(doer) = doer {
        doer.tell(outcome.as_ref().map(|outcome| outcome.told.clone()).map_err(Clone::clone));
    }
    outcome
}

/// For a job of one node, where nothing is to be proved between nodes. The first task of it tells more.
fn alone(terms: &Terms, facts: &Facts, plan: &Plan, report: &Report) -> Outcome {
    let rails = Rails::of(facts, plan, report, terms.scope).names();
    let member = Member { name: report.host.clone(), rails, ..Member::default() };
    let judged = Judged::alone(Evidence::new(vec![member], 0), terms.limits);
    let told = Told { passed: true, line: judged.verdict().line_of(0), reason: None };
    Outcome { told, judged: (terms.part.local_rank == 0).then_some(judged) }
}

fn first_task(terms: &Terms, facts: &Facts, plan: &Plan, report: &Report) -> Result<Outcome, String> {
    let part = terms.part;
    if terms.token.is_empty() {
        (terms.say)(&format!(
            "preflight: takes whoever comes for a node of this job, as {TOKEN_VARIABLE} is not set"
        ));
    }
    // Node 0 may do without a place: it listens on all of its addresses.
    let meet = part.meet.as_deref().map_or(Ok(Address::everywhere()), str::parse)?;
    let node = Node {
        node: part.node,
        nodes: part.nodes,
        job: part.job.clone(),
        meet,
        wait: terms.wait,
        token: terms.token,
        names: &part.names,
        rails: Rails::of(facts, plan, report, terms.scope),
        report: Brief::from(report),
        extent: terms.scope,
        say: terms.say,
    };
    run::run(&node, terms.rounds, terms.limits, terms.show)
}
