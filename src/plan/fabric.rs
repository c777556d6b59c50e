//! What carries the job's traffic.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::{Context, User};
use crate::fabric::interface::{self, Obstacle};
use crate::fabric::{Candidate, SkipReason, Verdict};
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::plugin;
use crate::profiles::{self, Profile};
use crate::text::{condensed, condensed_to, grouped};

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

/// Why there is no RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRdmaReason {
    NoDevice,
    /// The devices of these uverbs nodes are in another network namespace.
    OtherNamespace(Vec<String>),
    /// The path that could not be read, and the error.
    Hidden {
        path: PathBuf,
        error: String,
    },
    /// The ports, grouped by the reason why they are skipped.
    NoneUsed(Vec<(SkipReason, Vec<String>)>),
    NoDeviceForPlugin,
    /// The net plugin needs interfaces with these names, but none of them can be used.
    NoInterfaceForPlugin(Vec<String>),
    /// The interface that provides the fabric, and why it cannot be used.
    Interface(String, Obstacle),
}

impl NoRdmaReason {
    /// Returns the interface that is missing or cannot be used.
    pub fn interface(&self) -> Option<&str> {
        match self {
            NoRdmaReason::Interface(name, _) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for NoRdmaReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NoRdmaReason::NoDevice => f.write_str("there is no RDMA device in this container"),
            NoRdmaReason::OtherNamespace(nodes) => {
                let (s, are) = if nodes.len() == 1 { ("", "is") } else { ("s", "are") };
                let nodes = uverbs_nodes(nodes);
                write!(f, "the RDMA device{s} of {nodes} {are} in another network namespace")
            }
            NoRdmaReason::Hidden { path, error } => {
                write!(f, "the RDMA devices cannot be seen ({}: {error})", path.display())
            }
            NoRdmaReason::NoneUsed(reasons) => {
                let list: Vec<String> =
                    reasons.iter().map(|(reason, names)| format!("{}: {reason}", condensed(names))).collect();
                write!(f, "no RDMA device here is used ({})", list.join("; "))
            }
            NoRdmaReason::NoDeviceForPlugin => f.write_str("no device for the net plugin is usable"),
            NoRdmaReason::NoInterfaceForPlugin(names) => {
                write!(f, "the net plugin needs {}, and none of them is up with an address", condensed(names))
            }
            NoRdmaReason::Interface(name, Obstacle::NotThere) => write!(f, "there is no interface {name}"),
            NoRdmaReason::Interface(name, obstacle) => write!(f, "the interface {name} {obstacle}"),
        }
    }
}

/// Serializes the text.
impl Serialize for NoRdmaReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The most runs of nodes to name.
const NAMED: usize = 8;

/// Returns a phrase for uverbs nodes of this container.
pub(crate) fn uverbs_nodes(nodes: &[String]) -> String {
    match nodes {
        [one] => format!("/dev/infiniband/{one}"),
        _ => format!("{} in /dev/infiniband", condensed_to(nodes, NAMED)),
    }
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
    let of_user = named_for_plugin(&context.user, &context.profile);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_in_their_directory() {
        let phrase = |nodes: &[&str]| {
            uverbs_nodes(&nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<String>>())
        };
        assert_eq!(phrase(&["uverbs3"]), "/dev/infiniband/uverbs3");
        assert_eq!(phrase(&["uverbs4", "uverbs5", "uverbs6"]), "uverbs4..uverbs6 in /dev/infiniband");
    }
}
