//! `NCCL_IB_GID_INDEX` and `NCCL_IB_ADDR_*`: the source address of RoCE.

mod not_taken;

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::remark::Remark;
use super::rule::{Evidence, Rule, SearchEnd, Trial};
use super::setting::Proposal;
use super::{Context, Notes};
use crate::fabric::gid::{Rail, common_index, is_right_everywhere, most_common_index, of_one_family, rails};
use crate::fabric::{Candidate, Reason};
use crate::facts::gid::Gid;
use crate::libraries::nccl::gid::{FAMILY, Family, INDEX, RANGE, Search};
use crate::libraries::nccl::version::{SEARCHES_GIDS, Version};
use crate::profiles::Profile;

/// What is right for the used ports.
#[must_use]
#[derive(Debug, Clone, PartialEq)]
pub enum GidChoice {
    /// There is nothing to choose: only InfiniBand, no port with a GID of ours, or the user has
    /// decided.
    NotOurs,
    /// The same slot on every port.
    Index { index: u32, rule: Rule, evidence: Vec<Evidence> },
    /// Other slots on other ports, and what makes NCCL's own search end on them.
    Search { search: Search, evidence: Vec<Evidence> },
}

impl GidChoice {
    /// The slot that is right on every port, where it is one.
    pub fn index(&self) -> Option<u32> {
        match self {
            GidChoice::Index { index, .. } => Some(*index),
            GidChoice::NotOurs | GidChoice::Search { .. } => None,
        }
    }
}

/// Chooses for the used ports, and leaves ports out where no single choice fits all.
pub fn choose(context: &Context, ports: &mut [Candidate], notes: &mut Notes) -> GidChoice {
    let Context { facts, profile, user, .. } = context;
    if !context.uses_verbs() || user.gid().is_some() {
        return GidChoice::NotOurs;
    }
    let (rails, without): (Vec<Rail>, Vec<Rail>) =
        rails(facts, ports).into_iter().partition(|rail| !rail.slots.is_empty());
    // Where interfaces cannot be listed, nobody knows which addresses are ours.
    if !without.is_empty() && !facts.net.interfaces.is_empty() {
        notes.remark(Remark::WithoutOwnGid(without.into_iter().map(|rail| rail.name).collect()));
    }
    if rails.is_empty() {
        return GidChoice::NotOurs;
    }
    let published = published_index(&rails, profile);
    if let Some(index) = profile.variables.get(INDEX) {
        notes.tried(INDEX, Trial::PublishedSlot { index: index.clone(), is_right: published.is_some() });
    }
    if let Some(index) = published {
        not_taken::beside(&rails, index, true, notes);
        let evidence = evidence_at(&rails, index);
        return GidChoice::Index { index, rule: Rule::PublishedSlot(index), evidence };
    }
    let all = rails;
    let rails = of_one_family(&all);
    let common = common_index(&rails);
    notes.tried(INDEX, Trial::CommonSlot(common));
    if let Some(index) = common {
        not_taken::beside(&all, index, false, notes);
        return GidChoice::Index {
            index,
            rule: Rule::RightSlot(index),
            evidence: evidence_at(&rails, index),
        };
    }
    // Without a version only what is right in every release can be chosen.
    let searches = user.version().filter(|version| *version >= SEARCHES_GIDS);
    if let Some((search, ends)) = searches.and_then(|version| search(&rails, version, notes)) {
        let evidence = rails.iter().zip(&ends).map(|(rail, end)| slot(rail, end)).collect();
        not_taken::beside_search(&all, &ends, notes);
        return GidChoice::Search { search, evidence };
    }
    let may_narrow = !context.leaves_alone("NCCL_IB_HCA");
    largest_agreeing(&rails, may_narrow, ports, notes)
}

/// The published index, where it is right on every rail.
fn published_index(rails: &[Rail], profile: &Profile) -> Option<u32> {
    let index: u32 = profile.variables.get(INDEX)?.parse().ok()?;
    is_right_everywhere(rails, index).then_some(index)
}

