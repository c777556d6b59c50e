//! The ports of the HCAs, and which of them NCCL can use at all.

use serde::Serialize;

use super::distance::Distance;
use crate::facts::Facts;
use crate::facts::rdma::{Access, Hca, LinkLayer, NodeType, Port};
use crate::finding::Source;
use crate::libraries::nccl::devices::has_transport;

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
    CarriesDefaultRoute {
        interface: String,
        /// What the message calls the route: "the default route", or "a default route" of
        /// several.
        route: &'static str,
        /// Whether the configuration says to leave it out.
        by_user: bool,
    },
    /// How far its nearest GPU is; every GPU has an HCA that is nearer.
    NearNoGpu(Distance),
    /// The link layer of the port, and that of the ports in use.
    OtherLinkLayer(LinkLayer, LinkLayer),
    /// The setting that turns verbs off.
    TurnedOff(String),
    NoOwnGid,
    GidElsewhere(u32),
    NotInUsersList(Source),
    /// The profile that is for hosts without verbs.
    WithoutVerbs(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Reason::NotAllotted => {
                f.write_str("not allotted to this container: no /dev/infiniband/uverbs node")
            }
            Reason::CannotBeOpened(error) => write!(f, "the uverbs node cannot be opened: {error}"),
            Reason::PortState(state) if state.is_empty() => {
                f.write_str("the state of the port cannot be read")
            }
            Reason::PortState(state) => write!(f, "the port is {state}, not ACTIVE"),
            Reason::LinkLayer(link_layer) => {
                write!(f, "NCCL has no transport for the link layer {link_layer}")
            }
            Reason::Iwarp { erdma: false } => {
                f.write_str("it is an iWARP device, which NCCL does not support")
            }
            Reason::Iwarp { erdma: true } => {
                f.write_str("the erdma driver is in its iWARP mode, which NCCL does not support")
            }
            Reason::NodeType(kind) => write!(f, "the node type is \"{kind}\", not a channel adapter (CA)"),
            Reason::CarriesDefaultRoute { interface, route, by_user } => {
                let by = if *by_user { " (default-route-hca = \"skip\")" } else { "" };
                write!(f, "its interface {interface} carries {route}{by}")
            }
            Reason::NearNoGpu(nearest) => {
                write!(
                    f,
                    "no GPU is near ({} at best), and every GPU has a nearer HCA (PIX or PXB)",
                    nearest.word()
                )
            }
            Reason::OtherLinkLayer(own, others) => {
                write!(
                    f,
                    "its link layer is {}, and the job's fabric is {}",
                    String::from(own.clone()),
                    String::from(others.clone())
                )
            }
            Reason::TurnedOff(by) => write!(f, "usable, but {by} turns verbs off"),
            Reason::NoOwnGid => f.write_str("no RoCE v2 GID has an address of this container"),
            Reason::GidElsewhere(index) => {
                write!(f, "its GID is not in slot {index}, which is set for the other HCAs")
            }
            Reason::NotInUsersList(origin) => write!(f, "not selected by NCCL_IB_HCA ({origin})"),
            Reason::WithoutVerbs(profile) => {
                write!(f, "usable, but profile {profile} is for hosts without verbs")
            }
        }
    }
}

/// A port and its verdict, for the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortVerdict {
    pub hca: String,
    pub port: u32,
    /// Whether the HCA has other ports besides.
    #[serde(skip)]
    pub of_several: bool,
    pub link_layer: LinkLayer,
    pub rate: String,
    pub used: bool,
    /// Whether it would be used, had the user not named others.
    #[serde(skip)]
    pub left_idle: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PortVerdict {
    /// `mlx5_0`, or `mlx5_0:2` where the HCA has other ports besides.
    pub fn name(&self) -> String {
        match self.of_several {
            true => format!("{}:{}", self.hca, self.port),
            false => self.hca.clone(),
        }
    }
}

impl From<&Candidate<'_>> for PortVerdict {
    fn from(candidate: &Candidate<'_>) -> PortVerdict {
        PortVerdict {
            hca: candidate.hca.name.clone(),
            port: candidate.port.number,
            of_several: candidate.hca.ports.len() > 1,
            link_layer: candidate.port.link_layer.clone(),
            rate: candidate.port.rate.clone(),
            used: candidate.is_used(),
            left_idle: false,
            reason: match &candidate.verdict {
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

    /// `mlx5_0:1`, as NCCL writes it.
    pub fn name(&self) -> String {
        format!("{}:{}", self.hca.name, self.port.number)
    }

    pub fn leave_out(&mut self, reason: Reason) {
        self.verdict = Verdict::LeftOut(reason);
    }
}

/// Every port, with the verdict of what NCCL can use at all.
#[must_use]
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
        // Where the kernel does not tell the type, the device may be used, as NCCL does.
        NodeType::Ca | NodeType::Unknown => {}
        NodeType::Other(kind) => return Some(Reason::NodeType(kind.clone())),
    }
    if !has_transport(port) {
        return Some(Reason::LinkLayer(String::from(port.link_layer.clone())));
    }
    (!port.is_active()).then(|| Reason::PortState(port.state.clone()))
}
