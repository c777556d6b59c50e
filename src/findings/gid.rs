//! What the choice of the GID has shown.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::fabric::Candidate;
use crate::fabric::gid::LARGEST_INDEX;
use crate::facts::Facts;
use crate::facts::gid::GidType;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::gid::INDEX;
use crate::libraries::nccl::version::{SEARCHES_GIDS, Version};
use crate::text::counted;

pub fn published_differs(profile: &str, published: &str, instead: Option<u32>) -> Finding {
    let instead = match instead {
        Some(index) => format!("{index} is set instead"),
        None => "it stays unset, because the right slots differ".to_owned(),
    };
    Finding::info(
        Id::PublishedGidDiffers,
        format!(
            "Profile {profile} publishes {INDEX}={published}, which is not right for every HCA here; {instead}."
        ),
    )
    .about_variables([INDEX])
}

/// A message shows at most this many GIDs of a port.
const FOREIGN: usize = 4;

/// The finding for ports without a GID of ours, with what is in their tables instead.
pub fn without_own(facts: &Facts, rails: &[&Candidate]) -> Finding {
    let list: Vec<String> = rails
        .iter()
        .map(|rail| {
            let slots = &rail.port.gids.slots;
            let v2 = slots.iter().filter(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local());
            let mut addresses: Vec<String> =
                v2.map(|gid| format!("{} in slot {}", gid.address(), gid.index)).collect();
            let more = addresses.split_off(addresses.len().min(FOREIGN));
            if !more.is_empty() {
                addresses.push(format!("{} more", more.len()));
            }
            match (addresses.as_slice(), slots.is_empty()) {
                ([], true) => format!("{} has no GID at all", rail.name()),
                ([], false) => format!("{} has only RoCE v1 or link-local GIDs", rail.name()),
                (some, _) => format!("{} has {}", rail.name(), some.join(", ")),
            }
        })
        .collect();
    if let Some(behind) = behind(facts, rails) {
        return behind;
    }
    let (ports, their) = if rails.len() == 1 { ("this port", "its") } else { ("these ports", "their") };
    Finding::error(
        Id::NoOwnGid,
        format!(
            "RoCE will not connect on {ports}, because none of {their} RoCE v2 GIDs has an address of this container: {}.",
            list.join("; ")
        ),
    )
    .about_ports(rails.iter().map(|rail| rail.name()))
    .with_fix("Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network.")
}

/// The finding where our GIDs are in slots that no queue pair can name.
fn behind(facts: &Facts, rails: &[&Candidate]) -> Option<Finding> {
    let own: BTreeSet<IpAddr> = facts.net.own_addresses().collect();
    let of_rail = |rail: &&Candidate| {
        let mut slots = rail.port.gids.slots.iter();
        let gid = slots.find(|gid| gid.index > LARGEST_INDEX && own.contains(&gid.address()))?;
        Some(format!("{} has {} in slot {}", rail.name(), gid.address(), gid.index))
    };
    let list: Option<Vec<String>> = rails.iter().map(of_rail).collect();
    Some(
        Finding::error(
            Id::NoOwnGid,
            format!(
                "The GIDs of this container are above slot {LARGEST_INDEX}, the last that a queue pair can name, so RoCE will not connect: {}.",
                list?.join(", ")
            ),
        )
        .about_ports(rails.iter().map(|rail| rail.name()))
        .with_fix("Remove addresses that nobody needs from the interface, and start the container again: its address then gets the lowest free slot."),
    )
}

/// The finding where the rails have their GIDs in different slots.
/// `index` is right for so many of all ports (`agreeing`, `of`), and not for the `rest`.
pub fn slots_differ(
    version: Option<Version>,
    index: u32,
    (agreeing, of): (usize, usize),
    rest: &[String],
) -> Finding {
    let agree = format!("{agreeing} of {}", counted(of, "port"));
    let (who, advice) = match version {
        Some(version) if version >= SEARCHES_GIDS => (
            format!("and no setting leads NCCL {version} to the right one on each"),
            "Give the RoCE interfaces addresses in a range that holds no other addresses, or give each of them the same number of addresses.",
        ),
        Some(version) => (
            format!("and NCCL {version} does not look for the right one on each"),
            "Use NCCL 2.21 or later, which looks for the slot on each HCA.",
        ),
        None => (
            "and only NCCL 2.21 and later look for the right one on each (no NCCL was found in the image)"
                .to_owned(),
            "If the image has NCCL 2.21 or later in a place that rdma-init does not search, set NCCL_VERSION in the image (ENV NCCL_VERSION=2.27.7).",
        ),
    };
    Finding::warning(
            Id::GidSlotsDiffer,
            format!(
                "No single GID index is right for every HCA, {who}. Slot {index} is right for {agree}, and {} cannot be used with it.",
                rest.join(", ")
            ),
        )
        .about_ports(rest)
        .with_fix(advice)
}
