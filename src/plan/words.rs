//! The words for what was decided, about the fabric first.

use crate::fabric::Reason;
use crate::fabric::interface::{Because, Way};

/// Why a port is not used.
pub fn left_out(reason: &Reason) -> String {
    match reason {
        Reason::NotAllotted => "not allotted to this container: no /dev/infiniband/uverbs node".to_owned(),
        Reason::CannotBeOpened(error) => format!("the uverbs node cannot be opened: {error}"),
        Reason::PortState(state) if state.is_empty() => "the state of the port cannot be read".to_owned(),
        Reason::PortState(state) => format!("the port is {state}, not ACTIVE"),
        Reason::LinkLayer(link_layer) => {
            format!("NCCL has no transport for the link layer {}", String::from(link_layer.clone()))
        }
        Reason::Iwarp { erdma: false } => "it is an iWARP device, which NCCL does not support".to_owned(),
        Reason::Iwarp { erdma: true } => {
            "the erdma driver is in its iWARP mode, which NCCL does not support".to_owned()
        }
        Reason::NodeType(kind) => format!("the node type is \"{kind}\", not a channel adapter (CA)"),
        Reason::CarriesDefaultRoute { interface, route, by } => {
            let by = by.map(|by| format!(" ({by})")).unwrap_or_default();
            format!("its interface {interface} carries {route}{by}")
        }
        Reason::NearNoGpu(nearest) => format!(
            "no GPU is near ({} at best), and every GPU has a nearer HCA (PIX or PXB)",
            nearest.word()
        ),
        Reason::OtherLinkLayer(own, others) => format!(
            "its link layer is {}, and the job's fabric is {}",
            String::from(own.clone()),
            String::from(others.clone())
        ),
        Reason::TurnedOff { by } => format!("usable, but {by} turns verbs off"),
        Reason::NoOwnGid => "no RoCE v2 GID has an address of this container".to_owned(),
        Reason::GidElsewhere(index) => {
            format!("its GID is not in slot {index}, which is set for the other HCAs")
        }
        Reason::NotNamed { by } => format!("not selected by {by}"),
        Reason::WithoutVerbs { by } => format!("usable, but {by} is for hosts without verbs"),
    }
}

/// Why an interface is chosen. The subject is the interface.
pub fn because(because: Because) -> String {
    match because {
        Because::HasMaster(master) => format!("has the address of MASTER_ADDR, {master}"),
        Because::RouteToMaster(master) => format!("carries the route to MASTER_ADDR, {master}"),
        Because::DefaultRoute(route) => format!("carries {route}"),
        Because::Only => "the only interface that is up and has an address".to_owned(),
    }
}

/// A way to find the interface.
pub fn way(way: Way) -> &'static str {
    match way {
        Way::ToMaster => "the interface of the route to MASTER_ADDR",
        Way::DefaultRoute => "the interface of the default route",
        Way::Only => "the only interface that is up and has an address",
    }
}
