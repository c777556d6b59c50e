//! For `plan --why`: the other indexes that would also be right, and why the plan does not use them.

use std::collections::BTreeSet;

use super::INDEX;
use crate::fabric::gid::{RailGids, is_right_everywhere};
use crate::facts::gid::Gid;
use crate::plan::Notes;
use crate::plan::rule::{NotTaken, Trial};

/// Notes the alternatives to an index that is used on every HCA. `is_published` is true for the platform's
/// constant.
pub(super) fn beside(rails: &[RailGids], taken: u32, is_published: bool, notes: &mut Notes) {
    let ipv6_is_taken = at(rails, taken).any(|gid| gid.address().is_ipv6());
    let indexes: BTreeSet<u32> =
        rails.iter().flat_map(|rail| &rail.slots).map(|gid| gid.index).filter(|i| *i != taken).collect();
    for index in indexes {
        let gids: Vec<Gid> = at(rails, index).cloned().collect();
        let is_ipv6 = gids.iter().all(|gid| gid.address().is_ipv6());
        let why = match gids.len() {
            right if right < rails.len() => NotTaken::RightOnSome { right, of: rails.len() },
            _ if !is_right_everywhere(rails, index) => NotTaken::OfTwoFamilies,
            _ if is_ipv6 && !ipv6_is_taken => NotTaken::OfIpv6,
            _ if is_published => NotTaken::Published(taken),
            _ => NotTaken::Higher(taken),
        };
        notes.tried(INDEX, Trial::OtherSlot { index, gids, why });
    }
}

/// Notes the alternatives to the indexes that NCCL's own search finds, one on each rail.
pub(super) fn beside_search(rails: &[RailGids], ends: &[&Gid], notes: &mut Notes) {
    for (rail, end) in rails.iter().zip(ends) {
        for other in rail.slots.iter().filter(|gid| gid.index != end.index) {
            let (port, gid, end) = (rail.name.clone(), (*other).clone(), (*end).clone());
            notes.tried(INDEX, Trial::OtherSlotOfPort { port, gid, end });
        }
    }
}

/// Returns each HCA's entry at an index, if it is right.
fn at<'a>(rails: &'a [RailGids], index: u32) -> impl Iterator<Item = &'a Gid> {
    rails.iter().filter_map(move |rail| rail.at(index))
}
