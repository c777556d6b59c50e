//! Fabrics with faults. The verdict must name exactly these faults.

use std::collections::BTreeSet;

use super::*;
use crate::preflight::judge::evidence::Member;
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::prove::pair::{Measured, PairFailure, PairOutcome, PairReport, RailReport};

/// A fabric with these faults.
#[derive(Debug, Default, Clone)]
struct Fabric {
    nodes: u32,
    rails: usize,
    bad_nodes: BTreeSet<u32>,
    bad_rails: BTreeSet<(u32, usize)>,
    /// Nodes that no node reaches, and that reach no other node.
    closed: BTreeSet<u32>,
    links: BTreeSet<([u32; 2], usize)>,
    /// Nodes that are cut off from the others, on some rails.
    cut: BTreeSet<u32>,
    cut_rails: BTreeSet<usize>,
    /// Nodes that send nothing from this round on.
    dead: BTreeMap<u32, u16>,
    never: BTreeSet<u32>,
    /// Pairs that fail only in this round.
    hiccups: BTreeSet<([u32; 2], u16)>,
}

impl Fabric {
    fn new(nodes: u32, rails: usize) -> Fabric {
        Fabric { nodes, rails, ..Fabric::default() }
    }

    fn rail_fails(&self, round: u16, a: u32, b: u32, rail: usize) -> Option<&'static str> {
        let is_bad = |node| self.bad_nodes.contains(&node) || self.bad_rails.contains(&(node, rail));
        let is_cut = self.cut_rails.contains(&rail) && self.cut.contains(&a) != self.cut.contains(&b);
        if is_bad(a) {
            Some("the port is DOWN now")
        } else if is_bad(b) {
            Some("wait for the other end failed: no completion came in time")
        } else if self.links.contains(&([a.min(b), a.max(b)], rail))
            || self.hiccups.contains(&([a.min(b), a.max(b)], round))
            || is_cut
        {
            Some("send failed: transport retry counter exceeded")
        } else {
            None
        }
    }

    fn is_there(&self, node: u32, round: u16) -> bool {
        !self.never.contains(&node) && self.dead.get(&node).is_none_or(|from| round < *from)
    }

    /// Returns what `node` reports about its pair with `partner`.
    fn report(&self, round: u16, node: u32, partner: u32) -> Option<PairReport> {
        if !self.is_there(node, round) {
            return None;
        }
        let outcome = if !self.is_there(partner, round) {
            PairOutcome::Failed(if partner.is_multiple_of(2) {
                PairFailure::Silent
            } else {
                PairFailure::Left
            })
        } else if self.closed.contains(&node) || self.closed.contains(&partner) {
            PairOutcome::Failed(PairFailure::Unreachable("no route to host".into()))
        } else {
            let rails = (0..self.rails).map(|rail| {
                RailReport::new(
                    rail as u16,
                    match self.rail_fails(round, node, partner, rail) {
                        Some(why) => Err(why.to_owned()),
                        None => Ok(Measured { latency_us: 2.0, gbps: 390.0 }),
                    },
                )
            });
            PairOutcome::Rails(rails.collect())
        };
        Some(PairReport { round, node, partner, seconds: 1.0, outcome })
    }

    fn run(&self, extent: Extent) -> (Evidence, usize) {
        let schedule = Schedule { nodes: self.nodes, extent };
        let member = |node: u32| Member {
            name: format!("node{node}"),
            rails: (0..self.rails).map(|rail| format!("mlx5_{rail}")).collect(),
            ..Member::default()
        };
        let rounds = schedule.rounds() as u16;
        let mut evidence = Evidence::new((0..self.nodes).map(member).collect(), rounds);
        let hold = |evidence: &mut Evidence, round: u16, (a, b): (u32, u32)| {
            for (node, partner) in [(a, b), (b, a)] {
                if let Some(report) = self.report(round, node, partner) {
                    assert!(evidence.add(report));
                }
            }
        };
        for round in 0..rounds {
            for pair in schedule.pairs(round.into()) {
                hold(&mut evidence, round, pair);
            }
        }
        for node in &self.never {
            evidence.lose(*node, Gone::NeverJoined("10m".into()));
        }
        for node in self.dead.keys() {
            evidence.lose(*node, Gone::Left("its connection has ended".into()));
        }
        let (mut next, mut pairs) = (rounds, 0);
        for _ in 0..MOST_TIMES {
            let again = next_rounds(&evidence, &[]);
            for round in &again {
                let mut busy = BTreeSet::new();
                for &(a, b) in round {
                    assert!(busy.insert(a) && busy.insert(b), "{round:?}");
                    assert!(self.is_there(a, u16::MAX - 1) && self.is_there(b, u16::MAX - 1));
                    hold(&mut evidence, next, (a, b));
                    pairs += 1;
                }
                next += 1;
            }
            if again.is_empty() {
                break;
            }
        }
        (evidence, pairs)
    }

    /// Returns what the verdict must say, without its reasons.
    fn expected(&self) -> BTreeSet<String> {
        let all = if self.rails > 1 { "whole".to_owned() } else { "[0]".to_owned() };
        let mut said: BTreeSet<String> = BTreeSet::new();
        said.extend(self.bad_nodes.iter().map(|node| format!("node {node} {all}")));
        said.extend(self.closed.iter().map(|node| format!("node {node} meeting")));
        let mut rails: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (node, rail) in &self.bad_rails {
            rails.entry(*node).or_default().push(*rail);
        }
        said.extend(rails.iter().map(|(node, rails)| format!("node {node} {}", place(rails, self.rails))));
        let mut links: BTreeMap<[u32; 2], Vec<usize>> = BTreeMap::new();
        for (pair, rail) in &self.links {
            links.entry(*pair).or_default().push(*rail);
        }
        said.extend(links.iter().map(|(pair, rails)| format!("link {pair:?} {}", place(rails, self.rails))));
        said.extend(self.hiccups.iter().map(|(pair, _)| format!("unsteady {pair:?} {all}")));
        said.extend(self.never.iter().chain(self.dead.keys()).map(|node| format!("gone {node}")));
        if !self.cut.is_empty() {
            let rails: Vec<usize> = self.cut_rails.iter().copied().collect();
            said.insert(format!("cut {:?} {}", self.cut, place(&rails, self.rails)));
        }
        said
    }

    fn said(&self, extent: Extent) -> BTreeSet<String> {
        faults(&self.run(extent).0, &[]).iter().map(|fault| short(fault, self.rails)).collect()
    }

    fn assert_is_found(&self) {
        assert_eq!(self.said(Extent::Doubling), self.expected(), "{self:?}");
    }
}

