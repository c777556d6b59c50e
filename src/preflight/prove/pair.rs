//! What two nodes of a job have proved between them, as both report it to node 0.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// What one node reports about its pair with another node in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairReport {
    /// Counted from 0, over the rounds of the schedule and then those of the retries.
    pub round: u16,
    /// The index of the node that reports.
    pub node: u32,
    /// The index of the other node.
    pub partner: u32,
    /// How long the pair took, in seconds.
    pub seconds: f32,
    pub outcome: PairOutcome,
}

/// In seconds: longer than a pair can take.
const LONGEST: f32 = 7.0 * 24.0 * 3600.0;

impl PairReport {
    /// Returns which figure is impossible for a pair, as a clause; `None` if all are possible.
    pub fn impossible(&self) -> Option<String> {
        if !(0.0..=LONGEST).contains(&self.seconds) {
            return Some(format!("a pair that took {:e} s", self.seconds));
        }
        let PairOutcome::Rails(rails) = &self.outcome else { return None };
        let measured = rails.iter().filter_map(|report| report.result.as_ref().ok());
        measured
            .filter(|of| !of.is_possible())
            .map(|of| format!("{:e} Gbit/s in {:e} us", of.gbps, of.latency_us))
            .next()
    }

    /// Returns the report with the nearest possible figures, for what this node has measured itself.
    pub fn possible(mut self) -> PairReport {
        self.seconds = self.seconds.clamp(0.0, LONGEST);
        if let PairOutcome::Rails(rails) = &mut self.outcome {
            rails
                .iter_mut()
                .filter_map(|report| report.result.as_mut().ok())
                .for_each(|of| *of = of.possible());
        }
        self
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairOutcome {
    /// Both nodes connected, and each rail was tested.
    Rails(Vec<RailReport>),
    /// The two nodes could not test their rails.
    Failed(PairFailure),
}

/// Why two nodes could not test their rails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairFailure {
    /// No connection to the peer over TCP; a sentence that says why.
    Unreachable(String),
    /// The peer is connected, but sends nothing.
    Silent,
    /// The peer closed the connection, or its process exited.
    Left,
    /// The peer violates the protocol, or reports that it cannot take part; a sentence.
    Refused(String),
}

/// One rail of the node that reports, to the same rail of its peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RailReport {
    /// The index in the list of rails that each node reported when it joined.
    pub rail: u16,
    /// The figures, or a sentence that says what went wrong.
    pub result: Result<Measured, String>,
    #[serde(default)]
    pub seen: Seen,
}

impl RailReport {
    /// Returns the report of an end that knows only the result.
    pub fn new(rail: u16, result: Result<Measured, String>) -> RailReport {
        RailReport { rail, result, seen: Seen::default() }
    }
}

/// What one end of a rail knows in addition to the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// What went wrong, if more than a sentence is known about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What this end sent; `None` if it is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// Whether this end's interface sent less than that, because the data leaves through another one.
    #[serde(skip_serializing_if = "is_false")]
    pub astray: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// These connections failed. Over TCP, each end listens, and connects to the other one.
    NoConnection(Ways),
    /// Messages of up to `passed` bytes arrive, but messages of `lost` bytes do not.
    Size { passed: u32, lost: u32 },
    /// This end only waited for the other one, which knows more.
    Waited,
}

/// The connections of a rail of which at least one failed, as the reporting end sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ways {
    /// The one that this end makes: the peer listens.
    ToPartner,
    /// The one that the peer makes: this end listens.
    FromPartner,
    Both,
}

/// What one end sent over one rail in its pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub packets: u64,
    /// How many of these packets were sent again, because they were lost or arrived too late.
    pub again: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The round trip of 8 bytes, in microseconds; 0 if all nodes move data at once and none measures
    /// it.
    pub latency_us: f32,
    /// The bandwidth from this node to its peer, in Gbit/s.
    pub gbps: f32,
}

/// In Gbit/s: the possible speeds of a rail. A rail slower than 1 Mbit/s counts as if it had moved 1
/// Mbit/s.
pub const POSSIBLE_GBPS: RangeInclusive<f32> = 0.001..=100_000.0;

/// In microseconds: the possible round trips of 8 bytes.
const POSSIBLE_US: RangeInclusive<f32> = 0.001..=100_000_000.0;

impl Measured {
    fn is_possible(&self) -> bool {
        POSSIBLE_GBPS.contains(&self.gbps)
            && (self.latency_us == 0.0 || POSSIBLE_US.contains(&self.latency_us))
    }

    fn possible(self) -> Measured {
        let within = |value: f32, range: RangeInclusive<f32>| value.clamp(*range.start(), *range.end());
        let latency_us = match self.latency_us {
            0.0 => 0.0,
            some => within(some, POSSIBLE_US),
        };
        Measured { latency_us, gbps: within(self.gbps, POSSIBLE_GBPS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f32, latency_us: f32, gbps: f32) -> PairReport {
        let outcome = PairOutcome::Rails(vec![RailReport::new(0, Ok(Measured { latency_us, gbps }))]);
        PairReport { round: 0, node: 0, partner: 1, seconds, outcome }
    }

    #[test]
    fn figures_that_no_rail_has_are_impossible() {
        for possible in [report(0.0, 2.5, 390.0), report(60.0, 0.0, 0.001), report(1.0, 90_000.0, 3200.0)] {
            assert_eq!(possible.impossible(), None);
            assert_eq!(possible.clone().possible(), possible);
        }
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for wrong in [0.0, 1e-40, 3e38, -1.0, nan, inf] {
            assert!(report(1.0, 2.5, wrong).impossible().is_some(), "{wrong} Gbit/s");
        }
        for wrong in [1e-40, 3e38, -1.0, nan, inf] {
            assert!(report(1.0, wrong, 390.0).impossible().is_some(), "{wrong} us");
        }
        for wrong in [3e38, -1.0, nan, inf] {
            assert!(report(wrong, 2.5, 390.0).impossible().is_some(), "{wrong} s");
        }
        // A node brings its own measurements into the range that the other nodes accept.
        for slow in [report(1.0, 2.5, 0.0), report(3e9, 1e12, 1e9)] {
            assert!(slow.impossible().is_some() && slow.possible().impossible().is_none());
        }
    }
}
