//! Predicts what NCCL will do, by combining the parts of the model.

use serde::Serialize;

use super::devices::{self, NcclDevices};
use super::fusion::{self, Fusion};
use super::installed;
use super::interfaces::{self, Endpoint};
use super::libibverbs::{self, Libibverbs};
use super::number::integer;
use super::version::{LISTS_PLUGINS, READS_GIDS_FIRST, Version};
use super::{env_plugin, gid, network, plugin};
use crate::fabric::{needs_own_library, nvswitch};
use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::rdma::{Hca, LinkLayer, Port};

/// What a release does in this container, with these variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prediction {
    pub bootstrap: Bootstrap,
    pub transport: Transport,
    /// Which ports become one NIC.
    #[serde(skip_serializing_if = "Fused::is_nothing")]
    pub fused: Fused,
    /// The env plugin that NCCL loads. The rest is what NCCL does without it, because rdma-init cannot know
    /// the plugin's answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_plugin: Option<String>,
}

/// Which ports of NCCL's own transport become one NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fused {
    /// The ports of each NIC that has several, as `mlx5_0:1`.
    Nics(Vec<Vec<String>>),
    /// NCCL's message; the job fails with it.
    Fails(String),
    /// The deciding facts are unknown, such as the devices' PCI places.
    Unknown,
}

impl Fused {
    pub fn is_nothing(&self) -> bool {
        matches!(self, Fused::Nics(nics) if nics.is_empty()) || *self == Fused::Unknown
    }
}

/// Where the job's processes bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bootstrap {
    On(Endpoint),
    /// NCCL's message.
    Fails(String),
    /// The host name in `NCCL_COMM_ID` that the address depends on.
    DependsOnName(String),
}

/// What carries the job's traffic between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// NCCL's own transport for InfiniBand and RoCE.
    Verbs(Vec<PortUse>),
    /// A net plugin, by the file that NCCL loads; what the plugin does is unknown here.
    Plugin {
        file: String,
        /// Whether the file was seen. If not, the image is unknown, and there are devices or interfaces that only a
        /// plugin can use, or a variable that only a plugin reads, or `NCCL_NET` names a plugin's network.
        found: bool,
        /// What NCCL does without the plugin. Several plugins are NCCL's own transport with additions and
        /// read the same variables.
        otherwise: Box<Transport>,
    },
    Sockets {
        why: String,
        interfaces: Vec<String>,
    },
    /// NCCL's message.
    Fails(String),
}

impl Transport {
    /// Returns the ports that NCCL's own transport uses, or would use without the plugin.
    pub fn ports(&self) -> Option<&[PortUse]> {
        match self {
            Transport::Verbs(ports) => Some(ports),
            Transport::Plugin { otherwise, .. } => otherwise.ports(),
            Transport::Sockets { .. } | Transport::Fails(_) => None,
        }
    }
}

/// A port that NCCL uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortUse {
    pub hca: String,
    pub port: u32,
    pub link_layer: LinkLayer,
    /// The GID on RoCE; NCCL needs none on InfiniBand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<GidUse>,
}

impl PortUse {
    /// `mlx5_0:1`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.hca, self.port)
    }
}

/// Which GID NCCL selects, or why its connections fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GidUse {
    Slot {
        index: i64,
        /// The entry's GID; `None` if the entry is empty.
        #[serde(skip_serializing_if = "Option::is_none")]
        gid: Option<Gid>,
    },
    Fails(String),
}

/// Returns what an NCCL release will do. `get` returns variables from the job's environment, including those
/// that conf files set.
pub fn predict<'a>(facts: &Facts, get: impl Fn(&str) -> Option<&'a str>, version: Version) -> Prediction {
    let bootstrap = match interfaces::bootstrap(&facts.net, &get, version) {
        Ok(endpoint) => Bootstrap::On(endpoint),
        Err(interfaces::Failure::HostName(name)) => Bootstrap::DependsOnName(name),
        Err(failure) => Bootstrap::Fails(failure.message().unwrap_or_default().to_owned()),
    };
    let transport = transport(facts, &get, version);
    let fused = fused(facts, &transport, &get, version);
    let env_plugin = env_plugin::loaded(facts, &get, version);
    Prediction { bootstrap, transport, fused, env_plugin }
}

