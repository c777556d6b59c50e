//! `NCCL_IB_GID_INDEX` and `NCCL_IB_ADDR_*`: the source address of RoCE.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::devices::{Candidate, Reason, Verdict};
use super::setting::Proposal;
use super::{Finding, User};
use crate::facts::Facts;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::{LinkLayer, Port};
use crate::nccl::gid_walk::{Family, Walk};
use crate::profiles::{self, Profile};

const INDEX: &str = "NCCL_IB_GID_INDEX";
const RANGE: &str = "NCCL_IB_ADDR_RANGE";
const FAMILY: &str = "NCCL_IB_ADDR_FAMILY";

/// The NCCL from which on it searches the table itself, and knows `ADDR_*`.
const WALKS_SINCE: (u32, u32) = (2, 21);

/// What is right for the used ports.
#[derive(Debug, Clone, PartialEq)]
pub enum GidChoice {
    /// InfiniBand, no port, or the user's decision.
    NotOurs,
    /// The same slot on every port.
    Index { index: u32, rule: String, evidence: Vec<String> },
    /// Other slots on other ports, and what makes NCCL's own search end on them.
    Search { walk: Walk, evidence: Vec<String> },
    /// No port has a GID of ours.
    Missing,
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

/// Chooses for the used ports, and leaves ports out where no one choice fits all.
pub fn choose(
    facts: &Facts,
    ports: &mut [Candidate],
    profile: &Profile,
    user: &User,
    findings: &mut Vec<Finding>,
) -> GidChoice {
    let roce = |port: &&Candidate| port.is_used() && port.port.link_layer == LinkLayer::Ethernet;
    let used: Vec<(String, Vec<&Gid>)> = ports
        .iter()
        .filter(roce)
        .map(|port| (format!("{}:{}", port.hca.name, port.port.number), own_slots(facts, port.port)))
        .collect();
    if used.is_empty()
        || profile.fabric != Some(profiles::Fabric::Verbs)
        || user.gid().is_some()
        || user.ib_disabled().is_some()
    {
        return GidChoice::NotOurs;
    }
    if used.iter().any(|(_, slots)| slots.is_empty()) {
        findings.push(missing(&used));
        return GidChoice::Missing;
    }
    let per_port = Slots::of_one_family(&used);
    if let Some((index, rule)) = common_index(&per_port, &used, profile) {
        return GidChoice::Index { index, rule, evidence: evidence_at(&used, index) };
    }
    let version = facts.platform.nccl_version.as_deref().and_then(super::constraints::version);
    let walks = version.as_ref().is_none_or(|v| v.as_slice() >= [WALKS_SINCE.0, WALKS_SINCE.1].as_slice());
    let tables: Vec<&Port> = ports.iter().filter(roce).map(|port| port.port).collect();
    if walks && let Some(walk) = per_port.search(&tables) {
        if version.is_none() {
            findings.push(Finding::info(
                "gid-needs-nccl-2.21",
                "The right GID is in another slot on each HCA. NCCL 2.21 and later finds them; an older one needs the same slot everywhere.",
            ));
        }
        let evidence = per_port.0.iter().map(|(name, slots)| shown(name, slots[0])).collect();
        return GidChoice::Search { walk, evidence };
    }
    per_port.largest_agreeing(ports, user, findings, &used)
}

fn missing(used: &[(String, Vec<&Gid>)]) -> Finding {
    let names: Vec<&str> =
        used.iter().filter(|(_, slots)| slots.is_empty()).map(|(name, _)| name.as_str()).collect();
    Finding::error(
        "no-own-gid",
        format!("No RoCE v2 GID of an address of this container is in the table of {}; RoCE will not connect.", names.join(", ")),
    )
    .with_fix("Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network.")
}

/// For each port, the slots of one family, which all ports have; never empty.
struct Slots<'a>(Vec<(String, Vec<&'a Gid>)>);

