//! `NCCL_IB_GID_INDEX` and `NCCL_IB_ADDR_*`: the source address of RoCE.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::devices::{Candidate, Reason};
use super::setting::Proposal;
use super::{Context, Finding};
use crate::facts::Facts;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::{LinkLayer, Port};
use crate::nccl::gid_walk::{Family, Walk};
use crate::profiles::Profile;

const INDEX: &str = "NCCL_IB_GID_INDEX";
const RANGE: &str = "NCCL_IB_ADDR_RANGE";
const FAMILY: &str = "NCCL_IB_ADDR_FAMILY";

/// The NCCL from which on it searches the table itself, and knows `ADDR_*`.
const WALKS_SINCE: [u32; 2] = [2, 21];

/// From here on the search does not end with an error at an empty slot.
const TOLERATES_EMPTY_SINCE: [u32; 3] = [2, 26, 2];

/// What is right for the used ports.
#[derive(Debug, Clone, PartialEq)]
pub enum GidChoice {
    /// InfiniBand, no port with a GID of ours, or the user's decision.
    NotOurs,
    /// The same slot on every port.
    Index { index: u32, rule: String, evidence: Vec<String> },
    /// Other slots on other ports, and what makes NCCL's own search end on them.
    Search { walk: Walk, evidence: Vec<String> },
}

/// The slots that hold a routable RoCE v2 GID of one of our own addresses, IPv4
/// first. The netdev does not decide: its name may be another namespace's.
pub fn own_slots<'a>(facts: &Facts, port: &'a Port) -> Vec<&'a Gid> {
    let own: BTreeSet<IpAddr> = facts.net.own_addresses().collect();
    let mut slots: Vec<&Gid> = port
        .gids
        .slots
        .iter()
        .filter(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local() && own.contains(&gid.address()))
        .collect();
    slots.sort_by_key(|gid| (gid.address().is_ipv6(), gid.index));
    slots
}

/// A used RoCE port, with the slots that would be right.
#[derive(Clone)]
struct Rail<'a> {
    name: String,
    port: &'a Port,
    slots: Vec<&'a Gid>,
}

impl Rail<'_> {
    fn has(&self, index: u32) -> bool {
        self.slots.iter().any(|gid| gid.index == index)
    }
}

/// Chooses for the used ports, and leaves ports out where no one choice fits all.
pub fn choose(context: &Context, ports: &mut [Candidate], findings: &mut Vec<Finding>) -> GidChoice {
    let Context { facts, profile, user, .. } = context;
    if !context.uses_verbs() || user.gid().is_some() {
        return GidChoice::NotOurs;
    }
    let used = ports.iter().filter(|p| p.is_used() && p.port.link_layer == LinkLayer::Ethernet);
    let (rails, without): (Vec<Rail>, Vec<Rail>) = used
        .map(|p| Rail { name: p.name(), port: p.port, slots: own_slots(facts, p.port) })
        .partition(|rail| !rail.slots.is_empty());
    // Where interfaces cannot be listed, nobody knows which addresses are ours.
    if !without.is_empty() && !facts.net.interfaces.is_empty() {
        findings.push(missing(&without));
    }
    if rails.is_empty() {
        return GidChoice::NotOurs;
    }
    if let Some((index, rule)) = published_index(&rails, profile) {
        return GidChoice::Index { index, rule, evidence: evidence_at(&rails, index) };
    }
    let rails = of_one_family(rails);
    if let Some(index) = common_index(&rails) {
        let rule = "the RoCE v2 GID of an address of this container, on every HCA".to_owned();
        return GidChoice::Index { index, rule, evidence: evidence_at(&rails, index) };
    }
    let version = facts.platform.nccl_version.as_deref().and_then(super::constraints::version);
    let since = |least: [u32; 2]| version.as_ref().is_none_or(|v| v.as_slice() >= least.as_slice());
    let may_abort = version.as_ref().is_none_or(|v| v.as_slice() < TOLERATES_EMPTY_SINCE.as_slice());
    if since(WALKS_SINCE)
        && let Some(walk) = search(&rails, may_abort)
    {
        if version.is_none() {
            findings.push(version_unknown());
        }
        let evidence = rails.iter().map(|rail| shown(&rail.name, rail.slots[0])).collect();
        return GidChoice::Search { walk, evidence };
    }
    let may_narrow = !context.is_decided("NCCL_IB_HCA");
    largest_agreeing(&rails, since(WALKS_SINCE), may_narrow, ports, findings)
}