fn fused<'a>(
    facts: &Facts,
    transport: &Transport,
    get: &impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Fused {
    let Transport::Verbs(ports) = transport else {
        return Fused::Nics(Vec::new());
    };
    let found = |wanted: &PortUse| {
        let hca = facts.rdma.iter().find(|hca| hca.name == wanted.hca)?;
        Some((hca, hca.ports.iter().find(|port| port.number == wanted.port)?))
    };
    let ports: Vec<(&Hca, &Port)> = ports.iter().filter_map(found).collect();
    match fusion::fuse(facts, &ports, get, version) {
        Fusion::Fails(message) => Fused::Fails(message.to_owned()),
        Fusion::Unknown => Fused::Unknown,
        Fusion::Nics(nics) => {
            let name = |(hca, port): &(&Hca, &Port)| format!("{}:{}", hca.name, port.number);
            Fused::Nics(nics.iter().map(|nic| nic.iter().map(name).collect()).collect())
        }
    }
}

fn transport<'a>(facts: &Facts, get: &impl Fn(&str) -> Option<&'a str>, version: Version) -> Transport {
    let wanted = get("NCCL_NET");
    if let Some(file) = net_plugin(facts, get, version) {
        return Transport::Plugin { file, found: true, otherwise: Box::new(built_in(facts, get, version)) };
    }
    let has_device_of_plugin =
        || facts.rdma.iter().any(|hca| hca.ports.iter().any(|port| needs_own_library(hca, port)));
    let needs_plugin = || {
        has_device_of_plugin()
            || plugin::OF_INTERFACES
                .iter()
                .any(|variable| get(variable).is_some_and(|value| !value.is_empty()))
    };
    let otherwise = built_in(facts, get, version);
    let may_be_there = match &otherwise {
        Transport::Sockets { .. } => wanted.is_none() && needs_plugin(),
        // A plugin chooses the name of its network.
        Transport::Fails(_) => {
            wanted.is_some_and(|wanted| !wanted.is_empty() && !network::is_built_in(wanted))
        }
        // A P6 has HCAs for its NVSwitches beside the EFA devices.
        Transport::Verbs(ports) => {
            wanted.is_none() && has_device_of_plugin() && all_to_nvswitches(facts, ports)
        }
        Transport::Plugin { .. } => false,
    };
    if may_be_there { behind_plugin(facts, get, version, otherwise) } else { otherwise }
}

/// Returns the plugin that NCCL tries to load before its own transport, if the image is unknown and may have it.
pub fn behind_plugin<'a>(
    facts: &Facts,
    get: &impl Fn(&str) -> Option<&'a str>,
    version: Version,
    otherwise: Transport,
) -> Transport {
    let files = plugin::files(get(plugin::VARIABLE), version);
    match files.into_iter().flatten().next() {
        Some(file) if installed::image(facts).is_none() => {
            Transport::Plugin { file, found: false, otherwise: Box::new(otherwise) }
        }
        _ => otherwise,
    }
}

fn all_to_nvswitches(facts: &Facts, ports: &[PortUse]) -> bool {
    ports
        .iter()
        .all(|port| facts.rdma.iter().any(|hca| hca.name == port.hca && nvswitch::sign(facts, hca).is_some()))
}