impl<'a> Slots<'a> {
    /// IPv4 where every port has it, else IPv6 where every port has it, else
    /// what there is.
    fn of_one_family(used: &[(String, Vec<&'a Gid>)]) -> Slots<'a> {
        let of = |ipv6: bool| {
            let filtered: Vec<(String, Vec<&Gid>)> = used
                .iter()
                .map(|(name, slots)| {
                    let slots = slots.iter().filter(|g| g.address().is_ipv6() == ipv6).copied();
                    (name.clone(), slots.collect())
                })
                .collect();
            filtered.iter().all(|(_, slots)| !slots.is_empty()).then_some(filtered)
        };
        Slots(of(false).or_else(|| of(true)).unwrap_or_else(|| used.to_vec()))
    }

    /// The lowest slot that is right on every port.
    fn common(&self) -> Option<u32> {
        let (_, first) = self.0.first()?;
        first
            .iter()
            .map(|gid| gid.index)
            .filter(|index| self.0.iter().all(|(_, slots)| slots.iter().any(|g| g.index == *index)))
            .min()
    }

    /// The variables with which NCCL's own search ends on a right slot on every
    /// port, none if possible. Proven by replaying the search.
    fn search(&self, ports: &[&Port]) -> Option<Walk> {
        let family = match self.0.first()?.1.first()?.address() {
            IpAddr::V4(_) => Family::Inet,
            IpAddr::V6(_) => Family::Inet6,
        };
        let free = Walk { family, range: None };
        // No narrower range covers them all, and a wider one lets in more that is wrong.
        let narrow = Walk { family, range: common_range(self.0.iter().map(|(_, slots)| slots[0].address())) };
        [free, narrow].into_iter().find(|walk| {
            self.0.iter().zip(ports).all(|((_, slots), port)| {
                let end = walk.ends_on(&port.gids);
                slots.iter().any(|gid| gid.index == end)
            })
        })
    }

    /// Keeps the ports that share a slot with most others.
    fn largest_agreeing(
        &self,
        ports: &mut [Candidate],
        user: &User,
        findings: &mut Vec<Finding>,
        used: &[(String, Vec<&Gid>)],
    ) -> GidChoice {
        let mut count: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, slots) in &self.0 {
            for gid in slots {
                *count.entry(gid.index).or_default() += 1;
            }
        }
        let Some((index, _)) = count.into_iter().max_by_key(|(index, n)| (*n, std::cmp::Reverse(*index)))
        else {
            return GidChoice::Missing;
        };
        let rest: Vec<&str> = self
            .0
            .iter()
            .filter(|(_, slots)| slots.iter().all(|gid| gid.index != index))
            .map(|(name, _)| name.as_str())
            .collect();
        findings.push(
            Finding::warning(
                "gid-slots-differ",
                format!(
                    "No single GID index or address range is right for every HCA: slot {index} is right for most, {} cannot be used with it.",
                    rest.join(", ")
                ),
            )
            .with_fix("Use NCCL 2.21 or later, and addresses of one range of their own for the RoCE interfaces."),
        );
        if user.hcas().is_none() {
            let rest: BTreeSet<String> = rest.iter().map(|name| (*name).to_owned()).collect();
            for port in ports.iter_mut() {
                if rest.contains(&format!("{}:{}", port.hca.name, port.port.number)) {
                    port.verdict = Verdict::LeftOut(Reason::GidElsewhere(index));
                }
            }
        }
        GidChoice::Index {
            index,
            rule: "the slot that is right on most HCAs".to_owned(),
            evidence: evidence_at(used, index),
        }
    }
}

fn common_index(slots: &Slots, used: &[(String, Vec<&Gid>)], profile: &Profile) -> Option<(u32, String)> {
    let published = profile.variables.get(INDEX).and_then(|index| index.parse::<u32>().ok());
    if let Some(index) = published
        && used.iter().all(|(_, slots)| slots.iter().any(|gid| gid.index == index))
    {
        return Some((index, "published, and a RoCE v2 GID of ours on every HCA".to_owned()));
    }
    slots.common().map(|index| (index, "the RoCE v2 GID of an address of ours, on every HCA".to_owned()))
}

fn evidence_at(used: &[(String, Vec<&Gid>)], index: u32) -> Vec<String> {
    used.iter()
        .filter_map(|(name, slots)| Some(shown(name, slots.iter().find(|gid| gid.index == index)?)))
        .collect()
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

pub fn propose(choice: &GidChoice, profile: &Profile, findings: &mut Vec<Finding>) -> Vec<Proposal> {
    let published = profile.variables.get(INDEX);
    let differs = |findings: &mut Vec<Finding>, instead: &str| {
        if let Some(published) = published {
            findings.push(Finding::info(
                "published-gid-differs",
                format!("Profile {} publishes {INDEX}={published}, which is not right for every HCA here; {instead}.", profile.name),
            ));
        }
    };
    match choice {
        GidChoice::NotOurs | GidChoice::Missing => Vec::new(),
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
            differs(findings, "the slots differ, and NCCL finds each by itself");
            let mut proposals = vec![Proposal {
                value: None,
                ..Proposal::from_facts(
                    INDEX,
                    "",
                    "the right slot differs between HCAs; NCCL's own search finds each",
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
