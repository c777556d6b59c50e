//! What is slow on one rail: nodes, pairs, or the whole rail.

use super::figures::{Measures, Pair, Rail, best};
use super::usual::{BANDWIDTH_OF_FEW, Baseline, is_worse, median};
use super::{Basis, Figure, Slow, Who, again, cover};
use crate::preflight::judge::culprit::chance::Background;
use crate::preflight::judge::evidence::Member;
use crate::preflight::judge::partial::{self, Other, Part};

/// Up to this many pairs, or one in this many, can be outliers. If more are slow, that may be by
/// design.
const FEW: usize = 3;
const ONE_IN: usize = 50;

/// With fewer slow pairs, these are single links.
const MANY: usize = 4;

/// Values that differ by less than this factor are equally slow.
const ALIKE: f32 = 1.1;

/// How many peers that pass with others must be slow with a node before the node itself is slow.
const WITNESSES: usize = 2;

/// The limit beyond which a pair is slow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit<'a> {
    Baseline(Baseline),
    /// The rates of both ports.
    Rates(&'a [Member]),
}

impl Limit<'_> {
    /// Returns what a pair should reach, and its limit; `None` if that is not known.
    fn of(&self, nodes: [u32; 2], rail: usize) -> Option<[f32; 2]> {
        match self {
            Limit::Baseline(usual) => Some([usual.median, usual.limit]),
            Limit::Rates(members) => {
                let rate = |node: u32| {
                    let member = members.get(node as usize).filter(|member| member.is_verbs)?;
                    member.rates.get(rail).copied().filter(|rate| *rate > 0.0)
                };
                let rate = rate(nodes[0])?.min(rate(nodes[1])?);
                Some([rate, rate * BANDWIDTH_OF_FEW])
            }
        }
    }
}

/// One figure of all pairs, compared with one basis.
pub(super) struct Test<'a> {
    figure: Figure,
    basis: Basis,
    of_nodes: Limit<'a>,
    of_pairs: Limit<'a>,
    /// The limit for the value of all tries together, if it differs.
    sure: Option<f32>,
}

impl<'a> Test<'a> {
    /// Creates a test with the same limit for nodes and for pairs.
    pub(super) fn new(figure: Figure, basis: Basis, limit: Limit<'a>) -> Test<'a> {
        Test { figure, basis, of_nodes: limit, of_pairs: limit, sure: None }
    }

    /// Sets a different limit for pairs.
    pub(super) fn for_pairs(self, of_pairs: Limit<'a>) -> Test<'a> {
        Test { of_pairs, ..self }
    }

    /// Sets the limit that the value of all tries together must exceed to be certain.
    pub(super) fn sure_from(self, sure: f32) -> Test<'a> {
        Test { sure: Some(sure), ..self }
    }

    /// Returns whether a fabric may be built that way: slower between distant nodes.
    fn is_by_design(&self) -> bool {
        self.basis == Basis::Others && self.figure != Figure::Resent
    }

    /// Returns whether a pair is beyond a limit; `None` if that is not known.
    fn is_beyond(&self, pair: &Pair, limit: &Limit, rail: usize) -> Option<bool> {
        let [_, limit] = limit.of(pair.nodes, rail)?;
        let all = pair.all();
        let is_beyond = all.is_enough(self.figure) && is_worse(self.figure, all.of(self.figure)?, limit);
        Some(is_beyond && (pair.second.is_empty() || self.is_again(pair, limit)))
    }

    /// Returns whether most retries of a pair are beyond a limit.
    fn is_again(&self, pair: &Pair, limit: f32) -> bool {
        let values = || pair.second.iter().filter_map(|measures| measures.of(self.figure));
        values().filter(|value| is_worse(self.figure, *value, limit)).count() * 2 > values().count()
    }

    /// Returns whether these pairs were retried often enough, and whether at least two thirds of the
    /// retried pairs, and at least `fewest`, were slow again.
    fn is_certain<'p>(
        &self,
        pairs: impl Iterator<Item = &'p Pair>,
        fewest: usize,
        limit: &Limit,
        rail: usize,
    ) -> bool {
        let (mut bad, mut all, mut tries) = (0, 0, 0);
        for pair in pairs.filter(|pair| !pair.second.is_empty()) {
            let Some([_, limit]) = limit.of(pair.nodes, rail) else { continue };
            tries += pair.second.len();
            all += 1;
            bad += usize::from(self.is_again(pair, limit));
        }
        tries >= again::CERTAIN && bad >= fewest && bad * 3 >= all * 2
    }