fn place(rails: &[usize], all: usize) -> String {
    if all > 1 && rails.len() == all { "whole".into() } else { format!("{rails:?}") }
}

fn short(fault: &Fault, rails: usize) -> String {
    let at = match &fault.place {
        Place::Whole => "whole".to_owned(),
        Place::Meeting => "meeting".to_owned(),
        Place::Rails(of) => place(of, rails),
    };
    match &fault.what {
        What::Gone { node, .. } => format!("gone {node}"),
        What::Owes { node, owed, of } => format!("owes {node}: {owed} of {of}"),
        What::Unfinished { tried, scheduled } => format!("unfinished {tried} of {scheduled}"),
        What::Contested { node, .. } => format!("contested {node}"),
        What::Unfit { node } => format!("unfit {node}"),
        What::Mixed { .. } => "mixed".to_owned(),
        What::Uneven { groups, .. } => format!("uneven {groups:?}"),
        What::Duplicate(shared) => format!("duplicate {:?} {at}", shared.nodes),
        What::Loopback(own) => format!("loopback {:?} {at}", own.nodes),
        What::Node { node, .. } => format!("node {node} {at}"),
        What::Link { nodes } => format!("link {nodes:?} {at}"),
        What::Cut { nodes, .. } => format!("cut {:?} {at}", nodes.iter().collect::<BTreeSet<_>>()),
        What::Partial { nodes, .. } => format!("partial {nodes:?} {at}"),
        What::Apart { parts, alone, through } if through.is_empty() => {
            format!("apart {parts:?} {alone} {at}")
        }
        What::Apart { parts, alone, through } => format!("apart {parts:?} {alone} by {through:?} {at}"),
        What::Unreached { joined, .. } => format!("unreached {joined}"),
        What::Flapping { node, .. } => format!("flapping {node} {at}"),
        What::Scattered { pairs, .. } => format!("scattered {pairs:?} {at}"),
        What::Unsteady { nodes } => format!("unsteady {nodes:?} {at}"),
    }
}

#[test]
fn a_sound_fabric_has_no_culprit_and_no_second_tries() {
    for nodes in (1..20).chain([63, 64, 65]) {
        let fabric = Fabric::new(nodes, 2);
        let (evidence, again) = fabric.run(Extent::Doubling);
        assert_eq!((faults(&evidence, &[]).len(), again), (0, 0), "{nodes} nodes");
    }
}

