//! The whole result of a self-test: `self-test --json` writes it in one line, and `compare` reads it
//! from many nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::check::Check;

/// The document's version. It changes if a field changes its meaning or is removed.
pub const SCHEMA: &str = "rdma-init/self-test/1";

#[must_use]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    pub schema: String,
    /// The version of the program that wrote it.
    pub program: String,
    /// The node's name.
    pub host: String,
    /// Whether no check failed.
    pub passed: bool,
    /// In microseconds, for the whole self-test.
    pub took_us: u64,
    pub hcas: Vec<Rail>,
    /// The version of NCCL in the image.
    pub nccl: Option<String>,
    pub profile: Option<String>,
    /// What the nodes of an NVLink domain must have in common; `None` if there is no sign that this
    /// node is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<Nvlink>,
    /// The NVLink domain of the instance, if a resource claim reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_domain: Option<String>,
    /// The placement group of the instance, if a resource claim reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// The variables that rdma-init fills in.
    pub filled: BTreeMap<String, String>,
    /// The variables that the user has set, of those that NCCL or another library reads.
    pub set: BTreeMap<String, String>,
    pub checks: Vec<Check>,
    /// The result of the test with another node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// What is known about the NVLink domain without NVML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvlink {
    /// The numbers of the IMEX channels that can be used, or `none`. Nodes that share memory have the
    /// same one.
    pub channels: String,
    /// The variables that NCCL uses instead of NVML, if any are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clique: Option<String>,
}

/// A port that the job uses. A report must have every field to be readable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rail {
    pub hca: String,
    pub port: u32,
    #[serde(deserialize_with = "Option::deserialize")]
    pub driver: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub firmware: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// As the kernel writes it: `200 Gb/sec (4X HDR)`.
    pub rate: String,
    /// `RoCE v2`, and the family of the address; `None` on InfiniBand.
    #[serde(deserialize_with = "Option::deserialize")]
    pub gid_type: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub gid_index: Option<u32>,
    /// In bytes: on RoCE, the MTU of the interface, if it is known.
    #[serde(deserialize_with = "Option::deserialize")]
    pub mtu: Option<u32>,
    /// What the administrator has set on a RoCE port, as the driver writes it. Reports from earlier
    /// versions do not contain it, and most nodes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<String>,
}

/// The result of the test of two nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The other node's name.
    pub host: String,
    pub rails: Vec<Figures>,
}

/// A rail that passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// `mlx5_0:1`.
    pub near: String,
    pub far: String,
    /// The time from this node's write of 8 bytes to the other node until the acknowledgement.
    pub latency_ns: u64,
    /// In Mbit/s, to the other node and from it.
    pub to_mbps: u64,
    pub from_mbps: u64,
}
