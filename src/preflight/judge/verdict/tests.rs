use super::*;
use crate::preflight::judge::evidence::{Debt, Member};
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::prove::pair::{Measured, PairFailure, PairOutcome, PairReport, RailReport};

/// Returns a job with the rails `mlx5_0` and `mlx5_1`, in which `of` returns what a node reports about
/// its rail to a peer.
fn job(nodes: u32, of: &dyn Fn(u32, u32, usize) -> Result<f32, &'static str>) -> Evidence {
    let schedule = Schedule { nodes, extent: Extent::Doubling };
    let member = |node| Member {
        name: format!("gpu-{node:02}"),
        of_launcher: Name::Launcher(format!("gpu-{node:02}")),
        rails: vec!["mlx5_0".into(), "mlx5_1".into()],
        ..Member::default()
    };
    let mut evidence = Evidence::new((0..nodes).map(member).collect(), schedule.rounds() as u16);
    let mut hold = |round: u16, node: u32, partner: u32| {
        let rails = (0..2).map(|rail| {
            RailReport::new(
                rail as u16,
                of(node, partner, rail).map(|gbps| Measured { latency_us: 2.0, gbps }).map_err(str::to_owned),
            )
        });
        let outcome = PairOutcome::Rails(rails.collect());
        evidence.add(PairReport { round, node, partner, seconds: 1.5, outcome });
    };
    for round in 0..schedule.rounds() {
        for (a, b) in schedule.pairs(round) {
            hold(round as u16, a, b);
            hold(round as u16, b, a);
        }
    }
    for _ in 0..culprit::MOST_TIMES {
        let next = evidence.tries().iter().map(|one| one.round + 1).max().unwrap_or_default();
        let rounds = culprit::next_rounds(&evidence, &outliers::suspects(&evidence, None));
        for (round, (a, b)) in
            rounds.iter().zip(next..).flat_map(|(pairs, round)| pairs.iter().map(move |pair| (round, *pair)))
        {
            for (node, partner) in [(a, b), (b, a)] {
                let rails = (0..2).map(|rail| {
                    RailReport::new(
                        rail as u16,
                        of(node, partner, rail)
                            .map(|gbps| Measured { latency_us: 2.0, gbps })
                            .map_err(str::to_owned),
                    )
                });
                let outcome = PairOutcome::Rails(rails.collect());
                evidence.add(PairReport { round, node, partner, seconds: 1.5, outcome });
            }
        }
    }
    evidence
}

fn bad(node: u32, partner: u32, is_at_fault: bool) -> Result<f32, &'static str> {
    match is_at_fault {
        true if node == 3 => Err("the port is DOWN now"),
        true if partner == 3 => Err("wait for the other end failed: no completion came in time"),
        _ => Ok(390.0),
    }
}

#[test]
fn a_sound_job_passes_with_one_line() {
    let evidence = job(4, &|_, _, _| Ok(390.0));
    let verdict = judge(&evidence, &Inputs { seconds: 14.25, ..Inputs::default() });
    assert_eq!(verdict.line_of(2), "preflight passed: 4 nodes, 2 rails, 4 pairs in 14.2 s");
    assert_eq!(verdict.reason(), None);
    let over_tcp =
        judge(&evidence, &Inputs { seconds: 14.25, transport: "sockets".into(), ..Inputs::default() });
    let line = "preflight passed: 4 nodes, 2 rails over TCP (mlx5_0, mlx5_1), 4 pairs in 14.2 s";
    assert_eq!(over_tcp.line_of(2), line);
    let alone = Evidence::new(vec![Member::default()], 0);
    let line = judge(&alone, &Inputs::default()).line_of(0);
    assert_eq!(line, "preflight passed: 1 node, so there is no path between nodes to test");
}

#[test]
fn the_reason_names_the_node_and_the_rail() {
    let evidence = job(8, &|node, partner, rail| bad(node, partner, rail == 1));
    let verdict = judge(&evidence, &Inputs::default());
    let reason = "gpu-03 mlx5_1 fails with each of the 4 nodes that it was tested with: the port is DOWN now";
    assert_eq!(verdict.reason(), Some(reason));
    assert_eq!(verdict.line_of(0), format!("preflight failed: {reason}"));
    assert_eq!(verdict.line_of(3), format!("preflight failed, and this node is faulty: {reason}"));
    assert_eq!(verdict.exclude(), ["gpu-03"]);
}