/// A part that is cut off never passes, however the schedule pairs its nodes, and even if a pair within
/// the other part has failed once. No node of the larger part is blamed.
#[test]
fn a_job_with_a_cut_off_part_never_passes() {
    for nodes in 3..=9_u32 {
        for members in 1..(1 << (nodes - 1)) {
            let cut: BTreeSet<u32> = (0..nodes).filter(|node| members >> node & 1 == 1).collect();
            let whole: Vec<u32> = (0..nodes).filter(|node| !cut.contains(node)).collect();
            let sound = Fabric { cut, cut_rails: [0].into(), ..Fabric::new(nodes, 1) };
            assert_fails(&sound);
            let hiccups = if nodes > 6 { &whole[..0] } else { &whole[..] };
            for (place, a) in hiccups.iter().enumerate() {
                for b in &hiccups[place + 1..] {
                    let once = (0..8).map(|round| ([*a, *b], round)).collect();
                    assert_fails(&Fabric { hiccups: once, ..sound.clone() });
                }
            }
        }
    }
}

fn assert_fails(fabric: &Fabric) {
    let faults = faults(&fabric.run(Extent::Doubling).0, &[]);
    assert!(faults.iter().any(|fault| !fault.is_warning()), "{fabric:?}: {faults:?}");
    let accused: Vec<u32> = faults.iter().flat_map(Fault::accused).collect();
    let is_larger = |node: &&u32| match fabric.cut.len() * 2 < fabric.nodes as usize {
        true => !fabric.cut.contains(node),
        false => fabric.cut.len() * 2 == fabric.nodes as usize || fabric.cut.contains(node),
    };
    assert_eq!(accused.iter().find(is_larger), None, "{fabric:?}: {faults:?}");
}

#[test]
fn one_bad_node_is_named_from_three_nodes_on() {
    for nodes in (3..14).chain([31, 32, 33]) {
        for bad in 0..nodes {
            let mut fabric = Fabric::new(nodes, 2);
            match bad % 3 {
                0 => fabric.bad_nodes = [bad].into(),
                1 => fabric.bad_rails = [(bad, 1)].into(),
                _ => fabric.closed = [bad].into(),
            }
            fabric.assert_is_found();
        }
    }
}

#[test]
fn with_two_nodes_the_link_is_named_and_no_node_is_blamed() {
    let mut fabric = Fabric::new(2, 2);
    fabric.bad_rails = [(1, 1)].into();
    assert_eq!(fabric.said(Extent::Doubling), ["link [0, 1] [1]".to_owned()].into());
    let (evidence, again) = fabric.run(Extent::Doubling);
    assert_eq!((again, faults(&evidence, &[])[0].accused().len()), (1, 0));
}

#[test]
fn a_link_is_told_apart_from_the_nodes_at_its_ends() {
    for nodes in (4..10).chain([16, 17]) {
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        for round in 0..schedule.rounds() {
            for (a, b) in schedule.pairs(round) {
                let mut fabric = Fabric::new(nodes, 3);
                fabric.links = [([a, b], 1)].into();
                fabric.assert_is_found();
                fabric.links = (0..3).map(|rail| ([a, b], rail)).collect();
                fabric.assert_is_found();
            }
        }
    }
}

#[test]
fn a_part_that_is_cut_off_is_named_and_not_its_nodes_one_by_one() {
    for nodes in [8, 12, 13, 32, 100] {
        for (start, size) in [(0, 2), (2, 2), (4, 2), (0, 3), (8, 4), (16, 16), (64, 32)] {
            if size * 2 < nodes && start + size <= nodes {
                for cut_rails in [BTreeSet::from([1]), BTreeSet::from([0, 1])] {
                    let cut = (start..start + size).collect();
                    Fabric { cut, cut_rails, ..Fabric::new(nodes, 2) }.assert_is_found();
                }
            }
        }
    }
}

#[test]
fn both_halves_of_a_split_fabric_are_reported() {
    let fabric = Fabric { cut: [0, 1, 2, 3].into(), cut_rails: [0].into(), ..Fabric::new(8, 1) };
    assert_eq!(fabric.said(Extent::Doubling), ["apart [[0, 1, 2, 3], [4, 5, 6, 7]] 0 [0]".to_owned()].into());
}

#[test]
fn no_node_is_blamed_if_no_node_reaches_any_other() {
    for nodes in [3, 4, 5, 8, 33, 100] {
        let mut fabric = Fabric::new(nodes, 1);
        fabric.bad_rails = (0..nodes).map(|node| (node, 0)).collect();
        let (evidence, again) = fabric.run(Extent::Doubling);
        let faults = faults(&evidence, &[]);
        assert_eq!(faults.len(), 1, "{nodes}: {faults:?}");
        assert!(faults[0].accused().is_empty());
        assert_eq!(short(&faults[0], 1), format!("apart [] {nodes} [0]"));
        assert!(again <= 2 * nodes as usize, "{nodes}: {again}");
    }
}

