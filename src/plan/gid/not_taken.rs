//! For `plan --why`: the slots that would be right as well, and why another one is taken.

use std::collections::BTreeSet;

use super::INDEX;
use crate::fabric::gid::Rail;
use crate::facts::gid::Gid;
use crate::plan::Notes;

/// A line shows at most this many addresses.
const SHOWN: usize = 4;

/// Beside a slot that is taken on every HCA. `is_published`: it is the platform's constant.
pub fn beside(rails: &[Rail], taken: u32, is_published: bool, notes: &mut Notes) {
    let ipv6_is_taken = at(rails, taken).any(|gid| gid.address().is_ipv6());
    let indexes: BTreeSet<u32> =
        rails.iter().flat_map(|rail| &rail.slots).map(|gid| gid.index).filter(|i| *i != taken).collect();
    for index in indexes {
        let (ipv6, ipv4): (Vec<&Gid>, Vec<&Gid>) = at(rails, index).partition(|gid| gid.address().is_ipv6());
        let right = ipv6.len() + ipv4.len();
        let chosen = format!("; set {INDEX}={index} to take it");
        let (where_right, why) = match (ipv4.is_empty(), ipv6.is_empty()) {
            _ if right < rails.len() => (
                format!("on {right} of {} HCAs", rails.len()),
                "because one index holds for all HCAs".to_owned(),
            ),
            (false, false) => (
                "on every HCA, IPv4 on some and IPv6 on others".to_owned(),
                "because IPv4 and IPv6 cannot reach each other".to_owned(),
            ),
            (true, _) if !ipv6_is_taken => {
                ("on every HCA, too".to_owned(), format!("because IPv4 comes before IPv6{chosen}"))
            }
            _ if is_published => {
                ("on every HCA, too".to_owned(), format!("because slot {taken} is published{chosen}"))
            }
            _ => ("on every HCA, too".to_owned(), format!("because slot {taken} is lower{chosen}")),
        };
        let rule = format!("slot {index}, which is right {where_right} ({})", shown(at(rails, index)));
        notes.tried(INDEX, rule, format!("not taken, {why}"));
    }
}

/// Beside the slots that NCCL's own search ends on, one on each rail.
pub fn beside_search(rails: &[Rail], ends: &[&Gid], notes: &mut Notes) {
    for (rail, end) in rails.iter().zip(ends) {
        for other in rail.slots.iter().filter(|gid| gid.index != end.index) {
            let [other_shown, end_shown] = [*other, *end].map(|gid| shown([gid].into_iter()));
            notes.tried(
                INDEX,
                format!("slot {} of {}, which is right, too ({other_shown})", other.index, rail.name),
                format!("not taken, because the search ends on slot {} ({end_shown})", end.index),
            );
        }
    }
}

/// What each HCA has in a slot, where it is right.
fn at<'a>(rails: &'a [Rail], index: u32) -> impl Iterator<Item = &'a Gid> {
    rails.iter().filter_map(move |rail| rail.at(index))
}

/// `172.16.1.9 on eth1.100`, where the name of the interface tells a VLAN.
fn shown<'a>(gids: impl Iterator<Item = &'a Gid>) -> String {
    let one = |gid: &Gid| match &gid.netdev {
        Some(netdev) => format!("{} on {netdev}", gid.address()),
        None => gid.address().to_string(),
    };
    let mut list: Vec<String> = gids.map(one).collect();
    let more = list.split_off(list.len().min(SHOWN));
    if !more.is_empty() {
        list.push(format!("{} more", more.len()));
    }
    list.join(", ")
}
