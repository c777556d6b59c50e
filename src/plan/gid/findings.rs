//! Findings about ports without a GID of this container, and about indexes that differ.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::fabric::gid::RailGids;
use crate::facts::Facts;
use crate::facts::gid::{GidType, LARGEST_INDEX};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::version::SEARCHES_GIDS;
use crate::plan::Context;
use crate::text::{condensed, counted, grouped};

/// The fix if no GID belongs to this container.
pub(crate) const GIVE_ADDRESSES: &str = "Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network (Docker: --network host; Kubernetes: hostNetwork: true)";

/// The most GIDs of a port in a message.
const FOREIGN: usize = 4;

/// Returns the finding for ports without a GID of ours, with the GIDs that their tables contain instead.
pub(super) fn without_own(facts: &Facts, rails: &[RailGids]) -> Finding {
    let holds = |rail: &RailGids| {
        let slots = &rail.port.gids.slots;
        let v2 = slots.iter().filter(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local());
        let mut addresses: Vec<String> =
            v2.map(|gid| format!("{} at index {}", gid.address(), gid.index)).collect();
        let more = addresses.split_off(addresses.len().min(FOREIGN));
        if !more.is_empty() {
            addresses.push(format!("{} more", more.len()));
        }
        match (addresses.as_slice(), slots.is_empty()) {
            ([], true) => "no GID at all".to_owned(),
            ([], false) => "only RoCE v1 or link-local GIDs".to_owned(),
            (some, _) => some.join(", "),
        }
    };
    let list: Vec<String> = grouped(rails.iter().map(|rail| (holds(rail), rail.name.clone())))
        .into_iter()
        .map(|(what, names)| {
            let have = if names.len() == 1 { "has" } else { "have" };
            format!("{} {have} {what}", condensed(&names))
        })
        .collect();
    if let Some(behind) = behind(facts, rails) {
        return behind;
    }
    let list = list.join("; ");
    let is_empty = |rail: &RailGids| rail.port.gids.slots.is_empty();
    let is_of_others = |rail: &RailGids| {
        rail.port.gids.slots.iter().any(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local())
    };
    let finding = match () {
        // The kernel finds no GID for the queue pair (`ib_modify_qp_with_udata`, drivers/infiniband/core/verbs.c).
        () if rails.iter().any(is_empty) => {
            Finding::error(Id::NoOwnGid, format!("{list}, so RoCE will not connect."))
        }
        () if rails.iter().all(is_of_others) => Finding::warning(
            Id::NoOwnGid,
            format!(
                "{list}: no address of this container or of its node, but perhaps another container's. A connection ends when that container does."
            ),
        ),
        () => Finding::warning(
            Id::NoOwnGid,
            format!(
                "{list}: none with an address of this container or of its node, so RoCE reaches no node beyond its own Ethernet segment."
            ),
        ),
    };
    finding.about_ports(rails.iter().map(|rail| rail.name.clone())).with_fix(format!("{GIVE_ADDRESSES}."))
}

/// Returns the finding if our GIDs are at indexes that no queue pair can use.
fn behind(facts: &Facts, rails: &[RailGids]) -> Option<Finding> {
    let own: BTreeSet<IpAddr> = facts.net.own_addresses().collect();
    let of_rail = |rail: &RailGids| {
        let mut slots = rail.port.gids.slots.iter();
        let gid = slots.find(|gid| gid.index > LARGEST_INDEX && own.contains(&gid.address()))?;
        Some(format!("{} has {} at index {}", rail.name, gid.address(), gid.index))
    };
    let list: Option<Vec<String>> = rails.iter().map(of_rail).collect();
    Some(
        Finding::error(
            Id::NoOwnGid,
            format!(
                "The GIDs of this container are above index {LARGEST_INDEX}, the highest that a queue pair can use, so RoCE will not connect: {}.",
                list?.join(", ")
            ),
        )
        .about_ports(rails.iter().map(|rail| rail.name.clone()))
        .with_fix("Remove unneeded addresses from the interface, and restart the container: its address then gets the lowest free index."),
    )
}

/// Returns the finding if the rails have their GIDs at different indexes. `index` is right for `agreeing` of
/// `of` ports, and wrong for the `rest`, which stay in use if the index is not set.
pub(super) fn slots_differ(
    context: &Context,
    index: u32,
    (agreeing, of): (usize, usize),
    rest: &[&str],
    is_set: bool,
) -> Finding {
    let (library, version) = (context.library(), context.user.version());
    let agree = format!("{agreeing} of {}", counted(of, "port"));
    let (who, advice) = match version {
        Some(version) if version >= SEARCHES_GIDS => (
            format!("and no setting makes {library} {version} find the right one on each"),
            "Give the RoCE interfaces addresses in a range that holds no other addresses, or give each of them the same number of addresses.".to_owned(),
        ),
        Some(version) => (
            format!("and {library} {version} does not search for the right one on each"),
            format!("Use {library} 2.21 or later, which searches for the index on each HCA."),
        ),
        None => (
            format!("and only {library} 2.21 and later search for the right one on each (the image does not show the job's release)"),
            format!("If the job has {library} 2.21 or later, set NCCL_VERSION in the image (ENV NCCL_VERSION=2.27.7)."),
        ),
    };
    let rest_of_them = condensed(rest);
    let (unset, fix) = match is_set {
        true => ("", advice),
        false => {
            let narrow =
                format!("Exclude {rest_of_them} in {LIST}: rdma-init then sets the index of the others.");
            (", so it is not set", narrow)
        }
    };
    Finding::warning(
            Id::GidSlotsDiffer,
            format!(
                "No single GID index is right for every HCA, {who}. Index {index} is right for {agree}, and {rest_of_them} cannot be used with it{unset}."
            ),
        )
        .about_ports(rest.iter().copied())
        .with_fix(fix)
}
