use super::*;
use crate::watch::job::message::PortState;
use crate::watch::job::words::{self, Clocks, moves_again, stalled};

const SECOND: Duration = Duration::from_secs(1);

/// Ten minutes after the last movement, at 14:13:50.
const NOW: Duration = Duration::from_secs(4230);
const CLOCKS: Clocks =
    Clocks { now: NOW, wall: Duration::from_secs(20_000 * 86_400 + 14 * 3600 + 13 * 60 + 50) };

/// A node that was asked at NOW, answered at once, and moved data until `ago` seconds before, as looks each 10 s tell.
fn stopped(name: &str, ago: u64, ports: &[PortCounts]) -> Report {
    let moved = Moved::Ago { ms: ago * 1000, between_ms: 10_000 };
    let state = State { moved, ports: ports.to_vec() };
    Report { name: name.to_owned(), answer: Some(Answer::new(state, NOW, NOW)) }
}

fn other(name: &str, moved: Moved) -> Report {
    let answer = Answer::new(State { moved, ports: Vec::new() }, NOW, NOW);
    Report { name: name.to_owned(), answer: Some(answer) }
}

fn gpu(numbers: std::ops::Range<u32>, ago: u64) -> Vec<Report> {
    numbers.map(|number| stopped(&format!("gpu-{number:02}"), ago, &[])).collect()
}

fn judged(nodes: Vec<Report>, gone: &[(&str, u64)], strange: usize) -> Verdict {
    let gone = gone.iter().map(|(name, ago)| Gone {
        name: (*name).to_owned(),
        at: NOW - Duration::from_secs(*ago),
        end: None,
    });
    judge(Reports { now: NOW, nodes, gone: gone.collect(), strange }, 60 * SECOND)
}

