//! What came of the data between two nodes, as checks and as figures. Pure.

use super::super::check::{Check, Outcome};
use super::super::kinds;
use super::super::report::Rail;
use super::super::verbs::time;
use super::Figures;
use super::message::{Moved, Node};
use super::rails::Found;
use crate::report::style::{shortened, visible};

const DATA: &str = "pair-data";

/// One for each pair of rails.
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
    let (message, error) = match (&left_out, error(&found.mine), error(&found.theirs)) {
        (Some(why), ..) => return Check { message: Some(why.clone()), ..of(Outcome::Skipped) },
        (None, Some(error), None) => (format!("to {there}: {error}."), error),
        (None, None, Some(error)) => (format!("{there} says: {error}."), error),
        (None, Some(near), Some(far)) => (format!("to {there}: {near}. There: {far}."), near),
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
            (format!("to {there}: not tried, as an end was not there in time."), String::new())
        }
    };
    Check { message: Some(message), fix: fix(&error).map(str::to_owned), ..of(Outcome::Failed) }
}

fn fix(error: &str) -> Option<&'static str> {
    if error.contains("retry counter exceeded") || error.contains("no completion") {
        Some(
            "Packets do not come through. On RoCE: do the switches let UDP 4791 and this MTU pass, are both ports in one VLAN, has each rail a route to its counterpart (ip route get)? On InfiniBand: does the subnet manager know both ports (ibtracert)?",
        )
    } else if error.contains("ibv_modify_qp RTR") {
        Some(
            "There is no way to the other end's address: ip route get, ip neigh, and whether both have addresses of one fabric.",
        )
    } else {
        None
    }
}

/// The rails that work.
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
    }

    #[test]
    fn figures_are_of_rails_that_work() {
        let one = |mine, theirs| Found { mtu: [None; 2], mine, theirs, left_out: None };
        let figures = |found| figures(&node("a"), &node("b"), &[found]);
        assert_eq!(figures(one(moved(), Moved { bandwidth_mbps: Some(5), ..moved() }))[0].from_mbps, 5);
        assert_eq!(figures(one(moved(), Moved::default())), []);
    }
}
