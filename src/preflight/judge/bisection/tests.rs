use super::*;
use crate::preflight::judge::evidence::{Gone, Member};
use crate::preflight::prove::pair::{Measured, PairFailure, PairReport};

fn report(round: u16, [node, partner]: [u32; 2], gbps: &[Result<f32, &str>]) -> PairReport {
    let rails = gbps.iter().zip(0..).map(|(result, rail)| {
        let measured = result.map(|gbps| Measured { latency_us: 0.0, gbps });
        RailReport::new(rail, measured.map_err(str::to_owned))
    });
    PairReport { round, node, partner, seconds: 2.0, outcome: PairOutcome::Rails(rails.collect()) }
}

/// Returns the evidence of six nodes with two rails of 400 Gbit/s, whose neighbors have passed.
fn evidence() -> Evidence {
    let member = |node| Member { name: format!("h{node}"), rates: vec![400.0; 2], ..Member::default() };
    let mut evidence = Evidence::new((0..6).map(member).collect(), 3);
    for low in [0, 2, 4] {
        evidence.add(report(0, [low, low + 1], &[Ok(390.0); 2]));
    }
    evidence
}

#[test]
fn each_healthy_node_is_paired_at_half_of_their_number() {
    assert_eq!(pairs(&evidence()), [(0, 3), (1, 4), (2, 5)]);
    let mut without = evidence();
    without.lose(3, Gone::Left("x".to_owned()));
    assert_eq!(pairs(&without), [(0, 2), (1, 4)], "one of an odd number rests");
    assert_eq!(pairs(&Evidence::new(vec![Member::default(); 6], 3)), []);
}

#[test]
fn the_bisection_reports_its_sum_minimum_and_share() {
    let mut evidence = evidence();
    evidence.begin_together(&pairs(&evidence));
    assert_eq!(sum(&evidence), None);
    for (low, gbps) in [(0, [400.0, 400.0]), (1, [400.0, 200.0]), (2, [200.0, 400.0])] {
        for nodes in [[low, low + 3], [low + 3, low]] {
            assert!(evidence.add(report(ROUND, nodes, &gbps.map(Ok))));
        }
    }
    assert!(!evidence.add(report(ROUND, [0, 3], &[Ok(1.0)])), "twice");
    assert!(!evidence.add(report(ROUND, [0, 1], &[Ok(1.0)])), "which no node was asked for");
    assert_eq!(evidence.tries().len(), 3, "figures under load are no measure of a pair");
    let least = Least { nodes: [1, 4], rail: 1, gbps: 200.0 };
    assert_eq!(
        sum(&evidence),
        Some(Bisection { pairs: 3, gbps: 4000.0, least, share: Some(4000.0 / 4800.0) })
    );
    assert_eq!(
        sentence(&evidence).unwrap(),
        "3 pairs of distant nodes move 4000 Gbit/s together, both directions at once, 83 % of the rate of their ports; the least is 200 Gbit/s one way, between h1 and h4 on rail 1"
    );
}

#[test]
fn a_failure_under_load_is_evidence_like_any_other() {
    let mut evidence = evidence();
    evidence.begin_together(&pairs(&evidence));
    evidence.add(report(ROUND, [0, 3], &[Ok(400.0), Err("nothing came")]));
    evidence.add(report(ROUND, [3, 0], &[Ok(400.0), Ok(400.0)]));
    let outcome = PairOutcome::Failed(PairFailure::Left);
    evidence.add(PairReport { round: ROUND, node: 1, partner: 4, seconds: 1.0, outcome });
    let [.., first, second] = evidence.tries() else { panic!() };
    assert_eq!((first.rail(0), first.rail(1)), (None, Some(TryOutcome::Failed(0, "nothing came"))));
    assert!(matches!(second.meeting(), Some(TryOutcome::Failed(0, _))));
    assert!(!evidence.is_again(ROUND), "they are tried again");
    assert_eq!(sum(&evidence).unwrap().least.nodes, [0, 3]);
}
