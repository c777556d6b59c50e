//! The ports of the HCAs, and which of them programs can use at all.

use std::fmt;

use super::distance::Distance;
use super::nvswitch::{self, NvSwitch};
use super::step::WhichRoute;
use super::subnet::Prefix;
use crate::facts::Facts;
use crate::facts::rdma::{Access, Hca, LinkLayer, NodeType, Port};
use crate::image::flavor::Flavor;

/// A port under consideration.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub hca: &'a Hca,
    pub port: &'a Port,
    pub verdict: Verdict,
}

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Used,
    LeftOut(SkipReason),
}

/// Why a port is not used. The phrase `by` names the source of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    NotAllotted,
    /// The Pod's resource claims hold other HCAs.
    NotClaimed,
    /// A device plugin has given the Pod other HCAs.
    NotGiven,
    /// The error message.
    CannotBeOpened(String),
    /// The state of a port that is not active; empty if it cannot be read.
    PortState(String),
    /// A link layer that is neither InfiniBand nor Ethernet.
    LinkLayer {
        link_layer: LinkLayer,
        /// The library that does not support it.
        library: Flavor,
    },
    /// iWARP; `erdma` is true for an eRDMA device in its default mode.
    Iwarp {
        erdma: bool,
        /// The library that does not support it.
        library: Flavor,
    },
    NodeType(String),
    /// The HCA is a part of a Gaudi accelerator.
    OfGaudi,
    /// The port connects to this machine's NVSwitches, and not to a network.
    NvSwitch(NvSwitch),
    CarriesDefaultRoute {
        interface: String,
        route: WhichRoute,
        /// `None` if the facts decide.
        by: Option<&'static str>,
    },
    /// The distance to the nearest GPU; every GPU has a nearer HCA.
    NearNoGpu(Distance),
    /// The port's InfiniBand subnet, and the subnet of the rails, which are enough for the GPUs.
    OtherSubnet {
        own: Prefix,
        rails: Prefix,
    },
    /// The port's rate, and the rate of the rails, which are enough for the GPUs, in the kernel's format.
    Slower {
        own: String,
        rails: String,
    },
    /// The link layer of the port, and that of the used ports.
    OtherLinkLayer(LinkLayer, LinkLayer),
    /// The port is usable, but a setting has turned verbs off.
    TurnedOff {
        by: String,
    },
    NoOwnGid,
    /// The port's only addresses are link-local IPv4 addresses, and other ports have better ones.
    LinkLocal,
    /// The port's GID is not at this index, which is set for the other ports.
    GidElsewhere(u32),
    /// A setting names the ports to use, and this is not one of them.
    NotNamed {
        by: String,
    },
    /// The net plugin is for other HCAs.
    NotOfPlugin {
        by: String,
    },
    /// The port is usable, but a setting selects the rules for hosts without verbs.
    WithoutVerbs {
        by: String,
    },
}

/// Writes why the port is not used.
impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            SkipReason::NotAllotted => {
                f.write_str("not allotted to this container: no /dev/infiniband/uverbs node")
            }
            SkipReason::NotClaimed => f.write_str("the Pod's resource claims hold other HCAs"),
            SkipReason::NotGiven => {
                f.write_str("the Pod was given other HCAs (PCIDEVICE_*, SRIOVNETWORK_VF_DEVICE_*)")
            }
            SkipReason::CannotBeOpened(error) => write!(f, "the uverbs node cannot be opened: {error}"),
            SkipReason::PortState(state) if state.is_empty() => {
                f.write_str("the state of the port cannot be read")
            }
            SkipReason::PortState(state) => write!(f, "the port is {state}, not ACTIVE"),
            SkipReason::LinkLayer { link_layer, library } => {
                write!(
                    f,
                    "{library} has no transport for the link layer {}",
                    String::from(link_layer.clone())
                )
            }
            SkipReason::Iwarp { erdma: false, library } => {
                write!(f, "it is an iWARP device, which {library} does not support")
            }
            SkipReason::Iwarp { erdma: true, library } => {
                write!(f, "the erdma driver is in its iWARP mode, which {library} does not support")
            }
            SkipReason::NodeType(kind) => {
                write!(f, "the node type is \"{kind}\", not a channel adapter (CA)")
            }
            SkipReason::OfGaudi => {
                f.write_str("it is a part of a Gaudi accelerator, which only HCCL can use")
            }
            SkipReason::NvSwitch(sign) => {
                write!(f, "it connects to the NVSwitches of this machine, not to a network ({sign})")
            }
            SkipReason::CarriesDefaultRoute { interface, route, by } => {
                write!(f, "its interface {interface} carries {route}")?;
                by.map_or(Ok(()), |by| write!(f, " ({by})"))
            }
            SkipReason::NearNoGpu(nearest) => write!(
                f,
                "no GPU is near ({} at best), and every GPU has a nearer HCA (PIX or PXB)",
                nearest.word()
            ),
            SkipReason::OtherSubnet { own, rails } => write!(
                f,
                "its InfiniBand subnet is {own}, and that of the rails, which are enough for the GPUs, is {rails}"
            ),
            SkipReason::Slower { own, rails } => {
                write!(
                    f,
                    "its rate is {own}, and that of the rails, which are enough for the GPUs, is {rails}"
                )
            }
            SkipReason::OtherLinkLayer(own, others) => write!(
                f,
                "its link layer is {}, and the job's fabric is {}",
                String::from(own.clone()),
                String::from(others.clone())
            ),
            SkipReason::TurnedOff { by } => write!(f, "usable, but {by} turns verbs off"),
            SkipReason::LinkLocal => f.write_str(
                "its address is link-local (169.254.0.0/16), and the other HCAs have addresses of a network",
            ),
            SkipReason::NoOwnGid => f.write_str("no RoCE v2 GID has an address of this container"),
            SkipReason::GidElsewhere(index) => {
                write!(f, "its GID is not at index {index}, which is set for the other HCAs")
            }
            SkipReason::NotNamed { by } => write!(f, "not selected by {by}"),
            SkipReason::NotOfPlugin { by } => write!(f, "the net plugin of {by} is for other devices"),
            SkipReason::WithoutVerbs { by } => write!(f, "usable, but {by} is for hosts without verbs"),
        }
    }
}

