//! The result of the data between two nodes, as checks and as figures. Pure.

use super::super::check::{Check, Outcome};
use super::super::kinds;
use super::super::report::Rail;
use super::super::verbs::time;
use super::found::Found;
use super::message::{Moved, Node};
use crate::self_test::report::Figures;
use crate::text::{shortened, visible};
use crate::verbs::rail::WAITING;

const DATA: &str = "pair-data";

/// One check for each pair of rails.
pub fn checks(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<Check> {
    let rails = mine.rails.iter().zip(&theirs.rails).zip(found);
    rails.map(|((near, far), found)| check(near, far, &theirs.host, found)).collect()
}

fn check(near: &Rail, far: &Rail, host: &str, found: &Found) -> Check {
    let subject = Some(name(near));
    let of = |outcome| Check { subject: subject.clone(), ..kinds::check(DATA, outcome) };
    let there = format!("{} of {host}", name(far));
    let error = |moved: &Moved| moved.error.as_ref().map(|error| visible(&shortened(error)));
    let skipped = [&found.mine.skipped, &found.theirs.skipped].into_iter().flatten().next();
    let left_out = found.left_out.clone().or_else(|| skipped.map(|why| visible(&shortened(why))));
    let (message, errors) = match (&left_out, error(&found.mine), error(&found.theirs)) {
        (Some(why), ..) => return Check { message: Some(why.clone()), ..of(Outcome::Skipped) },
        (None, Some(error), None) => (format!("to {there}: {error}."), vec![error]),
        (None, None, Some(error)) => (format!("{there} says: {error}."), vec![error]),
        (None, Some(near), Some(far)) => (format!("to {there}: {near}. There: {far}."), vec![near, far]),
        (None, None, None) if found.mine.verified && found.theirs.verified => {
            let latency =
                found.mine.latency_ns.map(|ns| format!("8 bytes there and back in {}", time(ns / 1000)));
            return Check {
                evidence: [format!("data arrived unchanged, to {there} and from it")]
                    .into_iter()
                    .chain(latency)
                    .collect(),
                ..of(Outcome::Passed)
            };
        }
        (None, None, None) => {
            (format!("to {there}: not tried, as one of the two nodes was not ready in time."), Vec::new())
        }
    };
    Check { message: Some(message), fix: fix(&errors).map(str::to_owned), ..of(Outcome::Failed) }
}

/// The fix for the cause, found in what both ends say: when nothing came from the other end,
/// the cause is there.
fn fix(errors: &[String]) -> Option<&'static str> {
    let is_cause = |error: &&String| !error.starts_with(WAITING);
    let error = errors.iter().find(is_cause).or(errors.first())?;
    if errors.iter().any(|error| error.contains("the port is")) {
        Some("Look at the cable, the switch and the interface (ip link) of the port.")
    } else if error.contains("retry counter exceeded") || error.contains("no completion") {
        Some(
            "Packets do not come through. On RoCE: do the switches let UDP 4791 and this MTU pass, are both ports in one VLAN, does each rail have a route to its counterpart (ip route get)? On InfiniBand: does the subnet manager know both ports (ibtracert)?",
        )
    } else if error.contains("ibv_modify_qp RTR") {
        Some(
            "There is no way to the other end's address. Look at ip route get and ip neigh, and see that both ends have addresses of one fabric.",
        )
    } else {
        None
    }
}

/// The figures of the rails that work.
pub fn figures(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<Figures> {
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
    use super::*;

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
        let error =
            Moved { error: Some("send failed: transport retry counter exceeded".into()), ..Moved::default() };
        let check = of(error, Moved::default());
        assert!(check.message.unwrap().contains("to mlx5_0:1 of b: send failed"));
        assert!(check.fix.unwrap().contains("UDP 4791"));
        let failed = |error: &str| Moved { error: Some(error.into()), ..Moved::default() };
        let waited = || failed("wait for the other end failed: no completion came in time");
        assert_eq!(of(waited(), failed("the probe was killed by SIGSEGV")).fix, None);
        assert!(of(waited(), failed("send failed: transport retry counter exceeded")).fix.is_some());
        assert!(of(waited(), failed("send failed: x; the port is DOWN now")).fix.unwrap().contains("cable"));
    }

    #[test]
    fn figures_are_of_rails_that_work() {
        let one = |mine, theirs| Found { mtu: [None; 2], mine, theirs, left_out: None };
        let figures = |found| figures(&node("a"), &node("b"), &[found]);
        assert_eq!(figures(one(moved(), Moved { bandwidth_mbps: Some(5), ..moved() }))[0].from_mbps, 5);
        assert_eq!(figures(one(moved(), Moved::default())), []);
    }
}
