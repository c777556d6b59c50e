//! The variables that steer NCCL's own search to the right indexes, verified by replaying the search.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fabric::gid::{RailGids, common_index, common_network, own_network};
use crate::facts::gid::{Gid, GidType};
use crate::libraries::nccl::gid::{Family, INDEX, Range, Search};
use crate::libraries::nccl::version::Version;
use crate::plan::rule::{SearchEnd, Trial};
use crate::plan::{Context, Notes};

/// A search that finds a right index on every rail, and these indexes.
pub(super) struct SlotSearch<'a> {
    pub search: Search,
    pub ends: Vec<&'a Gid>,
}

/// Returns the variables that make the search of all these releases find a right index on every rail; if
/// possible, none.
pub(super) fn run<'a>(
    context: &Context,
    rails: &[RailGids<'a>],
    releases: &[Version],
    notes: &mut Notes,
) -> Option<SlotSearch<'a>> {
    let family = match rails.first()?.slots.first()?.address() {
        IpAddr::V4(_) => Family::Inet,
        IpAddr::V6(_) => Family::Inet6,
    };
    let free = Search { family, ..Search::default() };
    let with = |net: IpNet| Search { range: Some(net.into()), ..free };
    // A wider range still contains an address after it is renewed, but may also include wrong GIDs.
    let (networks, addresses) = ranges(context, rails);
    let wide = networks.map(with).filter(|search| search.range.is_some_and(|range| !lets_in(rails, &range)));
    let narrow = addresses.map(with).filter(|narrow| Some(*narrow) != wide);
    let found = [Some(free), wide, narrow]
        .into_iter()
        .flatten()
        .find(|search| releases.iter().all(|version| is_right(rails, search, *version, notes)))?;
    // All releases find the same index; they differ only in whether the search fails.
    let version = *releases.first()?;
    let end = |rail: &RailGids<'a>| rail.at(found.run(&rail.port.gids, version).ok()?);
    Some(SlotSearch { search: found, ends: rails.iter().map(end).collect::<Option<_>>()? })
}

fn is_right(rails: &[RailGids], search: &Search, version: Version, notes: &mut Notes) -> bool {
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
}

/// Returns the narrowest network that contains the networks of the rails' addresses, and the narrowest one
/// that contains the addresses alone.
fn ranges<'a>(context: &Context, rails: &[RailGids<'a>]) -> (Option<IpNet>, Option<IpNet>) {
    let common = common_index(rails);
    let taken = |rail: &RailGids<'a>| common.and_then(|index| rail.at(index)).or(rail.slots.first().copied());
    let addresses: Vec<IpAddr> = rails.iter().filter_map(taken).map(Gid::address).collect();
    let network = |address: &IpAddr| own_network(context.facts, *address).unwrap_or((*address).into());
    let networks: Vec<IpNet> = addresses.iter().map(network).collect();
    let addresses: Vec<IpNet> = addresses.into_iter().map(IpNet::from).collect();
    (common_network(&networks), common_network(&addresses))
}

/// Returns whether the search could find a GID that does not belong to this container, because the order of a
/// table's indexes may change.
fn lets_in(rails: &[RailGids], range: &Range) -> bool {
    rails.iter().any(|rail| {
        let others = rail.port.gids.slots.iter().filter(|gid| gid.kind == GidType::RoceV2);
        others.filter(|gid| !rail.has(gid.index)).any(|gid| range.contains(gid.gid))
    })
}