/// The variables with which NCCL's own search ends on a right slot on every rail,
/// none if possible, and these slots. Proven by replaying the search.
fn search<'a>(rails: &[Rail<'a>], version: Version, notes: &mut Notes) -> Option<(Search, Vec<&'a Gid>)> {
    let family = match rails.first()?.slots.first()?.address() {
        IpAddr::V4(_) => Family::Inet,
        IpAddr::V6(_) => Family::Inet6,
    };
    let free = Search { family, ..Search::default() };
    // No narrower range holds them all, and a wider one lets in more that is wrong.
    let range = common_range(rails.iter().map(|rail| rail.slots[0].address()));
    let narrow = Search { range: range.map(Into::into), ..free };
    let found = [free, narrow].into_iter().find(|search| {
        let wrong = rails
            .iter()
            .map(|rail| (rail, search.run(&rail.port.gids, version)))
            .find(|(rail, end)| !end.is_ok_and(|slot| rail.has(slot)));
        let end = match wrong {
            None => SearchEnd::Right,
            Some((rail, Ok(slot))) => SearchEnd::WrongSlot { port: rail.name.clone(), slot },
            Some((rail, Err(failure))) => SearchEnd::Fails { port: rail.name.clone(), failure },
        };
        notes.tried(INDEX, Trial::Search { version, range: search.range, end });
        wrong.is_none()
    })?;
    let end = |rail: &Rail<'a>| rail.at(found.run(&rail.port.gids, version).ok()?);
    Some((found, rails.iter().map(end).collect::<Option<_>>()?))
}

/// Keeps the rails that share a slot with most others.
fn largest_agreeing(
    rails: &[Rail],
    may_narrow: bool,
    ports: &mut [Candidate],
    notes: &mut Notes,
) -> GidChoice {
    let Some((index, agreeing)) = most_common_index(rails) else { return GidChoice::NotOurs };
    let of = rails.len();
    let rest: Vec<&str> =
        rails.iter().filter(|rail| !rail.has(index)).map(|rail| rail.name.as_str()).collect();
    let remark = Remark::GidSlotsDiffer {
        index,
        agreeing,
        of,
        rest: rest.iter().map(|name| (*name).to_owned()).collect(),
    };
    notes.remark(remark);
    if may_narrow {
        for port in ports.iter_mut().filter(|port| rest.contains(&port.name().as_str())) {
            port.leave_out(Reason::GidElsewhere(index));
        }
    }
    notes.tried(INDEX, Trial::MostCommonSlot { index, agreeing, of });
    let rule = Rule::MostCommonSlot { agreeing, of };
    GidChoice::Index { index, rule, evidence: evidence_at(rails, index) }
}

fn evidence_at(rails: &[Rail], index: u32) -> Vec<Evidence> {
    rails.iter().filter_map(|rail| Some(slot(rail, rail.at(index)?))).collect()
}

fn slot(rail: &Rail, gid: &Gid) -> Evidence {
    Evidence::Slot { port: rail.name.clone(), gid: gid.clone() }
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

pub fn propose(context: &Context, choice: &GidChoice, notes: &mut Notes) -> Vec<Proposal> {
    let profile = context.profile;
    let published = profile.variables.get(INDEX).filter(|_| !context.leaves_alone(INDEX));
    let differs = |notes: &mut Notes, instead: Option<u32>| {
        if let Some(published) = published {
            notes.remark(Remark::PublishedGidDiffers { published: published.clone(), instead });
        }
    };
    match choice {
        GidChoice::NotOurs => Vec::new(),
        GidChoice::Index { index, rule, evidence } => {
            let value = index.to_string();
            let proposal = if published == Some(&value) {
                Proposal::from_profile(&profile.name, INDEX, &value, rule.clone())
            } else {
                differs(notes, Some(*index));
                Proposal::from_facts(INDEX, value, rule.clone())
            };
            vec![proposal.because(evidence.clone())]
        }
        GidChoice::Search { search, evidence } => {
            differs(notes, None);
            let mut proposals = vec![Proposal {
                value: None,
                ..Proposal::from_facts(INDEX, "", Rule::SearchFinds).because(evidence.clone())
            }];
            if search.family == Family::Inet6 {
                proposals.push(Proposal::from_facts(FAMILY, "AF_INET6", Rule::SteersSearch));
            }
            if let Some(range) = search.range {
                proposals.push(Proposal::from_facts(RANGE, range.to_string(), Rule::SteersSearch));
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
