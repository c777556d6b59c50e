//! What carries the job's traffic.

use serde::Serialize;

use super::Context;
use super::rule::Lack;
use crate::fabric::interface;
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
    None(Lack),
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
            Some(obstacle) => Fabric::None(Lack::Interface(name.clone(), obstacle)),
        },
        profiles::Fabric::Plugin if used > 0 => Fabric::Plugin(used),
        profiles::Fabric::Plugin => Fabric::None(Lack::NoDeviceForPlugin),
    }
}

/// That there is no RDMA device, or why none of them is used.
fn why_none(context: &Context, ports: &[Candidate]) -> Lack {
    if ports.is_empty() {
        let mut unreadable = context.facts.unreadable.iter();
        return match unreadable.find(|unreadable| unreadable.is_of_rdma()) {
            Some(hidden) => Lack::Hidden { path: hidden.path.clone(), error: hidden.error.to_string() },
            None => Lack::NoDevice,
        };
    }
    let left_out = ports.iter().filter_map(|port| match &port.verdict {
        Verdict::Used => None,
        Verdict::LeftOut(reason) => Some((reason.clone(), port.name())),
    });
    Lack::NoneUsed(grouped(left_out))
}
