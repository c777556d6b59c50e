//! The variables that steer NCCL's own search to the right indexes, verified by replaying the search.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fabric::gid::{RailGids, common_index, common_network, own_network};
use crate::facts::gid::{Gid, GidType};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::gid::{Family, INDEX, Range, Search};
use crate::libraries::nccl::installed;
use crate::libraries::nccl::predict::net_plugin;
use crate::libraries::nccl::version::{TOLERATES_EMPTY_SLOTS, Version};
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
        .find(|search| releases.iter().all(|version| is_right(context, rails, search, *version, notes)))?;
    // All releases find the same index; they differ only in whether the search fails.
    let version = *releases.first()?;
    let end = |rail: &RailGids<'a>| rail.at(found.run(&rail.port.gids, version).ok()?);
    Some(SlotSearch { search: found, ends: rails.iter().map(end).collect::<Option<_>>()? })
}

fn is_right(
    context: &Context,
    rails: &[RailGids],
    search: &Search,
    version: Version,
    notes: &mut Notes,
) -> bool {
    let wrong = search.first_wrong(rails, version);
    let range = search.range.map_or("without a range".to_owned(), |range| format!("with the range {range}"));
    let rule = format!("leave it unset: the search of {} {version} {range}", context.library());
    let result = match wrong {
        None => "it finds a right index on every HCA".to_owned(),
        Some((rail, Ok(slot))) => format!("it finds index {slot} of {}, which is wrong", rail.name),
        Some((rail, Err(failure))) => format!("on {} it {failure}", rail.name),
    };
    notes.tried(INDEX, rule, result);
    wrong.is_none()
}

/// Returns the releases in the image, if each of them searches the table at every connection, whatever the
/// table looks like by then.
///
/// # Errors
/// The reason why this is not certain for each release.
pub(super) fn releases_that_find_it(context: &Context) -> Result<Vec<Version>, String> {
    let Context { facts, profile, user, .. } = context;
    let library = context.library();
    // RCCL's sources have been compared only up to 2.21.5 (`libraries::rccl`).
    if library == Flavor::Rccl {
        return Err(format!("the search of {library} may differ"));
    }
    let only = format!("only {library} 2.26 and later are sure to find it after a change");
    let releases = installed::releases(facts)
        .map_err(|path| format!("the release of {} is unknown; {only}", path.display()))?;
    let Some(oldest) = releases.first().copied() else {
        return Err(format!("the job's {library} was not found in the image; {only}"));
    };
    // In older releases, the search ends at the empty entries that a change leaves behind.
    if oldest < TOLERATES_EMPTY_SLOTS {
        return Err(format!("the image has {library} {oldest}; {only}"));
    }
    let version = user.version().unwrap_or(oldest);
    let value = |name: &str| {
        let published = || profile.variables.get(name).filter(|_| !context.leaves_alone(name));
        user.get(name).map(|setting| setting.value.as_str()).or_else(|| published().map(String::as_str))
    };
    match net_plugin(facts, &value, version) {
        Some(file) => Err(format!("the net plugin {file} may not search")),
        None => Ok(releases),
    }
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
