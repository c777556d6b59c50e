//! Which ports of which HCAs the job uses.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fabric::Fabric;
use super::interface::InterfaceChoice;
use super::{Finding, User, gid};
use crate::facts::Facts;
use crate::facts::rdma::{Access, Hca, LinkLayer, NodeType, Port};
use crate::profiles::{self, DefaultRouteHca, Profile};

/// A port under consideration.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub hca: &'a Hca,
    pub port: &'a Port,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Used,
    LeftOut(Reason),
}

/// Why a port is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    NotAllotted,
    CannotBeOpened(String),
    PortState(String),
    LinkLayer(String),
    /// iWARP; the bool says that it is an eRDMA device in its default mode.
    Iwarp {
        erdma: bool,
    },
    NodeType(String),
    CarriesDefaultRoute(String),
    OtherLinkLayer,
    NoOwnGid,
    GidElsewhere(u32),
    NotInUsersList(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Reason::NotAllotted => {
                f.write_str("not allotted to this container: no /dev/infiniband/uverbs node")
            }
            Reason::CannotBeOpened(error) => write!(f, "its uverbs node cannot be opened: {error}"),
            Reason::PortState(state) => write!(f, "the port is {state}, not ACTIVE"),
            Reason::LinkLayer(link_layer) => {
                write!(f, "NCCL has no transport for the link layer {link_layer}")
            }
            Reason::Iwarp { erdma: false } => f.write_str("iWARP, which NCCL does not work on"),
            Reason::Iwarp { erdma: true } => {
                f.write_str("the erdma driver is in its iWARP mode, which NCCL does not work on")
            }
            Reason::NodeType(kind) => write!(f, "its node type is {kind}, not a channel adapter"),
            Reason::CarriesDefaultRoute(interface) => {
                write!(f, "{interface}, its interface, carries the default route")
            }
            Reason::OtherLinkLayer => f.write_str("of another link layer than the others"),
            Reason::NoOwnGid => f.write_str("no RoCE v2 GID of an address of this container"),
            Reason::GidElsewhere(index) => {
                write!(f, "its GID is in another slot than {index}, the slot of most HCAs")
            }
            Reason::NotInUsersList(origin) => write!(f, "not in NCCL_IB_HCA ({origin})"),
        }
    }
}

/// A port and its verdict, for the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortVerdict {
    pub hca: String,
    pub port: u32,
    pub link_layer: LinkLayer,
    pub rate: String,
    pub used: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<Candidate<'_>> for PortVerdict {
    fn from(candidate: Candidate<'_>) -> PortVerdict {
        PortVerdict {
            hca: candidate.hca.name.clone(),
            port: candidate.port.number,
            link_layer: candidate.port.link_layer.clone(),
            rate: candidate.port.rate.clone(),
            used: candidate.is_used(),
            reason: match candidate.verdict {
                Verdict::Used => None,
                Verdict::LeftOut(reason) => Some(reason.to_string()),
            },
        }
    }
}

impl Candidate<'_> {
    pub fn is_used(&self) -> bool {
        self.verdict == Verdict::Used
    }

    fn leave_out(&mut self, reason: Reason) {
        self.verdict = Verdict::LeftOut(reason);
    }
}

/// Every port, with the verdict of what NCCL can use at all.
pub fn candidates(facts: &Facts) -> Vec<Candidate<'_>> {
    facts
        .rdma
        .iter()
        .flat_map(|hca| hca.ports.iter().map(move |port| (hca, port)))
        .map(|(hca, port)| Candidate {
            hca,
            port,
            verdict: obstacle(hca, port).map_or(Verdict::Used, Verdict::LeftOut),
        })
        .collect()
}

fn obstacle(hca: &Hca, port: &Port) -> Option<Reason> {
    match hca.uverbs.as_ref().map(|uverbs| &uverbs.access) {
        None | Some(Access::NoNode) => return Some(Reason::NotAllotted),
        Some(Access::Failed(error)) => return Some(Reason::CannotBeOpened(error.clone())),
        Some(Access::Opened) => {}
    }
    match &hca.node_type {
        NodeType::Rnic => {
            return Some(Reason::Iwarp { erdma: hca.driver.as_deref() == Some("erdma") });
        }
        // Where the kernel does not tell, as NCCL: let it be.
        NodeType::Ca | NodeType::Unknown => {}
        NodeType::Other(kind) => return Some(Reason::NodeType(kind.clone())),
    }
    if !has_transport(port) {
        return Some(Reason::LinkLayer(String::from(port.link_layer.clone())));
    }
    (!port.is_active()).then(|| Reason::PortState(port.state.clone()))
}

fn has_transport(port: &Port) -> bool {
    matches!(port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet)
}

/// Whether NCCL would take the port when nothing restricts it
/// (`src/transport/net_ib.cc`, `ncclIbInit`). It does not look at the node type.
pub fn visible_to_nccl(hca: &Hca, port: &Port) -> bool {
    hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
        && has_transport(port)
        && port.is_active()
}

