//! Why one end of a rail moved no data, as both nodes report it.

use serde::{Deserialize, Serialize};

use crate::verbs::device::PortState;
use crate::verbs::failure::Failure;
use crate::verbs::port_test::ProbeEnd;
use crate::verbs::step::Step;

/// Another node may send any text in these, so they must be made safe to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RailError {
    /// A step failed. `now` is the state of the port if it went down meanwhile.
    #[error("{step} failed: {why}{}", now.map(|state| format!("; the port is {state} now")).unwrap_or_default())]
    Step { step: Step, why: Failure, now: Option<PortState> },
    /// The process of this end exited without a result.
    #[error(transparent)]
    Probe(ProbeEnd),
}

impl RailError {
    /// Returns whether this end only waited for the other one, which knows more.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, RailError::Step { step: Step::Wait, .. })
    }

    pub(super) fn is_of_port(&self) -> bool {
        matches!(self, RailError::Step { why: Failure::Port(_), .. } | RailError::Step { now: Some(_), .. })
    }

    pub(super) fn is_loss(&self) -> bool {
        matches!(self, RailError::Step { why, .. } if why.is_loss())
    }

    /// Returns the step that failed, or at which the process exited.
    pub(super) fn step(&self) -> Option<Step> {
        match self {
            RailError::Step { step, .. } => Some(*step),
            RailError::Probe(end) => end.during(),
        }
    }
}
