//! What carries the job's traffic.

use serde::Serialize;

use super::{Context, words};
use crate::fabric::interface::{self, Obstacle};
use crate::fabric::{Candidate, Verdict};
use crate::profiles;
use crate::text::grouped;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's InfiniBand and RoCE transport over the used ports.
    Verbs,
    /// RDMA behind this network interface, without verbs.
    Interface(String),
    /// A net plugin over this number of HCAs.
    Plugin(usize),
    /// TCP, and why.
    None(String),
}

impl Fabric {
    pub fn is_there(&self) -> bool {
        !matches!(self, Fabric::None(_))
    }

    /// Whether programs register memory with the HCAs themselves.
    pub fn pins_memory(&self) -> bool {
        matches!(self, Fabric::Verbs | Fabric::Plugin(_))
    }
}

pub fn find(context: &Context, ports: &[Candidate]) -> Fabric {
    let used = ports.iter().filter(|port| port.is_used()).count();
    match context.profile.fabric.as_ref().unwrap_or(&profiles::Fabric::Verbs) {
        profiles::Fabric::Verbs if used > 0 => Fabric::Verbs,
        profiles::Fabric::Verbs => Fabric::None(why_none(context, ports)),
        profiles::Fabric::Interface(name) => match interface::obstacle(context.facts, name) {
            None => Fabric::Interface(name.clone()),
            Some(Obstacle::NotThere) => Fabric::None(format!("there is no interface {name}")),
            Some(obstacle) => Fabric::None(format!("the interface {name} {obstacle}")),
        },
        profiles::Fabric::Plugin if used > 0 => Fabric::Plugin(used),
        profiles::Fabric::Plugin => Fabric::None("no device for the net plugin is usable".to_owned()),
    }
}

/// Says that there is no RDMA device, or why none of them is used.
fn why_none(context: &Context, ports: &[Candidate]) -> String {
    let hidden = context.facts.unreadable.iter().find(|unreadable| unreadable.is_of_rdma());
    if let Some(hidden) = hidden.filter(|_| ports.is_empty()) {
        return format!("the RDMA devices cannot be seen ({} {})", hidden.path.display(), hidden.error);
    }
    if ports.is_empty() {
        return "there is no RDMA device in this container".to_owned();
    }
    let left_out = ports.iter().filter_map(|port| match &port.verdict {
        Verdict::Used => None,
        Verdict::LeftOut(reason) => Some((words::left_out(reason), port.name())),
    });
    let list: Vec<String> =
        grouped(left_out).iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
    format!("no RDMA device here is used ({})", list.join("; "))
}
