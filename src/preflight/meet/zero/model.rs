//! Jobs with every order of events: messages arrive, pairs end, nodes die or are stopped, at every
//! moment. The model uses the real ledger of node 0 and the real agendas of the nodes. There are no
//! clocks: node 0 must reach its verdict even if no time ever runs out.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::ledger::{Half, Ledger, Pair};
use crate::preflight::meet::message::Partner;
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::meet::times::Times;
use crate::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};
use crate::preflight::prove::rounds::Agenda;

const TIMES: Times = Times { each: Duration::ZERO };

/// From node 0 to a node.
#[derive(Debug, Clone)]
enum Message {
    Order(Vec<Half>),
    Gone(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Stopped,
    Dead,
}

#[derive(Debug, Clone)]
struct Node {
    state: State,
    is_member: bool,
    agenda: Agenda,
    /// The messages from node 0 that the node has not received, and the reports that node 0 has not
    /// received.
    to: VecDeque<Message>,
    from: VecDeque<Vec<Half>>,
}

#[derive(Debug, Clone)]
struct ModelJob {
    now: Instant,
    ledger: Ledger,
    nodes: Vec<Node>,
    /// The orders that node 0 has yet to issue. They may name nodes that have disconnected.
    orders: VecDeque<Vec<Pair>>,
    /// How many nodes may still die, how many may be stopped, and whether time may run out.
    deaths: usize,
    stops: usize,
    clocks: usize,
    has_verdict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelEvent {
    /// The node receives a message, finishes its next pair, or sends its reports.
    Receives(u32),
    Ends(u32),
    Sends(u32),
    /// Node 0 receives a message, or notices that the node has disconnected or hangs.
    Heard(u32),
    Missed(u32),
    /// The node dies, is stopped, or continues.
    Dies(u32),
    Stops(u32),
    GoesOn(u32),
    /// The time of an order runs out.
    TimeIsOver,
}

impl ModelEvent {
    /// Returns whether the event happens by itself sooner or later.
    fn is_sure(self) -> bool {
        !matches!(
            self,
            ModelEvent::Dies(_) | ModelEvent::Stops(_) | ModelEvent::GoesOn(_) | ModelEvent::TimeIsOver
        )
    }
}

impl ModelJob {
    fn new(nodes: u32, orders: Vec<Vec<Pair>>, [deaths, stops, clocks]: [usize; 3]) -> ModelJob {
        let node = Node {
            state: State::Runs,
            is_member: true,
            agenda: Agenda::default(),
            to: VecDeque::new(),
            from: VecDeque::new(),
        };
        let mut ledger = Ledger::default();
        (0..nodes).for_each(|node| ledger.join(node));
        let nodes = vec![node; nodes as usize];
        let (now, orders) = (Instant::now(), orders.into());
        let mut job = ModelJob { now, ledger, nodes, orders, deaths, stops, clocks, has_verdict: false };
        job.go_on();
        job
    }