#[test]
fn sentences_of_all_kinds() {
    let reason =
        |evidence: &Evidence| judge(evidence, &Inputs::default()).reason().unwrap_or_default().to_owned();
    let whole = job(8, &|node, partner, _| bad(node, partner, true));
    assert!(reason(&whole).starts_with("gpu-03 fails on all rails with each of the 4 nodes"));
    let link = job(8, &|node, partner, rail| match [node.min(partner), node.max(partner)] {
        [2, 3] if rail == 1 => Err("send failed: transport retry counter exceeded"),
        _ => Ok(390.0),
    });
    assert_eq!(
        reason(&link),
        "between gpu-02 and gpu-03 on rail 1 (mlx5_1): both pass with other peers: send failed: transport retry counter exceeded"
    );
    let cut = job(16, &|node, partner, rail| match (node < 4) != (partner < 4) && rail == 0 {
        true => Err("send failed"),
        false => Ok(390.0),
    });
    assert_eq!(
        reason(&cut),
        "gpu-00..gpu-03 (4 nodes) reach each other on rail 0 (mlx5_0), but none of the other 12: send failed"
    );
    // Half of the paths of a leaf are dead.
    let partial = job(32, &|node, partner, rail| {
        let is_dead = (node.min(partner) * 5 + node.max(partner) * 3) % 7 < 4;
        match (8..16).contains(&node) != (8..16).contains(&partner) && rail == 0 && is_dead {
            true => Err("send failed"),
            false => Ok(390.0),
        }
    });
    assert_eq!(
        reason(&partial),
        "gpu-08..gpu-15 (8 nodes) reach the other 24 only in part on rail 0 (mlx5_0): 14 of the 26 pairs between them fail: send failed"
    );
    assert!(judge(&partial, &Inputs::default()).accused().is_empty());
    let denied = job(8, &|node, partner, rail| match (node, partner, rail) {
        (5, 4, 1) => Err("send failed"),
        _ => Ok(390.0),
    });
    assert_eq!(
        reason(&denied),
        "between gpu-04 and gpu-05 on rail 1 (mlx5_1): both pass with other peers: gpu-05 reports a failure, but gpu-04 reports that it passed: send failed"
    );
    let none = job(8, &|_, _, rail| if rail == 0 { Err("send failed") } else { Ok(390.0) });
    assert_eq!(reason(&none), "no node reaches another on rail 0 (mlx5_0) (8 nodes): send failed");
    let two = job(2, &|_, _, rail| if rail == 0 { Err("send failed") } else { Ok(390.0) });
    assert_eq!(
        reason(&two),
        "between gpu-00 and gpu-01 on rail 0 (mlx5_0): with only two nodes, the faulty one cannot be identified: send failed"
    );
}

#[test]
fn missing_and_unfit_nodes_are_named_by_their_index() {
    let mut evidence = Evidence::new(vec![Member::default(); 8], 3);
    evidence.lose(2, Gone::NeverJoined("10m".into()));
    evidence.lose(3, Gone::Silent("nothing for 20 s".into()));
    let unfit = [(1, "limits: memlock".to_owned())];
    let verdict = judge(&evidence, &Inputs { unfit: unfit.into(), ..Inputs::default() });
    assert_eq!(
        verdict.reason().unwrap(),
        "node 2 did not join within 10m; node 3 does not answer: nothing for 20 s; node 1 failed its own self-test: limits: memlock"
    );
    assert_eq!(verdict.accused(), [1, 2, 3]);
    // The nodes have no names that a scheduler knows.
    assert!(verdict.exclude().is_empty());
    let gap = "the list of faulty nodes is incomplete: node 1..node 3 are faulty but have no names that a scheduler can use: the launcher does not give node 0 the names of the nodes, and node 0 never lists a name that only the node itself reports";
    assert_eq!(verdict.gap().as_deref(), Some(gap));
}