#[test]
fn a_lost_node_affects_only_its_own_pairs() {
    for nodes in [3, 4, 5, 16, 33] {
        for lost in 0..nodes {
            let mut fabric = Fabric::new(nodes, 2);
            fabric.never = [lost].into();
            fabric.assert_is_found();
            fabric.never.clear();
            fabric.dead = [(lost, 1)].into();
            fabric.assert_is_found();
        }
    }
}

#[test]
fn a_pair_that_passes_when_it_is_tried_again_is_a_warning() {
    let mut fabric = Fabric::new(16, 2);
    fabric.hiccups = [([4, 5], 0)].into();
    fabric.assert_is_found();
    let (evidence, _) = fabric.run(Extent::Doubling);
    assert!(faults(&evidence, &[]).iter().all(Fault::is_warning));
}

/// 20,000 seeds were run once.
const SEEDS: u64 = 60;

/// Jobs of any size with several faults of all kinds. Each node has at most one of them.
#[test]
fn random_faults_are_named_and_no_healthy_node_is() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u32(8..120);
        let rails = random.usize(1..5);
        let mut fabric = Fabric::new(nodes, rails);
        let mut free: Vec<u32> = (0..nodes).collect();
        if random.bool() && nodes >= 12 {
            let size = 2 * random.u32(1..=nodes / 8);
            let start = 2 * random.u32(0..=(nodes - size) / 2);
            fabric.cut = (start..start + size).collect();
            fabric.cut_rails = (0..rails).filter(|_| random.bool()).collect();
            if fabric.cut_rails.is_empty() {
                fabric.cut_rails.insert(0);
            }
            free.retain(|node| !fabric.cut.contains(node));
        }
        random.shuffle(&mut free);
        for _ in 0..random.u32(0..=nodes / 6) {
            let Some(node) = free.pop() else { break };
            match random.u32(0..6) {
                0 => _ = fabric.bad_nodes.insert(node),
                1 | 2 => {
                    for rail in 0..random.usize(1..=rails) {
                        fabric.bad_rails.insert((node, rail));
                    }
                }
                3 => _ = fabric.closed.insert(node),
                4 => _ = fabric.dead.insert(node, random.u16(0..5)),
                _ => _ = fabric.never.insert(node),
            }
        }
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        // If more of these occur at once, they are one fault.
        for _ in 0..random.u32(0..=3.min(nodes / 8)) {
            let round = random.u32(0..schedule.rounds());
            let Some(node) = free.pop() else { break };
            let Some(partner) = schedule.partner(round, node) else { continue };
            let Some(place) = free.iter().position(|other| *other == partner) else { continue };
            free.swap_remove(place);
            let pair = [node.min(partner), node.max(partner)];
            for rail in 0..random.usize(1..=rails) {
                fabric.links.insert((pair, rail));
            }
        }
        let (evidence, again) = fabric.run(Extent::Doubling);
        let said: BTreeSet<String> = faults(&evidence, &[]).iter().map(|fault| short(fault, rails)).collect();
        assert_eq!(said, fabric.expected(), "seed {seed}: {fabric:?}");
        let failures = fabric.expected().len() + fabric.cut.len() * rails;
        // In a small job, idle nodes test others meanwhile.
        let idle = if nodes <= 32 { 4 * nodes as usize } else { 0 };
        assert!(again <= 20 * failures + idle, "seed {seed}: {again} pairs for {failures} faults");
    }
}

#[test]
fn reasons_come_from_the_node_that_knows() {
    let mut fabric = Fabric::new(8, 2);
    fabric.bad_rails = [(3, 1)].into();
    let (evidence, _) = fabric.run(Extent::Doubling);
    assert_eq!(faults(&evidence, &[])[0].why, "the port is DOWN now");
}

/// 4,096 nodes with 8 rails were judged in half a second with optimization.
#[test]
fn a_thousand_nodes_are_judged_with_few_second_tries() {
    let mut fabric = Fabric::new(1024, 2);
    fabric.bad_nodes = [17, 1000].into();
    fabric.bad_rails = [(5, 1)].into();
    fabric.cut = (300..332).collect();
    fabric.cut_rails = [0].into();
    fabric.never = [77].into();
    let (evidence, again) = fabric.run(Extent::Doubling);
    let said: BTreeSet<String> = faults(&evidence, &[]).iter().map(|fault| short(fault, 2)).collect();
    assert_eq!(said, fabric.expected());
    assert!(again < 100, "{again}");
}
