//! Sorting, with one copy of the standard library's: it is compiled anew for each type,
//! and for each ordered set that is collected, at 4 KB of a program whose size is limited.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// As [`slice::sort_by`]: what is equal keeps its order.
pub fn by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut place = places(items.len(), &|a, b| compare(&items[a], &items[b]));
    for index in 0..items.len() {
        while place[index] != index {
            let to = place[index];
            items.swap(index, to);
            place.swap(index, to);
        }
    }
}

/// As [`slice::sort_by_key`].
pub fn by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    by(items, |a, b| key(a).cmp(&key(b)));
}

/// Where each item goes.
fn places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| compare(*a, *b));
    let mut place = vec![0; count];
    for (to, from) in order.into_iter().enumerate() {
        place[from] = to;
    }
    place
}

pub fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// Of several with the same key, the last counts.
pub fn map<K: Ord, V>(items: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(items);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_as_the_standard_library_does() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in 0..200 {
            let items: Vec<(u8, usize)> = (0..count).map(|number| (random.u8(..20), number)).collect();
            let (mut ours, mut theirs) = (items.clone(), items);
            by_key(&mut ours, |item| item.0);
            theirs.sort_by_key(|item| item.0);
            assert_eq!(ours, theirs);
        }
    }
}
