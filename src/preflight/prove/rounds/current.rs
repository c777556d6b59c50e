//! The pair that a node is in.

use std::time::Instant;

use super::agenda::Turn;
use crate::preflight::meet::times::{ASK_AFTER, GRACE};
use crate::preflight::prove::call::BUSY;
use crate::preflight::prove::pair::{PairFailure, PairOutcome};
use crate::preflight::prove::task::{Task, TaskError};

pub(super) struct Pair {
    pub turn: Turn,
    pub since: Instant,
    pub at: At,
}

pub(super) enum At {
    /// This node calls, and tests the rails.
    Calling(Task),
    /// The other node has called, and both test the rails.
    Trying(Task),
    /// This node waits for the other one, and may ask it.
    Waiting { asking: Option<Task>, failed: Option<(Instant, PairFailure)> },
}

impl Pair {
    /// Returns whether the other node's call is overdue and this node has not asked it yet.
    pub(super) fn is_late(&self) -> bool {
        matches!(&self.at, At::Waiting { asking: None, failed: None }) && self.since.elapsed() >= ASK_AFTER
    }

    /// Returns the process that works for this pair.
    pub(super) fn task(&self) -> Option<&Task> {
        match &self.at {
            At::Calling(task) | At::Trying(task) | At::Waiting { asking: Some(task), .. } => Some(task),
            At::Waiting { asking: None, .. } => None,
        }
    }

    /// Returns when something is due, if nothing happens before that.
    pub(super) fn due(&self) -> Instant {
        let due = match (&self.at, self.task()) {
            (_, Some(task)) => task.deadline(),
            (At::Waiting { failed: Some((at, _)), .. }, None) => *at + GRACE,
            (_, None) => self.since + ASK_AFTER,
        };
        due.min(self.turn.until)
    }

    /// Returns how the pair ended, if it has ended. It ends with its round, whatever the other node
    /// does.
    pub(super) fn outcome(&mut self) -> Option<PairOutcome> {
        let found = self.found();
        let is_over = || Instant::now() >= self.turn.until;
        found.or_else(|| {
            is_over().then(|| match &self.at {
                At::Waiting { failed: Some((_, failure)), .. } => PairOutcome::Failed(failure.clone()),
                At::Waiting { .. } => PairOutcome::Failed(PairFailure::Refused(BUSY.to_owned())),
                At::Calling(_) | At::Trying(_) => PairOutcome::Failed(PairFailure::Silent),
            })
        })
    }

    fn found(&mut self) -> Option<PairOutcome> {
        let found = |task: &mut Task| {
            Some(match task.result::<PairOutcome>()? {
                Ok(outcome) => outcome,
                Err(TaskError::Late) => PairOutcome::Failed(PairFailure::Silent),
                Err(TaskError::Ended) => PairOutcome::Failed(PairFailure::Refused(
                    "the process for the pair exited without a result".to_owned(),
                )),
            })
        };
        let outcome = match &mut self.at {
            At::Calling(task) | At::Trying(task) => return found(task),
            At::Waiting { asking: Some(task), .. } => found(task)?,
            At::Waiting { asking: None, failed } => {
                let (at, failure) = failed.clone()?;
                return (at.elapsed() >= GRACE).then_some(PairOutcome::Failed(failure));
            }
        };
        // This node could not ask the peer, or the peer reports why it will not call. Its call may
        // already be on its way.
        match outcome {
            PairOutcome::Failed(failure) => {
                self.at = At::Waiting { asking: None, failed: Some((Instant::now(), failure)) };
                None
            }
            rails => Some(rails),
        }
    }
}