#[track_caller]
fn said(nodes: Vec<Report>, gone: &[(&str, u64)], strange: usize) -> String {
    match judged(nodes, gone, strange) {
        Verdict::Stalled(stall) => stalled(&stall, CLOCKS).message,
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn the_node_that_stopped_first_is_named_with_what_its_ports_counted() {
    let mut nodes = gpu(0..32, 600);
    let port = PortCounts { port: "mlx5_3".into(), ended: 2, resent: 4211, ..PortCounts::default() };
    nodes[17] = stopped("gpu-17", 640, &[port]);
    nodes[4] = stopped(
        "gpu-04",
        600,
        &[PortCounts { port: "mlx5_0".into(), resent: 9000, ..PortCounts::default() }],
    );
    assert_eq!(
        said(nodes, &[], 0),
        "The job has stalled since 14:03:50 UTC, 10m ago: gpu-17 stopped first, at 14:03:10, at least 30s before the \
         others; gpu-17's mlx5_3 counted 2 failed queue pairs, 4211 retransmissions; gpu-04's mlx5_0 counted 9000 \
         retransmissions; all others wait."
    );
}

#[test]
fn two_looks_cannot_tell_which_of_two_was_first_if_they_overlap() {
    let mut nodes = gpu(0..8, 600);
    for (ago, before) in
        [(605, None), (610, None), (611, Some("at least 1s before")), (630, Some("at least 20s before"))]
    {
        nodes[3] = stopped("gpu-03", ago, &[]);
        let said = said(nodes.clone(), &[], 0);
        match before {
            Some(before) => assert!(said.contains("gpu-03 stopped first") && said.contains(before), "{said}"),
            None => assert!(said.contains("none clearly first; all nodes wait"), "{said}"),
        }
    }
}

#[test]
fn half_of_the_nodes_may_be_first_and_more_are_not_named() {
    let halves = |first| [gpu(0..first, 700), gpu(first..8, 600)].concat();
    let four = said(halves(4), &[], 0);
    assert!(four.contains("gpu-00..gpu-03 stopped first, at 14:02:10, at least 1m 30s before"), "{four}");
    let five = said(halves(5), &[], 0);
    assert!(five.contains("the nodes stopped within 1m 50s, none clearly first; all nodes wait"), "{five}");
    // Of two nodes, too, one may have stopped first.
    let two = said([gpu(0..1, 600), gpu(1..2, 700)].concat(), &[], 0);
    assert!(two.contains("gpu-01 stopped first") && two.ends_with("all others wait."), "{two}");
}

/// A line that names no node has no log to look into first.
#[test]
fn the_fix_leads_to_the_nodes_that_the_line_names_if_it_names_one() {
    let fix = |nodes, gone: &[(&str, u64)]| match judged(nodes, gone, 0) {
        Verdict::Stalled(stall) => stalled(&stall, CLOCKS).fix.unwrap(),
        verdict => panic!("{verdict:?}"),
    };
    assert!(fix(gpu(0..8, 600), &[]).starts_with("Ask NCCL which rank is behind: "));
    let names = "Look first in the logs of the nodes that this line names.";
    assert!(fix([gpu(0..1, 700), gpu(1..8, 600)].concat(), &[]).starts_with(names));
    assert!(fix(gpu(0..8, 600), &[("gpu-08", 650)]).starts_with(names));
}

/// An answer that was under way for long tells less, and no node is first for that.
#[test]
fn an_answer_that_came_late_makes_no_node_first() {
    let mut nodes = gpu(0..8, 600);
    let asked = NOW - 50 * SECOND;
    let moved = Moved::Ago { ms: 600_000, between_ms: 10_000 };
    // It was asked 50 seconds ago: it may have answered at once, and so have stopped 50 seconds before the others.
    for node in &mut nodes[1..] {
        let state = State { moved, ports: Vec::new() };
        node.answer = Some(Answer::new(state, asked, NOW));
    }
    nodes[0] = stopped("gpu-00", 640, &[]);
    assert!(said(nodes, &[], 0).contains("none clearly first"));
}

#[test]
fn a_node_that_moves_keeps_the_job_from_being_stalled() {
    let mut nodes = gpu(0..8, 600);
    nodes[5] = stopped("gpu-05", 59, &[]);
    let Verdict::Moves { moving, resting, since } = judged(nodes.clone(), &[], 0) else { panic!() };
    assert_eq!((moving, resting.len(), since), (vec!["gpu-05".to_owned()], 7, NOW - 600 * SECOND));
    nodes[5] = stopped("gpu-05", 60, &[]);
    assert!(matches!(judged(nodes, &[], 0), Verdict::Stalled(_)));
}

/// A command that fails while it loads its model.
#[test]
fn a_node_that_leaves_before_anything_has_moved_is_named() {
    let never =
        |count: u32| (0..count).map(|number| other(&format!("gpu-{number:02}"), Moved::Never)).collect();
    let line = |nodes, gone: &[(&str, u64)]| {
        let Verdict::Left { gone, others, since, strange } = judged(nodes, gone, 0) else { panic!() };
        words::left(&gone, others, since, strange, CLOCKS).unwrap().message
    };
    assert_eq!(
        line(never(1), &[("gpu-03", 300)]),
        "The only other node that was connected has left: gpu-03 disconnected at 14:08:50 (times in UTC). This node has \
         never moved data."
    );
    assert_eq!(
        line(never(3), &[("gpu-03", 300)]),
        "gpu-03 disconnected at 14:08:50 (times in UTC). This node has never moved data."
    );
    assert!(
        line(never(3), &[("gpu-03", 300), ("gpu-04", 200)]).starts_with("2 other nodes have left: gpu-03 ")
    );
    assert_eq!(judged(never(3), &[], 0), Verdict::Alone);
}

#[test]
fn node_0_alone_says_nothing_of_the_job() {
    assert_eq!(judged(gpu(0..1, 600), &[], 31), Verdict::Alone);
    let silent = Report { name: "gpu-01".into(), answer: None };
    let hangs = said([gpu(0..1, 600), vec![silent]].concat(), &[], 0);
    assert!(hangs.ends_with(" ago: 1 node waits; gpu-01 does not answer."), "{hangs}");
}

/// The other nodes end in order, and node 0 writes a last checkpoint; or some of them fail, or are lost.
#[test]
fn a_job_whose_other_nodes_have_all_left_is_not_stalled() {
    let of = |gone: &[(&str, u64, Option<End>)], strange| {
        let named: Vec<(&str, u64)> = gone.iter().map(|(name, ago, _)| (*name, *ago)).collect();
        let Verdict::Left { gone: mut left, others: 0, since, strange } =
            judged(gpu(0..1, 600), &named, strange)
        else {
            panic!("{gone:?}");
        };
        for one in &mut left {
            one.end = gone.iter().find(|(name, ..)| *name == one.name).and_then(|(.., end)| *end);
        }
        words::left(&left, 0, since, strange, CLOCKS).unwrap()
    };
    let exited = |code| Some(End::Exited { code });
    let sound = of(&[("gpu-02", 605, exited(0)), ("gpu-01", 612, exited(0)), ("gpu-03", 606, exited(0))], 2);
    assert_eq!(
        sound.message,
        "All 3 other nodes that were connected have left: gpu-01's command ended first, at 14:03:38, with exit code 0; \
         gpu-02's command ended last, at 14:03:45, with exit code 0; 2 nodes have never connected (times in UTC). \
         This node has moved no data since 14:03:50."
    );
    assert_eq!((sound.severity, sound.fix), (crate::finding::Severity::Info, None));
    let failed = of(&[("gpu-02", 605, exited(0)), ("gpu-01", 612, exited(0)), ("gpu-03", 606, exited(1))], 0);
    assert!(
        failed.message.contains("; gpu-03's command ended at 14:03:44 with exit code 1 (times"),
        "{failed:?}"
    );
    assert_eq!(failed.severity, crate::finding::Severity::Warning);
    assert!(failed.fix.unwrap().starts_with("Look first in the log of gpu-03."));
    let killed = of(&[("gpu-01", 612, Some(End::Killed { signal: 9 }))], 0);
    assert!(
        killed.message.starts_with(
            "The only other node that was connected has left: gpu-01's command was killed by SIGKILL at 14:03:38 (times in UTC). This node"
        ),
        "{killed:?}"
    );
    let lost = of(&[("gpu-01", 612, None), ("gpu-02", 605, exited(0))], 0);
    assert!(lost.message.starts_with(
        "Both other nodes that were connected have left: gpu-01 disconnected first, at 14:03:38; gpu-02's "
    ));
    assert_eq!(lost.severity, crate::finding::Severity::Warning);
    assert!(lost.fix.unwrap().starts_with("gpu-01 did not say that its command has ended: "));
    // In a stall, the same is said of the first one that left.
    let mut nodes = gpu(0..2, 600);
    let Verdict::Stalled(mut stall) = judged(nodes.clone(), &[("gpu-02", 612), ("gpu-03", 611)], 0) else {
        panic!()
    };
    assert!(
        stalled(&stall, CLOCKS)
            .message
            .contains(": gpu-02 disconnected first, at 14:03:38, and 1 more node later; ")
    );
    stall.gone[0].end = exited(1);
    let message = stalled(&stall, CLOCKS).message;
    let first = ": gpu-02's command ended first, at 14:03:38, with exit code 1, and 1 more node later; ";
    assert!(message.contains(first), "{message}");
    // One that is still there waits.
    assert!(matches!(judged(nodes.clone(), &[("gpu-02", 605)], 0), Verdict::Stalled(_)));
    nodes[1].answer = None;
    assert!(matches!(judged(nodes, &[("gpu-02", 605)], 0), Verdict::Stalled(_)));
}

#[test]
fn nodes_of_which_nothing_is_known_are_counted() {
    let silent = Report { name: "gpu-09".into(), answer: None };
    let nodes =
        [gpu(0..8, 600), vec![silent, other("gpu-10", Moved::Unknown), other("gpu-11", Moved::Never)]]
            .concat();
    let said = said(nodes, &[("gpu-13", 100), ("gpu-12", 620)], 2);
    let end = " ago: gpu-12 disconnected first, at 14:03:30, and 1 more node later; the others stopped within 10s; gpu-11 \
               has never moved data; 8 other nodes wait; gpu-09 does not answer; 2 nodes have never connected; gpu-10 \
               does not count what moves.";
    assert!(said.ends_with(end), "{said}");
}

/// The queue pairs of innocent nodes fail because of it.
#[test]
fn a_node_that_disconnected_before_the_others_stopped_leads_the_line() {
    let failed = PortCounts { port: "mlx5_0".into(), ended: 2, ..PortCounts::default() };
    let mut nodes = gpu(0..3, 600);
    nodes[1] = stopped("gpu-01", 600, &[failed]);
    let first = said(nodes.clone(), &[("gpu-03", 604)], 0);
    let end = " ago: gpu-03 disconnected first, at 14:03:46; the others stopped within 10s; gpu-01's mlx5_0 counted 2 \
               failed queue pairs; all others wait.";
    assert!(first.ends_with(end), "{first}");
    // It gave up while all waited.
    let later = said(nodes.clone(), &[("gpu-03", 300)], 0);
    assert!(later.contains(" ago: the nodes stopped within 10s, none clearly first; gpu-01's "), "{later}");
    assert!(later.ends_with("; 3 nodes wait; gpu-03 disconnected at 14:08:50."), "{later}");
    // Another node had stopped before.
    nodes[1] = stopped("gpu-01", 700, &[]);
    let other = said(nodes.clone(), &[("gpu-03", 604)], 0);
    assert!(other.contains(" ago: gpu-01 stopped first, at 14:02:10, "), "{other}");
    let both = said(nodes, &[("gpu-03", 710)], 0);
    let parts = " ago: gpu-03 disconnected first, at 14:02:00; of the others, gpu-01 stopped first, at 14:02:10, at least \
                 1m 30s before the rest; all others wait.";
    assert!(both.ends_with(parts), "{both}");
}

/// A job that went on for an hour without a node does not wait for it.
#[test]
fn a_node_that_left_long_before_explains_no_pause() {
    let verdict = judged(gpu(0..3, 600), &[("gpu-03", 3600)], 0);
    let Verdict::Stalled(stall) = verdict else { panic!("{verdict:?}") };
    assert!(stall.gone.is_empty());
    let line = stalled(&stall, CLOCKS).message;
    let end = " ago: the nodes stopped within 10s, none clearly first; 3 nodes wait; gpu-03 disconnected at 13:13:50.";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn a_node_that_never_moved_is_named_and_does_not_wait() {
    let of_three = said([gpu(0..2, 600), vec![other("gpu-02", Moved::Never)]].concat(), &[], 0);
    let end = " ago: the others stopped within 10s; gpu-02 has never moved data; all others wait.";
    assert!(of_three.ends_with(end), "{of_three}");
    let many = (10..30).map(|node| other(&format!("gpu-{node}"), Moved::Never));
    let many = said(gpu(0..9, 600).into_iter().chain(many).collect(), &[], 1);
    assert!(many.contains("; gpu-10..gpu-29 have never moved data; 9 other nodes wait; "), "{many}");
}

#[test]
fn a_node_whose_devices_are_gone_is_named_once_and_does_not_wait() {
    let gone = |name: &str| PortCounts { port: name.into(), state: PortState::Gone, ..PortCounts::default() };
    let mut nodes = gpu(0..3, 600);
    nodes[0] = stopped("gpu-00", 605, &[gone("mlx5_0"), gone("mlx5_1"), gone("mlx5_2")]);
    let three = said(nodes.clone(), &[], 0);
    assert!(three.ends_with("; gpu-00's mlx5_0..mlx5_2 are gone; all others wait."), "{three}");
    let state = State { moved: Moved::Unknown, ports: vec![gone("mlx5_0")] };
    nodes[0].answer = Some(Answer::new(state, NOW, NOW));
    let unknown = said(nodes.clone(), &[], 0);
    assert!(unknown.ends_with("; gpu-00's mlx5_0 is gone; all others wait."), "{unknown}");
    nodes[0] = stopped("gpu-00", 605, &[gone("mlx5_0"), gone("mlx5_1")]);
    let missing = said(nodes, &[], 5);
    assert!(missing.ends_with(" are gone; 2 other nodes wait; 5 nodes have never connected."), "{missing}");
}

#[test]
fn ports_and_names_are_few_and_show_no_control_characters() {
    let port =
        |name: &str, state| PortCounts { port: name.into(), state, link_downs: 1, ..PortCounts::default() };
    let all: Vec<PortCounts> = (0..6).map(|n| port(&format!("mlx5_{n}\u{1b}[2J"), PortState::Down)).collect();
    let mut nodes = gpu(0..30, 600);
    nodes[1] = stopped("gpu\u{1b}", 600, &all);
    nodes[2] = stopped("gpu-02", 600, &[port("mlx5_9", PortState::Gone)]);
    let said = said(nodes, &[], 0);
    assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
    assert!(said.contains("mlx5_0\u{fffd}[2J is no longer active and counted 1 link failure; "), "{said}");
    assert!(said.contains("; 3 more ports counted errors, too; all others wait."), "{said}");
    assert!(said.contains("; gpu-02's mlx5_9 is gone and counted 1 link failure; gpu"), "{said}");
    assert_eq!(
        moves_again(Duration::from_millis(725_400)).message,
        "The job moves data again, after 12m 5s."
    );
}

/// Whatever nodes say, times stay in their bounds.
#[test]
fn impossible_times_are_no_trouble() {
    let moved = |ms, between_ms| other("gpu-01", Moved::Ago { ms, between_ms });
    for (ms, between) in [(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0), (0, 0)] {
        let _ = judged([gpu(0..1, 600), vec![moved(ms, between)]].concat(), &[], 0);
    }
}
