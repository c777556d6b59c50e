//! What carries the job's traffic.

use serde::Serialize;

use super::Context;
use super::rule::NoRdmaReason;
use crate::fabric::interface;
use crate::fabric::{Candidate, Verdict};
use crate::profiles;
use crate::text::grouped;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's InfiniBand and RoCE transport over the used ports.
    Verbs,
    /// RDMA through this network interface, without verbs.
    Interface(String),
    /// A net plugin over this number of HCAs.
    Plugin(usize),
    /// A net plugin over these interfaces, without an HCA.
    PluginOverInterfaces(Vec<String>),
    /// TCP, and the reason.
    None(NoRdmaReason),
}

impl Fabric {
    pub fn is_there(&self) -> bool {
        !matches!(self, Fabric::None(_))
    }

    /// Returns whether a job that runs over plain sockets loses the fabric.
    pub fn is_lost_over_sockets(&self) -> bool {
        matches!(self, Fabric::Verbs | Fabric::Plugin(_) | Fabric::PluginOverInterfaces(_))
    }

    /// Returns whether programs register memory with the HCAs themselves.
    pub fn pins_memory(&self) -> bool {
        matches!(self, Fabric::Verbs | Fabric::Plugin(_))
    }
}

pub(super) fn find(context: &Context, ports: &[Candidate]) -> Fabric {
    let used = ports.iter().filter(|port| port.is_used()).count();
    match context.profile.fabric.as_ref().unwrap_or(&profiles::Fabric::Verbs) {
        profiles::Fabric::Verbs if used > 0 => Fabric::Verbs,
        profiles::Fabric::Verbs => Fabric::None(why_none(context, ports)),
        profiles::Fabric::Interface(name) => match interface::obstacle(context.facts, name) {
            None => Fabric::Interface(name.clone()),
            Some(obstacle) => Fabric::None(NoRdmaReason::Interface(name.clone(), obstacle)),
        },
        profiles::Fabric::Plugin if used > 0 => Fabric::Plugin(used),
        profiles::Fabric::Plugin => Fabric::None(NoRdmaReason::NoDeviceForPlugin),
        profiles::Fabric::PluginOverInterfaces(patterns) => over_interfaces(context, patterns),
    }
}

/// Returns a net plugin over those of the named interfaces that can be used.
fn over_interfaces(context: &Context, patterns: &[String]) -> Fabric {
    let interfaces = context.facts.net.interfaces.iter().map(|interface| &interface.name);
    let is_usable = |name: &&String| interface::obstacle(context.facts, name).is_none();
    let is_wanted = |name: &&String| patterns.iter().any(|pattern| profiles::fits(pattern, name));
    let usable: Vec<String> = interfaces.filter(is_wanted).filter(is_usable).cloned().collect();
    match usable.is_empty() {
        true => Fabric::None(NoRdmaReason::NoInterfaceForPlugin(patterns.to_vec())),
        false => Fabric::PluginOverInterfaces(usable),
    }
}

/// Returns why no RDMA device is used: there is none, or the reason for each.
fn why_none(context: &Context, ports: &[Candidate]) -> NoRdmaReason {
    if ports.is_empty() {
        if let Some(node) = &context.facts.rdma_elsewhere {
            return NoRdmaReason::OtherNamespace(node.clone());
        }
        let mut unreadable = context.facts.unreadable.iter();
        return match unreadable.find(|unreadable| unreadable.is_of_rdma()) {
            Some(hidden) => NoRdmaReason::Hidden { path: hidden.path.clone(), error: hidden.error.clone() },
            None => NoRdmaReason::NoDevice,
        };
    }
    let left_out = ports.iter().filter_map(|port| match &port.verdict {
        Verdict::Used => None,
        Verdict::LeftOut(reason) => Some((reason.clone(), port.name())),
    });
    NoRdmaReason::NoneUsed(grouped(left_out))
}