#[test]
fn nothing_passes_with_pairs_that_were_not_reported() {
    let debt = |owed, is_late| Debt { owed, of: 9, is_late };
    let judged = |debts: &[(u32, Debt)]| {
        let mut evidence = job(4, &|_, _, _| Ok(390.0));
        evidence.schedule(55);
        evidence.close(debts.iter().copied().collect());
        let verdict = judge(&evidence, &Inputs::default());
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!((&json["pairs_scheduled"], &json["pairs_tried"]), (&55.into(), &4.into()));
        let kinds = json["faults"].as_array().unwrap().iter().map(|fault| fault["kind"].clone()).collect();
        (verdict.passed, verdict.line_of(0), verdict.exclude(), serde_json::Value::Array(kinds))
    };
    let said = "preflight failed: gpu-02 owes 3 of its 9 pairs: it is connected, but has not reported \
                their results (4 of 55 pairs were tried)";
    let late = judged(&[(2, debt(3, true)), (3, debt(1, false))]);
    assert_eq!(late, (false, said.to_owned(), vec!["gpu-02".to_owned()], serde_json::json!(["owes"])));
    let said = "preflight failed: 4 of 55 pairs were tried, and then the time ran out";
    let all = judged(&[(2, debt(3, false)), (3, debt(3, false))]);
    assert_eq!(all, (false, said.to_owned(), Vec::new(), serde_json::json!(["unfinished"])));
}

#[test]
fn what_is_slow_is_a_warning_or_a_refusal() {
    let evidence = job(16, &|node, _, rail| Ok(if (node, rail) == (3, 1) { 90.0 } else { 390.0 }));
    let verdict = judge(&evidence, &Inputs { seconds: 5.0, ..Inputs::default() });
    assert!(verdict.passed);
    assert!(
        verdict.line_of(0).ends_with("in 5.00 s; 1 warning, which node 0 reports"),
        "{}",
        verdict.line_of(0)
    );
    let refused = judge(&evidence, &Inputs { enforce_slow: true, ..Inputs::default() });
    assert_eq!(refused.reason(), Some("gpu-03 mlx5_1: 90.0 Gbit/s at best, but others have 390 Gbit/s"));
    assert_eq!(refused.exclude(), ["gpu-03"]);
}

#[test]
fn the_document_has_every_pair() {
    let mut evidence = job(8, &|node, partner, rail| bad(node, partner, rail == 1));
    let outcome = PairOutcome::Failed(PairFailure::Silent);
    evidence.add(PairReport { round: 9, node: 5, partner: 0, seconds: 20.0, outcome });
    let verdict = judge(&evidence, &Inputs { seconds: 3.0, transport: "verbs".into(), ..Inputs::default() });
    let text = serde_json::to_string(&verdict).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["passed"], false);
    assert_eq!(json["exclude"], serde_json::json!(["gpu-03"]));
    assert_eq!(json["faults"][0]["kind"], "node");
    assert_eq!(json["faults"][0]["rails"], serde_json::json!([1]));
    assert_eq!(json["pairs"].as_array().unwrap().len(), evidence.tries().len());
    assert_eq!(
        json["pairs"][0],
        serde_json::json!({"round": 0, "nodes": [0, 1], "seconds": 1.5, "rails": [
            {"rail": 0, "latency_us": 2.0, "gbps": [390.0, 390.0]},
            {"rail": 1, "latency_us": 2.0, "gbps": [390.0, 390.0]},
        ]})
    );
    let last = json["pairs"].as_array().unwrap().last().unwrap();
    assert_eq!(last["error"], "it says nothing");
}

#[test]
fn an_empty_exclusion_list_is_explained() {
    let two = job(2, &|_, _, rail| if rail == 0 { Err("send failed") } else { Ok(390.0) });
    let verdict = judge(&two, &Inputs::default());
    let gap = "the list of faulty nodes is empty, because no single node is faulty";
    assert_eq!((verdict.exclude().len(), verdict.gap().as_deref()), (0, Some(gap)));
    let sound = job(4, &|_, _, _| Ok(390.0));
    assert_eq!(judge(&sound, &Inputs::default()).gap(), None);
}

#[test]
fn names_of_others_cannot_move_the_cursor() {
    let mut evidence = Evidence::new(
        vec![
            Member { name: "a\u{1b}[2J".into(), rails: vec!["x\n".into()], ..Member::default() },
            Member::default(),
        ],
        1,
    );
    let outcome = PairOutcome::Rails(vec![RailReport::new(0, Err("\u{202e}evil".into()))]);
    evidence.add(PairReport { round: 0, node: 0, partner: 1, seconds: 1.0, outcome });
    let line = judge(&evidence, &Inputs::default()).line_of(0);
    assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
}