/// Returns the file of the net plugin that carries the job's traffic instead of NCCL's own transports.
pub fn net_plugin<'a>(
    facts: &Facts,
    get: &impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Option<String> {
    // Any name but those of the built-in transports is a plugin's own.
    let wanted = get(network::VARIABLE);
    if wanted.is_some_and(network::is_built_in) {
        return None;
    }
    let files = plugin::files(get("NCCL_NET_PLUGIN"), version);
    let found = files.iter().flatten().find_map(|name| installed::plugin(facts, name))?;
    (!wanted.is_some_and(|wanted| network::is_other(&found, wanted))).then_some(found)
}

/// Returns which of NCCL's own transports carries the traffic.
fn built_in<'a>(facts: &Facts, get: &impl Fn(&str) -> Option<&'a str>, version: Version) -> Transport {
    let wanted = get("NCCL_NET");
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(name));
    let why = match verbs(facts, get, version) {
        Ok(ports) if is_wanted("IB") => return Transport::Verbs(ports),
        Err(why) if is_wanted("IB") => why,
        _ => "NCCL_NET asks for it".to_owned(),
    };
    if !is_wanted("Socket") {
        return Transport::Fails(match version >= LISTS_PLUGINS {
            true => "Failed to initialize any NET plugin".to_owned(),
            false => format!("Error: network {} not found", wanted.unwrap_or_default()),
        });
    }
    let interfaces = interfaces::all(&facts.net, get, version).unwrap_or_default();
    let interfaces = interfaces.into_iter().map(|endpoint| endpoint.interface).collect();
    Transport::Sockets { why, interfaces }
}

/// Returns the ports that NCCL's own transport uses, or why it uses none.
fn verbs<'a>(
    facts: &Facts,
    get: &impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<Vec<PortUse>, String> {
    if is_disabled(get("NCCL_IB_DISABLE"), version) {
        return Err("NCCL_IB_DISABLE turns verbs off".to_owned());
    }
    if let Err(failure @ (interfaces::Failure::NoInterface | interfaces::Failure::BadCommId)) =
        interfaces::first(&facts.net, get, version)
    {
        return Err(failure.message().unwrap_or_default().to_owned());
    }
    let libibverbs = libibverbs::libibverbs(facts, libibverbs::named(get, version));
    match libibverbs {
        Libibverbs::Missing => return Err("the image has no libibverbs".to_owned()),
        Libibverbs::NotOne => {
            return Err("NCCL_IBVERBS_LIB does not name libibverbs".to_owned());
        }
        Libibverbs::Unknown | Libibverbs::Loaded(_) => {}
    }
    let list = get("NCCL_IB_HCA").unwrap_or_default();
    let NcclDevices { ports, .. } = devices::taken(facts, list, version, |hca| libibverbs.shows(hca));
    if ports.is_empty() {
        return Err("it finds no usable HCA".to_owned());
    }
    if let Some(why) = devices::bad_planes(&ports, list, version) {
        return Err(why);
    }
    ports.into_iter().map(|(hca, port)| port_use(hca, port, get, version)).collect()
}

fn port_use<'a>(
    hca: &Hca,
    port: &Port,
    get: &impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<PortUse, String> {
    let gid = match gid::index(&port.gids, get, version) {
        _ if port.link_layer != LinkLayer::Ethernet => None,
        Ok(index) if version >= READS_GIDS_FIRST && index >= port.gids.size.into() => {
            return Err(format!(
                "{} has no GID index {index}, and {version} then gives up on all HCAs",
                hca.name
            ));
        }
        Ok(index) => Some(GidUse::Slot {
            index,
            gid: port.gids.slots.iter().find(|gid| i64::from(gid.index) == index).cloned(),
        }),
        Err(failure) => Some(GidUse::Fails(failure.to_string())),
    };
    Ok(PortUse { hca: hca.name.clone(), port: port.number, link_layer: port.link_layer.clone(), gid })
}

/// Returns whether `NCCL_IB_DISABLE` is set to any number except 0.
pub fn is_disabled(value: Option<&str>, version: Version) -> bool {
    value.and_then(|value| integer(value, version)).is_some_and(|number| number != 0)
}