    fn node(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// Advances node 0 until it has to wait for a node.
    fn go_on(&mut self) {
        while !self.has_verdict && !self.ledger.is_waiting() {
            let Some(pairs) = self.orders.pop_front() else {
                self.has_verdict = true;
                return;
            };
            for (node, halves) in self.ledger.order(pairs) {
                assert!(!halves.is_empty(), "an order of nothing");
                self.node(node).to.push_back(Message::Order(halves));
            }
        }
    }

    fn events(&self) -> Vec<ModelEvent> {
        let mut all = Vec::new();
        if self.has_verdict {
            return all;
        }
        for (node, number) in self.nodes.iter().zip(0..) {
            let mut add = |event: ModelEvent, can_be: bool| all.extend(can_be.then_some(event));
            let runs = node.state == State::Runs && node.is_member;
            add(ModelEvent::Receives(number), runs && !node.to.is_empty());
            add(ModelEvent::Ends(number), runs && node.agenda.has_next());
            add(ModelEvent::Sends(number), runs && node.agenda.due(true).is_some());
            add(ModelEvent::Heard(number), node.is_member && !node.from.is_empty());
            add(ModelEvent::Missed(number), node.is_member && node.state != State::Runs);
            add(ModelEvent::Dies(number), node.is_member && node.state != State::Dead && self.deaths > 0);
            add(ModelEvent::Stops(number), runs && self.stops > 0);
            add(ModelEvent::GoesOn(number), node.is_member && node.state == State::Stopped);
        }
        all.extend((self.clocks > 0).then_some(ModelEvent::TimeIsOver));
        all
    }

    fn happen(&mut self, event: ModelEvent) {
        let now = self.now;
        match event {
            ModelEvent::Receives(number) => match self.node(number).to.pop_front() {
                Some(Message::Order(halves)) => {
                    let partner = |(round, node)| Partner::in_round(round, node);
                    let pairs = halves.into_iter().map(partner).collect();
                    self.node(number).agenda.take(pairs, 0, TIMES, now);
                }
                Some(Message::Gone(other)) => self.node(number).agenda.lose(other),
                None => {}
            },
            ModelEvent::Ends(number) => {
                let node = self.node(number);
                if let Some(turn) = node.agenda.next() {
                    let (round, partner) = (turn.with.round, turn.with.node);
                    let outcome = PairOutcome::Failed(PairFailure::Silent);
                    let report = PairReport { round, node: number, partner, seconds: 1.0, outcome };
                    node.agenda.end(report, now);
                }
            }
            ModelEvent::Sends(number) => {
                let node = self.node(number);
                let reports = node.agenda.batch(true, now);
                node.from.push_back(reports.iter().map(|one| (one.round, one.partner)).collect());
            }
            ModelEvent::Heard(number) => {
                for half in self.node(number).from.pop_front().unwrap_or_default() {
                    assert!(self.ledger.settle(number, half), "a report that was not owed");
                }
            }
            ModelEvent::Missed(number) => {
                self.node(number).is_member = false;
                for partner in self.ledger.leave(number) {
                    self.node(partner).to.push_back(Message::Gone(number));
                }
            }
            ModelEvent::Dies(number) => {
                self.deaths -= 1;
                self.node(number).state = State::Dead;
            }
            ModelEvent::Stops(number) => {
                self.stops -= 1;
                self.node(number).state = State::Stopped;
            }
            ModelEvent::GoesOn(number) => self.node(number).state = State::Runs,
            ModelEvent::TimeIsOver => {
                self.clocks -= 1;
                self.ledger.close(u16::MAX);
            }
        }
        self.go_on();
    }

    /// Returns what a node has yet to report, and what it has reported but node 0 has not received.
    fn of_node(&self, node: &Node) -> HashSet<Half> {
        let ordered = node.to.iter().flat_map(|message| match message {
            Message::Order(halves) => halves.clone(),
            Message::Gone(_) => Vec::new(),
        });
        let [turns, reports] = node.agenda.halves();
        let sent = node.from.iter().flatten().copied();
        ordered.chain(turns).chain(reports).chain(sent).collect()
    }

    /// Checks what must hold in each state.
    fn check(&self) {
        let waits_for: Vec<Half> = self.ledger.waits_for().collect();
        assert_eq!(waits_for.len(), self.ledger.busy());
        assert_eq!(self.ledger.is_waiting(), !waits_for.is_empty());
        assert_eq!(self.ledger.is_waiting(), self.ledger.open() > 0);
        for (_, number) in waits_for {
            assert!(self.nodes[number as usize].is_member, "node 0 waits for a node that has gone");
        }
        for (node, half) in self.ledger.owed() {
            assert!(self.nodes[half.1 as usize].is_member, "a pair with a node that has gone");
            assert!(
                self.of_node(&self.nodes[node as usize]).contains(&half),
                "a pair that no report will tell"
            );
        }
        let is_stuck = !self.events().into_iter().any(ModelEvent::is_sure);
        assert!(!is_stuck || self.has_verdict, "node 0 waits for ever: {self:#?}");
    }

    fn key(&self) -> String {
        let node = |node: &Node| {
            let Node { state, is_member, to, from, agenda } = node;
            format!("{state:?}{is_member}{to:?}{from:?}{:?}", agenda.halves())
        };
        let nodes: Vec<String> = self.nodes.iter().map(node).collect();
        let left = [self.deaths, self.stops, self.clocks, self.orders.len()];
        format!("{nodes:?}{left:?}{:?}", self.ledger)
    }
}

/// Explores all states. Returns how many there are.
fn explore(job: ModelJob) -> usize {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut open = vec![job];
    while let Some(job) = open.pop() {
        job.check();
        for event in job.events() {
            let mut next = job.clone();
            next.happen(event);
            if seen.insert(hash(&next.key())) {
                open.push(next);
            }
        }
    }
    seen.len()
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the pairs of the schedule of a job.
fn scheduled(nodes: u32) -> Vec<Pair> {
    let schedule = Schedule { nodes, extent: Extent::Doubling };
    let rounds = (0..schedule.rounds()).map(|round| (round, schedule.pairs(round)));
    rounds.flat_map(|(round, pairs)| pairs.map(move |(low, high)| (round as u16, low, high))).collect()
}

/// Returns all pairs of a job, in rounds numbered from `first`.
fn all_again(nodes: u32, first: u16) -> Vec<Pair> {
    let schedule = Schedule { nodes, extent: Extent::Full };
    let rounds = (0..schedule.rounds()).map(|round| (round, schedule.pairs(round)));
    rounds
        .flat_map(|(round, pairs)| pairs.map(move |(low, high)| (first + round as u16, low, high)))
        .collect()
}

#[test]
fn node_0_comes_to_a_verdict_in_all_orders_of_what_may_happen() {
    let cases: Vec<(u32, Vec<Vec<Pair>>, [usize; 3])> = vec![
        (2, vec![scheduled(2), vec![(1, 0, 1)], vec![(2, 0, 1)]], [2, 2, 0]),
        (2, vec![scheduled(2), vec![(1, 0, 1)]], [1, 1, 2]),
        (3, vec![scheduled(3)], [1, 1, 0]),
        (3, vec![scheduled(3), vec![(2, 0, 2)]], [1, 0, 0]),
        (3, vec![vec![(0, 0, 1)], vec![(1, 0, 2), (2, 1, 2)]], [1, 0, 1]),
    ];
    for (nodes, orders, limits) in cases {
        let states = explore(ModelJob::new(nodes, orders, limits));
        assert!(states > 100, "{states} states");
        println!("{nodes} nodes, {limits:?}: {states} states");
    }
}

/// Runs jobs that have too many states to explore, in random orders.
#[test]
fn node_0_comes_to_a_verdict_in_large_jobs_in_any_order() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u32(4..13);
        let pairs = scheduled(nodes);
        let mut first = pairs.iter().map(|(round, ..)| round + 1).max().unwrap_or_default();
        let mut orders = vec![pairs];
        for _ in 0..4 {
            let mut again = all_again(nodes, first);
            again.retain(|_| random.u8(..4) == 0);
            first += 20;
            orders.push(again);
        }
        let limits = [random.usize(0..4), random.usize(0..4), random.usize(0..3)];
        let mut job = ModelJob::new(nodes, orders, limits);
        while !job.has_verdict {
            job.check();
            let (sure, others): (Vec<ModelEvent>, Vec<ModelEvent>) =
                job.events().into_iter().partition(|one| one.is_sure());
            let unlikely = !others.is_empty() && random.u8(..40) == 0;
            let event = random.choice(if unlikely { others } else { sure }).expect("it goes on");
            job.happen(event);
        }
        // If no node died or stopped and no time ran out, both nodes of each pair have reported it.
        let is_whole = limits == [0, 0, 0];
        assert!(!is_whole || job.ledger.debts().next().is_none());
    }
}