impl Candidate<'_> {
    pub fn is_used(&self) -> bool {
        self.verdict == Verdict::Used
    }

    /// Returns whether a list of names leaves it out.
    pub fn is_not_named(&self) -> bool {
        matches!(self.verdict, Verdict::LeftOut(SkipReason::NotNamed { .. }))
    }

    /// Returns the port's name in the form that libraries use: `mlx5_0:1`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.hca.name, self.port.number)
    }

    /// Returns whether the port works, but connects to NVSwitches.
    pub fn leads_to_nvswitches(&self) -> bool {
        matches!(self.verdict, Verdict::LeftOut(SkipReason::NvSwitch(_)))
    }

    /// Returns whether Kubernetes has given this port to another Pod, as far as is known.
    pub fn is_of_others(&self) -> bool {
        matches!(self.verdict, Verdict::LeftOut(SkipReason::NotClaimed | SkipReason::NotGiven))
    }

    pub fn leave_out(&mut self, reason: SkipReason) {
        self.verdict = Verdict::LeftOut(reason);
    }
}

/// Returns every port, with the verdict on whether verbs programs can use it at all.
#[must_use]
pub fn candidates(facts: &Facts) -> Vec<Candidate<'_>> {
    facts
        .rdma
        .iter()
        .flat_map(|hca| hca.ports.iter().map(move |port| (hca, port)))
        .map(|(hca, port)| Candidate {
            hca,
            port,
            verdict: obstacle(facts, hca, port).map_or(Verdict::Used, Verdict::LeftOut),
        })
        .collect()
}

fn obstacle(facts: &Facts, hca: &Hca, port: &Port) -> Option<SkipReason> {
    if is_of_gaudi(hca) {
        return Some(SkipReason::OfGaudi);
    }
    match hca.uverbs.as_ref().map(|uverbs| &uverbs.access) {
        None | Some(Access::NoNode) => return Some(SkipReason::NotAllotted),
        Some(Access::Failed(error)) => return Some(SkipReason::CannotBeOpened(error.clone())),
        Some(Access::Opened) => {}
    }
    match &hca.node_type {
        NodeType::Rnic => {
            let (erdma, library) = (hca.driver.as_deref() == Some("erdma"), Flavor::of(facts));
            return Some(SkipReason::Iwarp { erdma, library });
        }
        // If the kernel does not report the node type, rdma-init uses the device, as libraries do.
        NodeType::Ca | NodeType::Unknown => {}
        NodeType::Other(kind) => return Some(SkipReason::NodeType(kind.clone())),
    }
    if !has_known_link_layer(port) {
        let (link_layer, library) = (port.link_layer.clone(), Flavor::of(facts));
        return Some(SkipReason::LinkLayer { link_layer, library });
    }
    if !port.is_active() {
        return Some(SkipReason::PortState(port.state.clone()));
    }
    nvswitch::sign(facts, hca).map(SkipReason::NvSwitch)
}

/// Returns whether an HCA is a part of a Gaudi accelerator, which fills its send queues itself: the provider has no
/// `post_send` and no `poll_cq` (rdma-core, `hbl_ctx_ops` in `providers/hbl/hbl.c`). The driver names it `hbl_0`, below
/// the accelerator's PCI function (HabanaAI/drivers.gpu.linux-nic.kernel, `drivers/infiniband/hw/hbl/hbl_main.c`).
pub(crate) fn is_of_gaudi(hca: &Hca) -> bool {
    match &hca.driver {
        Some(driver) => driver.starts_with("habanalabs"),
        None => hca.name.starts_with("hbl_"),
    }
}

/// Returns whether verbs programs know the link layer. They do not know EFA's.
fn has_known_link_layer(port: &Port) -> bool {
    matches!(port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet)
}

/// Returns whether a port works, but only the device's own library can use it. EFA is such a device: verbs
/// programs know neither its node type nor its link layer.
#[must_use]
pub fn needs_own_library(hca: &Hca, port: &Port) -> bool {
    hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
        && port.is_active()
        && !has_known_link_layer(port)
}