fn version_unknown() -> Finding {
    Finding::info(
        "gid-needs-nccl-2.21",
        "The right GID is in another slot on each HCA. NCCL 2.21 and later can find each; an older one needs the same slot everywhere, and the image does not say which NCCL it has (NCCL_VERSION).",
    )
}

/// What is in the tables where our GID should be.
fn missing(rails: &[Rail]) -> Finding {
    let list: Vec<String> = rails
        .iter()
        .map(|rail| {
            let slots = &rail.port.gids.slots;
            let v2 = slots.iter().filter(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local());
            let addresses: Vec<String> =
                v2.map(|gid| format!("{} in slot {}", gid.address(), gid.index)).collect();
            match (addresses.as_slice(), slots.is_empty()) {
                ([], true) => format!("{} has no GID at all", rail.name),
                ([], false) => format!("{} has only RoCE v1 or link-local ones", rail.name),
                (some, _) => format!("{} has {}", rail.name, some.join(", ")),
            }
        })
        .collect();
    Finding::error(
        "no-own-gid",
        format!("No RoCE v2 GID of an address of this container, so RoCE will not connect: {}.", list.join("; ")),
    )
    .with_fix("Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network.")
}

/// Each rail with its IPv4 slots where every rail has one, else with its IPv6
/// slots where every rail has one, else with what there is.
fn of_one_family(rails: Vec<Rail>) -> Vec<Rail> {
    let of = |ipv6: bool| -> Option<Vec<Rail>> {
        let filtered: Vec<Rail> = rails
            .iter()
            .map(|rail| Rail {
                slots: rail.slots.iter().filter(|g| g.address().is_ipv6() == ipv6).copied().collect(),
                ..rail.clone()
            })
            .collect();
        filtered.iter().all(|rail| !rail.slots.is_empty()).then_some(filtered)
    };
    of(false).or_else(|| of(true)).unwrap_or(rails)
}

/// The published index, where it is a GID of ours on every rail, of one family:
/// an IPv4 GID cannot reach an IPv6 one.
fn published_index(rails: &[Rail], profile: &Profile) -> Option<(u32, String)> {
    let index: u32 = profile.variables.get(INDEX)?.parse().ok()?;
    let at: Option<Vec<&Gid>> =
        rails.iter().map(|rail| rail.slots.iter().find(|gid| gid.index == index).copied()).collect();
    let families: BTreeSet<bool> = at?.iter().map(|gid| gid.address().is_ipv6()).collect();
    let rule = "published, and a RoCE v2 GID of an address of this container on every HCA";
    (families.len() == 1).then(|| (index, rule.to_owned()))
}

/// The lowest slot that is right on every rail.
fn common_index(rails: &[Rail]) -> Option<u32> {
    let slots = rails.first()?.slots.iter().map(|gid| gid.index);
    slots.filter(|index| rails.iter().all(|rail| rail.has(*index))).min()
}

/// The variables with which NCCL's own search ends on a right slot on every rail,
/// none if possible. Proven by replaying the search.
fn search(rails: &[Rail], may_abort: bool) -> Option<Walk> {
    let family = match rails.first()?.slots.first()?.address() {
        IpAddr::V4(_) => Family::Inet,
        IpAddr::V6(_) => Family::Inet6,
    };
    let free = Walk { family, range: None };
    // No narrower range holds them all, and a wider one lets in more that is wrong.
    let narrow = Walk { family, range: common_range(rails.iter().map(|rail| rail.slots[0].address())) };
    [free, narrow].into_iter().find(|walk| {
        rails.iter().all(|rail| {
            let end = walk.run(&rail.port.gids);
            rail.has(end.slot) && !(may_abort && end.reads_empty_slot)
        })
    })
}

/// Keeps the rails that share a slot with most others.
fn largest_agreeing(
    rails: &[Rail],
    is_recent: bool,
    may_narrow: bool,
    ports: &mut [Candidate],
    findings: &mut Vec<Finding>,
) -> GidChoice {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for gid in rails.iter().flat_map(|rail| &rail.slots) {
        *count.entry(gid.index).or_default() += 1;
    }
    let best = count.into_iter().max_by_key(|(index, rails)| (*rails, std::cmp::Reverse(*index)));
    let Some((index, _)) = best else { return GidChoice::NotOurs };
    let rest: Vec<&str> =
        rails.iter().filter(|rail| !rail.has(index)).map(|rail| rail.name.as_str()).collect();
    let advice = if is_recent {
        "Give the RoCE interfaces addresses of one range of their own, or the same number of addresses on each."
    } else {
        "Use NCCL 2.21 or later, which looks for the slot on each HCA."
    };
    findings.push(
        Finding::warning(
            "gid-slots-differ",
            format!(
                "No single GID index is right for every HCA, and this NCCL cannot be led to each: slot {index} is right for most, and {} cannot be used with it.",
                rest.join(", ")
            ),
        )
        .with_fix(advice),
    );
    if may_narrow {
        let rest: BTreeSet<String> = rest.iter().map(|name| (*name).to_owned()).collect();
        for port in ports.iter_mut().filter(|port| rest.contains(&port.name())) {
            port.leave_out(Reason::GidElsewhere(index));
        }
    }
    let rule = "the slot that is right on most HCAs".to_owned();
    GidChoice::Index { index, rule, evidence: evidence_at(rails, index) }
}