    fn slow<'p>(
        &self,
        who: Who,
        pairs: impl Iterator<Item = &'p Pair> + Clone,
        with: [usize; 2],
        is_certain: bool,
    ) -> Option<Slow> {
        let (rail, limit) = match who {
            Who::Link { rail, .. } | Who::Group { rail, .. } => (rail, &self.of_pairs),
            Who::Node { rail, .. } | Who::Rail { rail } => (rail, &self.of_nodes),
        };
        let of = |measures: fn(&Pair) -> Measures| match who {
            Who::Group { .. } | Who::Rail { .. } => median(
                &mut pairs.clone().filter_map(|pair| measures(pair).of(self.figure)).collect::<Vec<_>>(),
            ),
            _ => best(self.figure, pairs.clone().map(measures)),
        };
        let [usual, _] = pairs.clone().find_map(|pair| limit.of(pair.nodes, rail))?;
        let value = of(Pair::all)?;
        let is_certain = is_certain && self.sure.is_none_or(|sure| is_worse(self.figure, value, sure));
        Some(Slow {
            who,
            figure: self.figure,
            value,
            first: of(|pair| pair.first),
            again: of(Pair::again),
            basis: self.basis,
            usual,
            with,
            is_certain,
        })
    }
}

/// Returns how many of a node's pairs are slow, and how many pairs have a known figure.
fn counts(rail: &Rail, bad: &[Option<bool>], node: u32) -> [usize; 2] {
    let known = || rail.places(node).iter().filter_map(|place| bad[*place]);
    [known().filter(|is_bad| *is_bad).count(), known().count()]
}

impl Rail {
    /// Adds everything that this test finds to be slow.
    pub(super) fn judge(&self, test: &Test, all: &mut Vec<Slow>) {
        let beyond = |limit: &Limit| -> Vec<Option<bool>> {
            self.pairs.iter().map(|pair| test.is_beyond(pair, limit, self.index)).collect()
        };
        let of_nodes = beyond(&test.of_nodes);
        if of_nodes.iter().all(|is_bad| *is_bad != Some(true)) {
            // No pair is beyond the limit for nodes. In this case, the limit for pairs is never wider
            // than that one.
            return self.links(test, beyond(&test.of_pairs), &[], all);
        }
        let known: Vec<(u32, [usize; 2])> = self
            .nodes()
            .map(|node| (node, counts(self, &of_nodes, node)))
            .filter(|(_, [_, known])| *known > 0)
            .collect();
        let whole = known.iter().filter(|(_, [bad, known])| bad == known).count();
        let is_fact = test.basis != Basis::Others;
        if is_fact && known.len() > 2 && whole * 2 > known.len() {
            let is_certain = self.tries_again() >= again::CERTAIN;
            let who = Who::Rail { rail: self.index };
            all.extend(test.slow(who, self.pairs.iter(), [whole, known.len()], is_certain));
            return;
        }
        let mut slow: Vec<u32> = Vec::new();
        if test.figure != Figure::Resent {
            // A node with only one pair may be slow because of its peer.
            let is_slow = |[bad, known]: [usize; 2]| bad == known && known > 1;
            slow = known.iter().filter(|(_, counts)| is_slow(*counts)).map(|(node, _)| *node).collect();
            if !slow.is_empty() {
                self.take_out_group(test, beyond(&test.of_pairs), &mut slow);
            }
            let is_well = |peer: u32| {
                let [bad, known] = counts(self, &of_nodes, peer);
                bad < known
            };
            let told = |node: &u32| self.slow_node(test, &test.of_nodes, &of_nodes, is_well, *node);
            all.extend(slow.iter().filter_map(told));
        }
        let of_pairs = beyond(&test.of_pairs);
        self.links(test, of_pairs, &slow, all);
    }

    /// Removes nodes of a group whose pairs with the others are slow, if they have no other pairs.
    fn take_out_group(&self, test: &Test, mut of_pairs: Vec<Option<bool>>, slow: &mut Vec<u32>) {
        self.leave_out(&mut of_pairs, slow);
        let Some(part) = self.part(&of_pairs, &cover::nodes(self, &of_pairs, self.most(test))) else {
            return;
        };
        let is_within = |node: u32| self.pairs_of(node).any(|pair| !part.group.parts(pair.nodes));
        slow.retain(|node| !part.group.has(*node) || is_within(*node));
    }

    /// Leaves out the pairs of these nodes, which are sorted.
    fn leave_out(&self, of_pairs: &mut [Option<bool>], nodes: &[u32]) {
        for (pair, is_bad) in self.pairs.iter().zip(of_pairs) {
            if pair.nodes.iter().any(|node| nodes.binary_search(node).is_ok()) {
                *is_bad = None;
            }
        }
    }

    /// Returns how many nodes may have mostly slow pairs before the fabric is slow.
    fn most(&self, test: &Test) -> usize {
        let eighth = self.nodes().count() / 8;
        match test.figure {
            Figure::Resent => usize::MAX,
            // With fewer than eight nodes, each may be one of two that are far from the others.
            Figure::Bandwidth | Figure::Latency if test.is_by_design() => eighth,
            Figure::Bandwidth | Figure::Latency => eighth.max(1),
        }
    }

