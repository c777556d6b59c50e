//! The indexes that NCCL uses, and whether they are right.

use crate::fabric::gid::{OwnAddresses, node_slots};
use crate::facts::Facts;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::Port;
use crate::finding::Severity;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::predict::{GidUse, PortUse};
use crate::text::condensed;

/// A queue pair keeps eight bits of the index (`ibv_global_route`).
pub(crate) const LARGEST: i64 = 255;

/// What is wrong with the indexes of some ports.
pub(crate) struct Slots {
    /// Why NCCL finds no index at all on one of the ports.
    pub fails: Option<String>,
    /// Clauses, such as `on mlx5_1, slot 3 is empty`.
    pub wrong: Vec<String>,
    /// An error if one of the ports cannot reach any other node.
    pub severity: Severity,
    /// The names of the ports with a wrong index.
    pub ports: Vec<String>,
}

pub(crate) fn of(facts: &Facts, used: &[PortUse]) -> Slots {
    let mut fails = None;
    let mut wrong: Vec<(WrongSlot, Vec<&str>)> = Vec::new();
    let mut ports = Vec::new();
    let (own, library) = (OwnAddresses::of(facts), Flavor::of(facts));
    for used in used {
        let what = match (&used.gid, facts.port(&used.hca, used.port)) {
            (Some(GidUse::Fails(why)), _) => {
                fails.get_or_insert_with(|| why.clone());
                continue;
            }
            // Another finding reports a larger number.
            (Some(GidUse::Slot { index, gid }), Some((_, port))) if *index <= LARGEST => {
                what_is_wrong(library, &own, port, *index, gid.as_ref())
            }
            _ => None,
        };
        let Some(what) = what else { continue };
        ports.push(used.name());
        match wrong.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(&used.hca),
            None => wrong.push((what, vec![&used.hca])),
        }
    }
    let severity = wrong.iter().map(|(wrong, _)| wrong.severity).max().unwrap_or(Severity::Info);
    let wrong =
        wrong.iter().map(|(wrong, names)| format!("on {}, {}", condensed(names), wrong.what)).collect();
    Slots { fails, wrong, severity, ports }
}

/// What is wrong with the index of a port.
#[derive(PartialEq)]
struct WrongSlot {
    what: String,
    /// An error if the port cannot reach any other node with this index.
    severity: Severity,
}

fn what_is_wrong(
    library: Flavor,
    own: &OwnAddresses,
    port: &Port,
    index: i64,
    gid: Option<&Gid>,
) -> Option<WrongSlot> {
    let right = own.slots(port);
    if right.iter().any(|gid| i64::from(gid.index) == index) {
        return None;
    }
    let near = |what: &str| {
        let what = format!("is {what}, and does not reach beyond its own Ethernet segment");
        (what, Severity::Warning)
    };
    let dead = |what: String| (format!("{what}, so RoCE will not connect"), Severity::Error);
    let (there, severity) = match gid {
        // NCCL 2.21 and later search for the index in this case, so they never have a negative index here.
        None if index < 0 => {
            dead(format!("does not exist, and {library} before 2.21 does not search for one"))
        }
        None if index >= port.gids.size.into() => {
            dead(format!("is beyond the end of the table ({} entries)", port.gids.size))
        }
        None => dead("is empty".to_owned()),
        Some(gid) if gid.is_link_local() => near("link-local"),
        Some(gid) if gid.kind == GidType::IbOrRoceV1 => near("RoCE v1"),
        Some(gid) => {
            let is_of_node = node_slots(port).iter().any(|of_node| of_node.index == gid.index);
            let (whose, severity) = match is_of_node {
                true => ("the node's", Severity::Info),
                false => (
                    "not an address of this container: it may be another's, and go when that one ends",
                    Severity::Warning,
                ),
            };
            (format!("has {}, which is {whose}", gid.address()), severity)
        }
    };
    let is_right = if severity == Severity::Info { "this container's" } else { "right" };
    let instead =
        right.first().map(|gid| format!(" (index {} is {is_right})", gid.index)).unwrap_or_default();
    Some(WrongSlot { what: format!("index {index} {there}{instead}"), severity })
}