fn evidence_at(rails: &[Rail], index: u32) -> Vec<String> {
    let at = |rail: &Rail| Some(shown(&rail.name, rail.slots.iter().find(|gid| gid.index == index)?));
    rails.iter().filter_map(at).collect()
}

fn shown(name: &str, gid: &Gid) -> String {
    let netdev = gid.netdev.as_deref().map(|n| format!(" on {n}")).unwrap_or_default();
    format!("{name} slot {}: {}{netdev}, RoCE v2", gid.index, gid.address())
}

/// The narrowest network that holds all of the addresses, which are of one family.
fn common_range(addresses: impl Iterator<Item = IpAddr>) -> Option<IpNet> {
    addresses.map(IpNet::from).reduce(|range, address| match (range, address) {
        (IpNet::V4(a), IpNet::V4(b)) => {
            let same = (u32::from(a.addr()) ^ u32::from(b.addr())).leading_zeros();
            let prefix = u8::try_from(same).unwrap_or(0).min(a.prefix_len()).min(b.prefix_len());
            Ipv4Net::new(a.addr(), prefix).map_or(range, |net| net.trunc().into())
        }
        (IpNet::V6(a), IpNet::V6(b)) => {
            let same = (u128::from(a.addr()) ^ u128::from(b.addr())).leading_zeros();
            let prefix = u8::try_from(same).unwrap_or(0).min(a.prefix_len()).min(b.prefix_len());
            Ipv6Net::new(a.addr(), prefix).map_or(range, |net| net.trunc().into())
        }
        _ => range,
    })
}

pub fn propose(context: &Context, choice: &GidChoice, findings: &mut Vec<Finding>) -> Vec<Proposal> {
    let profile = context.profile;
    let published = profile.variables.get(INDEX).filter(|_| !context.is_decided(INDEX));
    let differs = |findings: &mut Vec<Finding>, instead: &str| {
        if let Some(published) = published {
            findings.push(Finding::info(
                "published-gid-differs",
                format!("Profile {} publishes {INDEX}={published}, which is not right for every HCA here; {instead}.", profile.name),
            ));
        }
    };
    match choice {
        GidChoice::NotOurs => Vec::new(),
        GidChoice::Index { index, rule, evidence } => {
            let value = index.to_string();
            let proposal = if published == Some(&value) {
                Proposal::from_profile(&profile.name, INDEX, &value, rule)
            } else {
                differs(findings, &format!("{value} is set instead"));
                Proposal::from_facts(INDEX, value, rule)
            };
            vec![proposal.because(evidence.clone())]
        }
        GidChoice::Search { walk, evidence } => {
            differs(findings, "it stays unset, because the right slots differ");
            let mut proposals = vec![Proposal {
                value: None,
                ..Proposal::from_facts(
                    INDEX,
                    "",
                    "the right slot differs between HCAs, and NCCL's own search ends on each",
                )
                .because(evidence.clone())
            }];
            let rule = "makes NCCL's own search end on our GID on every HCA";
            if walk.family == Family::Inet6 {
                proposals.push(Proposal::from_facts(FAMILY, "AF_INET6", rule));
            }
            if let Some(range) = walk.range {
                proposals.push(Proposal::from_facts(RANGE, range.to_string(), rule));
            }
            proposals
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_range_is_the_narrowest() {
        let range = |addresses: &[&str]| {
            common_range(addresses.iter().map(|a| a.parse().unwrap())).unwrap().to_string()
        };
        assert_eq!(range(&["25.11.128.2", "25.11.128.34"]), "25.11.128.0/26");
        assert_eq!(range(&["10.0.0.1"]), "10.0.0.1/32");
        assert_eq!(range(&["10.0.0.1", "192.168.0.1"]), "0.0.0.0/0");
        assert_eq!(range(&["fd00::1", "fd00::2"]), "fd00::/126");
    }
}