#[test]
fn only_names_of_hosts_are_left_out_and_each_once() {
    let names =
        ["gpu-07", "gpu-07 (node 1)", "gpu-[0-99]", "--all", "a,b", "a\nb", "", "(node 7)", "n.example"];
    let member = |name: &str| Member { of_launcher: Name::Launcher(name.to_owned()), ..Member::default() };
    let others = std::iter::repeat_n(Member::default(), 10);
    let evidence = Evidence::new(names.map(member).into_iter().chain(others).collect(), 1);
    let unfit: Vec<_> = (0..9).map(|node| (node, "x".to_owned())).collect();
    let verdict = judge(&evidence, &Inputs { unfit, ..Inputs::default() });
    assert_eq!(verdict.exclude(), ["gpu-07", "n.example"]);
}

#[test]
fn a_scheduler_is_told_its_own_name_of_a_node() {
    let of = |of_launcher: Name, is_contested: bool| {
        let member = Member { name: "gpu-01".to_owned(), of_launcher, ..Member::default() };
        let mut evidence = Evidence::new(vec![member, Member::default(), Member::default()], 1);
        if is_contested {
            evidence.contest(0, ["gpu-01 at 10.0.0.1:5".to_owned(), "gpu-07 at 10.0.0.7:6".to_owned()]);
        }
        let unfit = [(0, "x".to_owned())];
        let verdict = judge(&evidence, &Inputs { unfit: unfit.into(), ..Inputs::default() });
        let why = verdict.gap().map(|gap| gap.rsplit(": ").next().unwrap_or_default().to_owned());
        (verdict.exclude(), why, verdict.reason().unwrap_or_default().to_owned())
    };
    let named = |name: &str| Name::Launcher(name.to_owned());
    let (names, why, _) = of(named("gpu-09"), false);
    assert_eq!((names, why), (vec!["gpu-09".to_owned()], None));
    let (names, why, reason) = of(named("gpu-09"), true);
    assert_eq!((names.len(), why.as_deref()), (0, Some("two nodes joined with the index 0")));
    let both = "two nodes joined with the index 0: gpu-01 at 10.0.0.1:5, and gpu-07 at 10.0.0.7:6; neither is trusted over the other";
    assert!(reason.contains(both), "{reason}");
    for (name, wanted) in [
        (Name::Unknown, "node 0 never lists a name that only the node itself reports"),
        (Name::Differs("gpu-09".to_owned()), "not all nodes report the names that it lists"),
        (Name::Shared("gpu-09".to_owned()), "more than one node is named gpu-09"),
        (named("gpu-[0-9]"), "gpu-[0-9] is not a host name"),
    ] {
        let (names, why, _) = of(name, false);
        assert!(names.is_empty() && why.as_ref().is_some_and(|why| why.ends_with(wanted)), "{why:?}");
    }
}

#[test]
fn half_of_the_job_or_more_is_never_in_the_list() {
    let member = |node| Member { of_launcher: Name::Launcher(format!("gpu-{node:02}")), ..Member::default() };
    let judged = |faulty: u32| {
        let evidence = Evidence::new((0..4).map(member).collect(), 2);
        let unfit: Vec<_> = (0..faulty).map(|node| (node, "x".to_owned())).collect();
        let verdict = judge(&evidence, &Inputs { unfit, ..Inputs::default() });
        (verdict.exclude().len(), verdict.gap())
    };
    assert_eq!(judged(1), (1, None));
    let gap =
        "the list of faulty nodes is empty, because it would contain half of the job or more: 2 of 4 nodes";
    assert_eq!(judged(2), (0, Some(gap.to_owned())));
}

#[test]
fn a_node_0_that_the_others_do_not_reach_is_named_and_no_node_is_accused() {
    let said = |absent: std::ops::Range<u32>| {
        let mut evidence = Evidence::new(vec![Member::default(); 5], 3);
        evidence.meet_at("10.0.0.1:18516", None);
        absent.for_each(|node| evidence.lose(node, Gone::NeverJoined("10m".into())));
        let verdict = judge(&evidence, &Inputs::default());
        (verdict.accused().len(), verdict.reason().unwrap_or_default().to_owned())
    };
    let unreached =
        "no node reaches node 0 at 10.0.0.1:18516: within 10m, none of the others joined (5 nodes)";
    assert_eq!(said(1..5), (0, unreached.to_owned()));
    let few = "most nodes do not reach node 0 at 10.0.0.1:18516: 2 of 5 nodes joined within 10m, with node 0";
    assert_eq!(said(2..5), (0, few.to_owned()));
    assert_eq!(said(3..5).0, 2);
}
