//! Which nodes explain most of the slow pairs: a node with three slow pairs of four is one fault, and
//! not three links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::figures::Rail;

/// A node is slow if it has at least this many slow pairs and they are two thirds of its pairs.
const FEWEST: usize = 2;

/// Returns the nodes with at least twice as many slow pairs as sound ones, the worst first; a pair
/// counts for only one of its nodes. `bad` says for each pair whether it is slow, if that is known.
/// Returns no node if there are more than `most`, because then the fabric is slow. Omits a node that
/// passes with another node if at least half of that node's pairs are slow, too: both nodes share
/// something slow, such as the links to the other half of the job.
pub(super) fn nodes(rail: &Rail, bad: &[Option<bool>], most: usize) -> Vec<u32> {
    let mut left: Vec<bool> = bad.iter().map(|is_bad| *is_bad == Some(true)).collect();
    let count = |node: u32, left: &[bool]| rail.places(node).iter().filter(|place| left[**place]).count();
    let mut heap: BinaryHeap<(usize, Reverse<u32>)> = rail
        .nodes()
        .map(|node| (count(node, &left), Reverse(node)))
        .filter(|(count, _)| *count >= FEWEST)
        .collect();
    let mut found = Vec::new();
    while let Some((known, Reverse(node))) = heap.pop() {
        let now = count(node, &left);
        if now < known {
            if now >= FEWEST {
                heap.push((now, Reverse(node)));
            }
            continue;
        }
        let of =
            rail.places(node).iter().filter(|place| left[**place] || bad[**place] == Some(false)).count();
        if now * 3 >= of * 2 {
            found.push(node);
            rail.places(node).iter().for_each(|place| left[*place] = false);
        }
    }
    let most_is_bad = |node: u32| {
        let known = || rail.places(node).iter().filter_map(|place| bad[*place]);
        known().filter(|is_bad| *is_bad).count() * 2 >= known().count()
    };
    let is_like =
        |node: u32, place: usize| bad[place] == Some(false) && most_is_bad(rail.pairs[place].other(node));
    let count = found.len();
    found.retain(|node| !rail.places(*node).iter().any(|place| is_like(*node, *place)));
    if count > most { Vec::new() } else { found }
}
