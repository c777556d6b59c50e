//! The result of the data between two nodes, as checks and as figures. Pure.

use super::super::check::{Check, Outcome};
use super::super::kinds;
use super::super::report::Rail;
use super::error::RailError;
use super::message::{Moved, Node};
use super::rails::Found;
use crate::self_test::report::Figures;
use crate::text::{microseconds, shortened, visible};
use crate::verbs::step::Step;

const DATA: &str = "pair-data";

/// Returns one check for each pair of rails.
pub(super) fn checks(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<Check> {
    let rails = mine.rails.iter().zip(&theirs.rails).zip(found);
    rails.map(|((near, far), found)| check(near, far, &theirs.host, found)).collect()
}

fn check(near: &Rail, far: &Rail, host: &str, found: &Found) -> Check {
    let subject = Some(name(near));
    let of = |outcome| Check { subject: subject.clone(), ..kinds::check(DATA, outcome) };
    let there = format!("{} of {host}", name(far));
    let errors: Vec<&RailError> =
        [&found.mine, &found.theirs].into_iter().flat_map(|end| &end.error).collect();
    let error = |moved: &Moved| moved.error.as_ref().map(|error| visible(&shortened(&error.to_string())));
    let skipped = [&found.mine.skipped, &found.theirs.skipped].into_iter().flatten().next();
    let left_out = found.left_out.clone().or_else(|| skipped.map(|why| visible(&shortened(why))));
    let message = match (&left_out, error(&found.mine), error(&found.theirs)) {
        (Some(why), ..) => return Check { message: Some(why.clone()), ..of(Outcome::Skipped) },
        (None, Some(error), None) => format!("to {there}: {error}."),
        (None, None, Some(error)) => format!("{there} says: {error}."),
        (None, Some(near), Some(far)) => format!("to {there}: {near}. There: {far}."),
        (None, None, None) if found.mine.verified && found.theirs.verified => {
            let latency = found
                .mine
                .latency_ns
                .map(|ns| format!("8 bytes there and back in {}", microseconds(ns / 1000)));
            return Check {
                evidence: [format!("data arrived unchanged, to {there} and from it")]
                    .into_iter()
                    .chain(latency)
                    .collect(),
                ..of(Outcome::Passed)
            };
        }
        (None, None, None) => {
            format!("to {there}: not tried, as one of the two nodes was not ready in time.")
        }
    };
    Check { message: Some(message), fix: fix(&errors).map(str::to_owned), ..of(Outcome::Failed) }
}

/// Returns the fix for the cause, based on what both ends report. If nothing arrived from the other
/// end, the cause is there.
fn fix(errors: &[&RailError]) -> Option<&'static str> {
    let error = errors.iter().find(|error| !error.is_waiting()).or(errors.first())?;
    if errors.iter().any(|error| error.is_of_port()) {
        Some("Check the cable, the switch and the interface (ip link) of the port.")
    } else if error.is_loss() {
        Some(
            "Packets do not arrive. On RoCE, check that the switches forward UDP 4791 and this MTU, that both ports are in one VLAN, and that each rail has a route to its counterpart (ip route get). On InfiniBand, check that the subnet manager knows both ports (ibtracert).",
        )
    } else if error.step() == Some(Step::ToReceive) {
        Some(
            "There is no route to the other end's address. Check ip route get and ip neigh, and that both ends have addresses in one fabric.",
        )
    } else {
        None
    }
}

/// Returns the figures of the rails that passed.
pub(super) fn figures(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<Figures> {
    let rails = mine.rails.iter().zip(&theirs.rails).zip(found);
    let figures = rails.filter(|(_, found)| found.mine.verified && found.theirs.verified).filter_map(
        |((near, far), found)| {
            Some(Figures {
                near: name(near),
                far: name(far),
                latency_ns: found.mine.latency_ns?,
                to_mbps: found.mine.bandwidth_mbps?,
                from_mbps: found.theirs.bandwidth_mbps?,
            })
        },
    );
    figures.collect()
}

fn name(rail: &Rail) -> String {
    format!("{}:{}", rail.hca, rail.port)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::verbs::device::PortState;
    use crate::verbs::failure::Failure;
    use crate::verbs::port_test::ProbeEnd;

    fn node(host: &str) -> Node {
        let rail = Rail { hca: "mlx5_0".into(), port: 1, ..Rail::default() };
        Node { host: host.into(), nccl: None, rails: vec![rail] }
    }

    fn moved() -> Moved {
        Moved { verified: true, latency_ns: Some(3000), bandwidth_mbps: Some(90_000), ..Moved::default() }
    }

    fn of(mine: Moved, theirs: Moved) -> Check {
        let found = [Found { mtu: [None; 2], mine, theirs, left_out: None }];
        checks(&node("a"), &node("b"), &found).remove(0)
    }

    #[test]
    fn data_has_to_arrive_both_ways() {
        assert_eq!(of(moved(), moved()).outcome, Outcome::Passed);
        for (mine, theirs) in [(Moved::default(), moved()), (moved(), Moved::default())] {
            assert_eq!(of(mine, theirs).outcome, Outcome::Failed);
        }
        let failed =
            |step, why, now| Moved { error: Some(RailError::Step { step, why, now }), ..Moved::default() };
        let lost = || {
            let text = "transport retry counter exceeded".to_owned();
            failed(Step::Send, Failure::Completion { status: 12, text }, None)
        };
        let check = of(lost(), Moved::default());
        let message = check.message.unwrap();
        assert!(
            message.contains("to mlx5_0:1 of b: send failed: transport retry counter exceeded."),
            "{message}"
        );
        assert!(check.fix.unwrap().contains("UDP 4791"));
        let waited = || failed(Step::Wait, Failure::NoCompletion, None);
        let killed = ProbeEnd::Crashed { signal: "SIGSEGV".into(), during: Some(Step::Latency) };
        let killed = Moved { error: Some(RailError::Probe(killed)), ..Moved::default() };
        assert_eq!(of(waited(), killed).fix, None);
        assert!(of(waited(), lost()).fix.unwrap().contains("UDP 4791"));
        let long = failed(Step::Send, Failure::LongMessage(Box::new(Failure::NoCompletion)), None);
        assert!(of(waited(), long).fix.unwrap().contains("UDP 4791"));
        let down = failed(Step::Send, Failure::OtherData, Some(PortState::Down));
        assert!(of(waited(), down).fix.unwrap().contains("cable"));
        let no_route = failed(Step::ToReceive, Errno::ENETUNREACH.into(), None);
        assert!(of(no_route, Moved::default()).fix.unwrap().contains("no route"));
    }

    #[test]
    fn figures_are_of_rails_that_work() {
        let one = |mine, theirs| Found { mtu: [None; 2], mine, theirs, left_out: None };
        let figures = |found| figures(&node("a"), &node("b"), &[found]);
        assert_eq!(figures(one(moved(), Moved { bandwidth_mbps: Some(5), ..moved() }))[0].from_mbps, 5);
        assert_eq!(figures(one(moved(), Moved::default())), []);
    }
}
