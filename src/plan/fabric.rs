//! What carries the job's traffic.

use serde::Serialize;

use super::rule::NoRdmaReason;
use super::{Context, User};
use crate::fabric::interface;
use crate::fabric::{Candidate, Verdict};
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::plugin;
use crate::profiles::{self, Profile};
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

/// Returns the value by which the user, or the platform's script, names interfaces for a net plugin. It has the form of
/// `NCCL_SOCKET_IFNAME`.
pub(crate) fn named_for_plugin<'a>(user: &'a User, profile: &Profile) -> Option<&'a str> {
    let variable = &profile.script.as_ref()?.sets;
    let named = user.get(variable).filter(|_| plugin::OF_INTERFACES.contains(&variable.as_str()))?;
    Some(named.value.as_str()).filter(|value| !value.is_empty())
}

/// Returns a net plugin over those of the named interfaces that can be used.
fn over_interfaces(context: &Context, of_profile: &[String]) -> Fabric {
    let of_user = named_for_plugin(context.user, context.profile);
    let pattern = of_user.map(|value| Pattern::of_interfaces(value, context.version()));
    let interfaces = || context.facts.net.interfaces.iter().map(|interface| &interface.name);
    let is_of_profile = |name: &String| of_profile.iter().any(|pattern| profiles::fits(pattern, name));
    // On nodes of Slurm, the NICs have the names that the kernel gives, and the script, which the command may source,
    // has their list.
    let are_others =
        context.profile.script.is_some() && !interfaces().any(|name| is_of_profile(name) || name == "eth0");
    let of_default_route = interface::choose(context.facts).map(|choice| choice.name);
    let is_wanted = |name: &&String| match &pattern {
        Some(pattern) => pattern.selects(name, None),
        None if are_others => of_default_route.as_ref() != Some(*name),
        None => is_of_profile(name),
    };
    let is_usable = |name: &&String| interface::obstacle(context.facts, name).is_none();
    let usable: Vec<String> = interfaces().filter(is_wanted).filter(is_usable).cloned().collect();
    match usable.is_empty() {
        true => Fabric::None(NoRdmaReason::NoInterfaceForPlugin(match of_user {
            Some(value) => vec![value.to_owned()],
            None => of_profile.to_vec(),
        })),
        false => Fabric::PluginOverInterfaces(usable),
    }
}

/// Returns why no RDMA device is used: there is none, or the reason for each.
fn why_none(context: &Context, ports: &[Candidate]) -> NoRdmaReason {
    if ports.is_empty() {
        let elsewhere = &context.facts.rdma_elsewhere;
        if !elsewhere.is_empty() {
            return NoRdmaReason::OtherNamespace(elsewhere.clone());
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
