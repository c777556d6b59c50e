//! The pair that a node is in.

use std::time::{Duration, Instant};

use crate::preflight::message::Partner;
use crate::preflight::pair::{PairFailure, PairOutcome};
use crate::preflight::task::{Lost, Task};

/// How long a call is waited for before the other node is asked.
const ASK_AFTER: Duration = Duration::from_secs(3);

/// How long a call may still come after the other node could not be asked.
const GRACE: Duration = Duration::from_secs(3);

pub struct Pair {
    pub with: Partner,
    pub since: Instant,
    pub at: At,
}

pub enum At {
    /// This node calls, and tries the rails.
    Calling(Task),
    /// The other node has called, and both try the rails.
    Trying(Task),
    /// The other node is waited for, and perhaps asked.
    Waiting { asking: Option<Task>, failed: Option<(Instant, PairFailure)> },
}

impl Pair {
    /// Whether the call of the other node should have come, and nobody has asked it yet.
    pub fn is_late(&self) -> bool {
        matches!(&self.at, At::Waiting { asking: None, failed: None }) && self.since.elapsed() >= ASK_AFTER
    }

    /// The process that works for this pair.
    pub fn task(&self) -> Option<&Task> {
        match &self.at {
            At::Calling(task) | At::Trying(task) | At::Waiting { asking: Some(task), .. } => Some(task),
            At::Waiting { asking: None, .. } => None,
        }
    }

    /// When something is due, if nothing happens before.
    pub fn due(&self) -> Instant {
        match (&self.at, self.task()) {
            (_, Some(task)) => task.deadline(),
            (At::Waiting { failed: Some((at, _)), .. }, None) => *at + GRACE,
            (_, None) => self.since + ASK_AFTER,
        }
    }

    /// How the pair has ended, if it has.
    pub fn outcome(&mut self) -> Option<PairOutcome> {
        let found = |task: &mut Task| {
            Some(match task.result::<PairOutcome>()? {
                Ok(outcome) => outcome,
                Err(Lost::Late) => PairOutcome::Failed(PairFailure::Silent),
                Err(Lost::Ended) => PairOutcome::Failed(PairFailure::Refused(
                    "the process for the pair has ended without a result".to_owned(),
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
        // The partner could not be asked, or says why it will not call. Its call may be under way.
        match outcome {
            PairOutcome::Failed(failure) => {
                self.at = At::Waiting { asking: None, failed: Some((Instant::now(), failure)) };
                None
            }
            rails => Some(rails),
        }
    }
}