/// Narrows the usable ports down to those of the job.
pub fn select<'a>(
    facts: &Facts,
    mut ports: Vec<Candidate<'a>>,
    profile: &Profile,
    user: &User,
    interface: Option<&InterfaceChoice>,
) -> Vec<Candidate<'a>> {
    if profile.fabric != Some(profiles::Fabric::Verbs) {
        return ports;
    }
    if let Some((pattern, setting)) = user.hcas() {
        // The user's list is the user's decision: nothing else narrows it.
        for port in ports.iter_mut().filter(|port| port.is_used()) {
            if !pattern.selects(&port.hca.name, Some(port.port.number)) {
                port.leave_out(Reason::NotInUsersList(setting.origin.clone()));
            }
        }
        if !setting.value.is_empty() {
            return ports;
        }
    }
    keep_one_link_layer(&mut ports);
    if profile.default_route_hca != Some(DefaultRouteHca::Use)
        && let Some(interface) = interface.filter(|choice| choice.is_default_route)
    {
        leave_out_where_others_remain(
            &mut ports,
            |port| carries(facts, port.hca, port.port, &interface.name),
            &Reason::CarriesDefaultRoute(interface.name.clone()),
        );
    }
    leave_out_where_others_remain(
        &mut ports,
        |port| port.port.link_layer == LinkLayer::Ethernet && gid::own_slots(facts, port.port).is_empty(),
        &Reason::NoOwnGid,
    );
    ports
}

fn leave_out_where_others_remain(
    ports: &mut [Candidate],
    condition: impl Fn(&Candidate) -> bool,
    reason: &Reason,
) {
    let out: Vec<bool> = ports.iter().map(|port| port.is_used() && condition(port)).collect();
    let others_remain = ports.iter().zip(&out).any(|(port, out)| port.is_used() && !out);
    if others_remain {
        for (port, _) in ports.iter_mut().zip(out).filter(|(_, out)| *out) {
            port.leave_out(reason.clone());
        }
    }
}

/// The link layer with the most bandwidth among the used ports; on a tie the
/// one with more ports, then InfiniBand.
pub fn dominant_link_layer(ports: &[Candidate]) -> Option<LinkLayer> {
    let mut sums: Vec<(f64, usize, LinkLayer)> = Vec::new();
    for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        let of_it = ports.iter().filter(|p| p.is_used() && p.port.link_layer == link_layer);
        let (rate, count) = of_it.fold((0.0, 0), |(rate, count), p| (rate + p.port.gigabits(), count + 1));
        if count > 0 {
            sums.push((rate, count, link_layer));
        }
    }
    sums.into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
        .map(|(_, _, link_layer)| link_layer)
}

fn keep_one_link_layer(ports: &mut [Candidate]) {
    if let Some(dominant) = dominant_link_layer(ports) {
        for port in ports.iter_mut().filter(|p| p.is_used() && p.port.link_layer != dominant) {
            port.leave_out(Reason::OtherLinkLayer);
        }
    }
}

/// Whether this HCA's interface is the one named, in our own network namespace:
/// by the GID of one of our addresses, or by the PCI device.
fn carries(facts: &Facts, hca: &Hca, port: &Port, interface: &str) -> bool {
    let Some(interface) = facts.net.interface(interface) else { return false };
    let by_gid = port.gids.slots.iter().any(|gid| {
        gid.netdev.as_ref() == Some(&interface.name)
            && interface.addresses.iter().any(|address| address.addr() == gid.address())
    });
    by_gid || (hca.pci_address.is_some() && hca.pci_address == interface.pci_address)
}

/// What a person should know about the ports.
pub fn findings(ports: &[Candidate], profile: &Profile, fabric: &Fabric) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in ports {
        let Verdict::LeftOut(reason) = &port.verdict else { continue };
        let name = format!("{} port {}", port.hca.name, port.port.number);
        match reason {
            Reason::PortState(_) => findings.push(
                Finding::warning("port-down", format!("{name} is allotted to this container and left out: {reason}."))
                    .with_fix("Check the cable, the switch port and `rdma link` on the node; other nodes will have one HCA more."),
            ),
            Reason::CannotBeOpened(_) => findings.push(
                Finding::warning("uverbs-denied", format!("{name} is left out: {reason}."))
                    .with_fix("Request the device through the RDMA device plugin (or docker run --device /dev/infiniband), and check the node's file mode if the container does not run as root."),
            ),
            Reason::Iwarp { erdma: true } => findings.push(
                Finding::warning("erdma-iwarp", format!("{name} is left out: {reason}."))
                    .with_fix("Load the driver on the node in its compat or ofed mode (modprobe erdma compat_mode=1)."),
            ),
            _ => {}
        }
    }
    if *fabric == Fabric::Verbs || profile.fabric == Some(profiles::Fabric::Plugin) {
        findings.extend(rates(ports));
    }
    findings
}

/// A rail that is slower than its siblings slows all of them down.
fn rates(ports: &[Candidate]) -> Option<Finding> {
    let mut by_rate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.is_used()) {
        by_rate.entry(&port.port.rate).or_default().push(&port.hca.name);
    }
    if by_rate.len() < 2 {
        return None;
    }
    let list: Vec<String> =
        by_rate.iter().map(|(rate, names)| format!("{} at {rate}", names.join(", "))).collect();
    Some(
        Finding::warning("rates-differ", format!("The HCAs in use have different rates: {}.", list.join("; ")))
            .with_fix("If the odd one is for storage, name the others in NCCL_IB_HCA; otherwise check its cable and port."),
    )
}
