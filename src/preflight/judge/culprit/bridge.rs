//! Groups of nodes that reach each other only through one node or one pair: all other pairs between the
//! groups fail. Either group may be healthy, so no node is faulty by itself. Pure.

use std::collections::BTreeSet;

use super::again::CUTS;

/// How many nodes are examined as the one between two groups: those between the largest groups.
const LOOKED_AT: usize = 8;

/// Two groups. One of them is listed, and the other one is the rest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bridge {
    /// The node, or the two nodes of the pair, through which the groups reach each other.
    pub through: Vec<u32>,
    /// The smaller group, without the other group's node through which it is reached.
    pub group: Vec<u32>,
    /// How many pairs between the groups have failed, and whether several nodes of either group are in
    /// them.
    failed: usize,
    are_several: bool,
}

impl Bridge {
    /// Returns whether enough pairs between the groups have failed.
    pub(super) fn is_proven(&self) -> bool {
        self.failed >= CUTS && self.are_several
    }
}

/// A walk through the nodes of one island, along the pairs that have passed (Tarjan, "Depth-first
/// search and linear graph algorithms", SIAM J. Comput. 1, 1972).
struct Walk {
    /// When the walk entered a node, counted from 1; 0 if the node is not in this island.
    entered: Vec<u32>,
    /// The earliest node that this node and those behind it reach on another path.
    reached: Vec<u32>,
    /// How many nodes are behind this one, including itself.
    behind: Vec<u32>,
    order: Vec<u32>,
    parent: Vec<u32>,
}

impl Walk {
    fn new(good: &[Vec<u32>], start: u32) -> Walk {
        let count = good.len();
        let mut walk = Walk {
            entered: vec![0; count],
            reached: vec![0; count],
            behind: vec![1; count],
            order: Vec::new(),
            parent: vec![start; count],
        };
        walk.enter(start);
        // Each node is stored with the position of its next neighbor.
        let mut path = vec![(start, 0)];
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(&other) = good[node as usize].get(*next) else {
                path.pop();
                walk.leave(node);
                continue;
            };
            *next += 1;
            if walk.entered[other as usize] == 0 {
                walk.parent[other as usize] = node;
                walk.enter(other);
                path.push((other, 0));
            } else if other != walk.parent[node as usize] {
                walk.reach(node, walk.entered[other as usize]);
            }
        }
        walk
    }

    fn enter(&mut self, node: u32) {
        self.order.push(node);
        self.entered[node as usize] = self.order.len() as u32;
        self.reached[node as usize] = self.order.len() as u32;
    }

    fn reach(&mut self, node: u32, first: u32) {
        let reached = &mut self.reached[node as usize];
        *reached = first.min(*reached);
    }

    fn leave(&mut self, node: u32) {
        let parent = self.parent[node as usize];
        if parent != node {
            self.behind[parent as usize] += self.behind[node as usize];
            self.reach(parent, self.reached[node as usize]);
        }
    }

    /// Returns whether a node is this one, or is behind it.
    fn is_behind(&self, node: u32, first: u32) -> bool {
        let start = self.entered[first as usize];
        (start..start + self.behind[first as usize]).contains(&self.entered[node as usize])
    }
}

/// Returns the two groups of the island of `start` with the most failed pairs between them. `good`
/// lists the neighbors of each node within its island, and `bad` lists the failed pairs of this island.
pub(super) fn find(good: &[Vec<u32>], start: u32, bad: &[[u32; 2]]) -> Option<Bridge> {
    let walk = Walk::new(good, start);
    let all = walk.order.len() as u32;
    let is_group = |size: u32| size > 1 && all > size + 2;
    let mut firsts: Vec<u32> = walk.order[1..]
        .iter()
        .copied()
        .filter(|first| {
            let parent = walk.parent[*first as usize];
            walk.reached[*first as usize] >= walk.entered[parent as usize]
                && is_group(walk.behind[*first as usize])
        })
        .collect();
    let smaller = |first: &u32| walk.behind[*first as usize].min(all - walk.behind[*first as usize]);
    firsts.sort_by_key(|first| std::cmp::Reverse(smaller(first)));
    firsts.truncate(LOOKED_AT);
    let bridges = firsts.into_iter().map(|first| bridge(&walk, good, first, bad));
    bridges.filter(|bridge| bridge.failed > 0).max_by_key(|bridge| (bridge.is_proven(), bridge.failed))
}

/// Returns the group behind this node, and the other group.
fn bridge(walk: &Walk, good: &[Vec<u32>], first: u32, bad: &[[u32; 2]]) -> Bridge {
    let between = walk.parent[first as usize];
    let is_here = |node: &u32| walk.is_behind(*node, first);
    let mut ends: [BTreeSet<u32>; 2] = Default::default();
    let mut failed = 0;
    for pair in bad.iter().filter(|pair| !pair.contains(&between)) {
        let [a, b] = pair;
        let sides = if is_here(a) { [a, b] } else { [b, a] };
        if is_here(sides[0]) && !is_here(sides[1]) {
            failed += 1;
            ends[0].insert(*sides[0]);
            ends[1].insert(*sides[1]);
        }
    }
    let are_several = ends.iter().all(|nodes| nodes.len() > 1);
    let neighbours = good[between as usize].iter().filter(|node| is_here(node)).count();
    let mut through = vec![between];
    through.extend((neighbours == 1).then_some(first));
    through.sort_unstable();
    let is_small = walk.behind[first as usize] * 2 <= walk.order.len() as u32;
    // The node between the groups belongs to the larger one, unless it is one end of the only pair.
    let is_pair = through.len() > 1;
    let of_group = |node: &u32| is_here(node) == is_small && (*node != between || is_pair);
    let group = walk.order.iter().copied().filter(of_group).collect();
    Bridge { through, group, failed, are_several }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(nodes: usize, pairs: &[[u32; 2]]) -> Vec<Vec<u32>> {
        let mut good = vec![Vec::new(); nodes];
        for [a, b] in pairs {
            good[*a as usize].push(*b);
            good[*b as usize].push(*a);
        }
        good
    }

    #[test]
    fn the_node_between_two_groups_is_found_from_wherever_the_walk_starts() {
        let good = good(7, &[[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [4, 5], [2, 5], [5, 6], [3, 6]]);
        let bad = [[0, 3], [0, 4], [1, 5], [1, 6]];
        for start in 0..7 {
            let bridge = find(&good, start, &bad).unwrap();
            let mut group = bridge.group.clone();
            group.sort_unstable();
            assert!(bridge.is_proven(), "{start}");
            assert_eq!((bridge.through, group), (vec![2], vec![0, 1]), "{start}");
        }
        assert!(!find(&good, 0, &[[0, 3], [0, 4], [0, 5]]).unwrap().is_proven(), "it may be node 0 alone");
        assert_eq!(find(&good, 0, &[[3, 5]]), None);
    }

    #[test]
    fn the_pair_between_two_groups_is_found() {
        let good = good(6, &[[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [4, 5], [3, 5]]);
        let bad = [[0, 4], [1, 5], [0, 5]];
        for start in 0..6 {
            // If there are two nodes on either side, both ends of the pair explain equally much.
            let bridge = find(&good, start, &bad).unwrap();
            assert!(bridge.is_proven() && bridge.through.iter().all(|node| [2, 3].contains(node)), "{start}");
        }
    }
}