    /// Returns the group whose pairs with the others are slow, if that explains the slow pairs better
    /// than these nodes do.
    fn part(&self, of_pairs: &[Option<bool>], covers: &[u32]) -> Option<Part> {
        let known = |place: usize| Some((self.pairs[place].nodes, of_pairs[place]?));
        let pairs: Vec<([u32; 2], bool)> = (0..self.pairs.len()).filter_map(known).collect();
        if pairs.iter().filter(|(_, is_bad)| *is_bad).count() < MANY {
            return None;
        }
        let mut other = Other::default();
        pairs.iter().for_each(|(_, is_bad)| other.left.add(*is_bad));
        let mut taken = vec![false; self.pairs.len()];
        for node in covers {
            let mut own = Background::default();
            for &place in self.places(*node).iter().filter(|place| !taken[**place]) {
                of_pairs[place].into_iter().for_each(|is_bad| own.add(is_bad));
            }
            self.places(*node).iter().for_each(|place| taken[*place] = true);
            other.left.take(own);
            other.nodes.push(own);
        }
        let nodes = self.count();
        partial::find(nodes, &pairs).filter(|part| part.is_better(&other, nodes))
    }

    /// Finds pairs that are slow although neither of their nodes is, and nodes whose pairs are mostly
    /// among these.
    fn links(&self, test: &Test, mut of_pairs: Vec<Option<bool>>, slow: &[u32], all: &mut Vec<Slow>) {
        self.leave_out(&mut of_pairs, slow);
        let (by_design, most) = (test.is_by_design(), self.most(test));
        let before = of_pairs.clone();
        let mut covers = cover::nodes(self, &of_pairs, most);
        if let Some(part) = self.part(&of_pairs, &covers) {
            let between =
                || self.pairs.iter().zip(&of_pairs).filter(|(pair, _)| part.group.parts(pair.nodes));
            let known = between().filter(|(_, is_bad)| is_bad.is_some()).count();
            let slow = || between().filter(|(_, is_bad)| **is_bad == Some(true)).map(|(pair, _)| pair);
            // A fabric may have fewer links between its leaves than within them.
            if !by_design {
                let who = Who::Group { group: part.group, rail: self.index };
                let is_certain = test.is_certain(slow(), 1, &test.of_pairs, self.index);
                all.extend(test.slow(who, slow(), [slow().count(), known], is_certain));
            }
            for (pair, is_bad) in self.pairs.iter().zip(&mut of_pairs) {
                if part.group.parts(pair.nodes) {
                    *is_bad = None;
                }
            }
            covers = cover::nodes(self, &of_pairs, most);
        }
        let mut others = of_pairs.clone();
        let places = || covers.iter().flat_map(|node| self.places(*node));
        places().for_each(|place| others[*place] = None);
        for node in &covers {
            // Counts only peers without any other slow pair: otherwise the fabric may be slow.
            let is_well = |peer: u32| {
                let [bad, known] = counts(self, &others, peer);
                bad == 0 && known > 0
            };
            all.extend(self.slow_node(test, &test.of_pairs, &of_pairs, is_well, *node));
        }
        places().for_each(|place| of_pairs[*place] = None);
        let links = || self.pairs.iter().zip(&of_pairs).filter(|(_, is_bad)| **is_bad == Some(true));
        // If the fabric may be slower by design, a pair is an outlier only if few are as slow as it is.
        let slow = || self.pairs.iter().zip(&before).filter(|(_, is_bad)| **is_bad == Some(true));
        let mut values: Vec<f32> = match by_design {
            true => slow().filter_map(|(pair, _)| pair.all().of(test.figure)).collect(),
            false => Vec::new(),
        };
        values.sort_by(f32::total_cmp);
        let few = FEW.max(self.pairs.len() / ONE_IN);
        for (pair, _) in links() {
            let Some(value) = pair.all().of(test.figure) else { continue };
            if by_design && as_slow(&values, test.figure, value) > few {
                continue;
            }
            let who = Who::Link { nodes: pair.nodes, rail: self.index };
            let pair = || std::iter::once(pair);
            let is_certain = test.is_certain(pair(), 1, &test.of_pairs, self.index);
            all.extend(test.slow(who, pair(), [1, 1], is_certain));
        }
    }

    /// Returns a node as slow in these pairs, by this limit. It is certain only with enough peers that
    /// pass.
    fn slow_node(
        &self,
        test: &Test,
        limit: &Limit,
        bad: &[Option<bool>],
        is_well: impl Fn(u32) -> bool,
        node: u32,
    ) -> Option<Slow> {
        let places = self.places(node).iter().filter(|place| bad[**place] == Some(true));
        let pairs = places.map(|place| &self.pairs[*place]);
        let is_witness = |pair: &&Pair| is_well(pair.other(node));
        let is_certain = pairs.clone().filter(is_witness).count() >= WITNESSES
            && test.is_certain(self.pairs_of(node).filter(is_witness), WITNESSES, limit, self.index);
        let who = Who::Node { node, rail: self.index };
        test.slow(who, pairs, counts(self, bad, node), is_certain)
    }
}

/// Returns how many of these sorted values are about as slow as this one, or slower.
fn as_slow(sorted: &[f32], figure: Figure, value: f32) -> usize {
    match figure {
        Figure::Bandwidth => sorted.partition_point(|other| *other <= value * ALIKE),
        Figure::Latency | Figure::Resent => {
            sorted.len() - sorted.partition_point(|other| *other < value / ALIKE)
        }
    }
}
