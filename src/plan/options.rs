//! The part of the configuration that the plan needs.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::Deserialize;

use crate::libraries::Wanted;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub profile: ProfileOption,
    pub default_route_hca: DefaultRouteOption,
    pub nccl_env_plugin: EnvPluginOption,
    /// The machine's type, as its cloud names it.
    pub instance_type: Option<String>,
    /// Whether the job must not run without RDMA.
    pub require_rdma: bool,
    /// Variables that rdma-init never fills in.
    pub keep: BTreeSet<String>,
    /// Variables to set as if the user had set them.
    pub set: IndexMap<String, String>,
    /// The libraries other than NCCL to decide for.
    pub libraries: Wanted,
}

/// Whether the HCA whose interface carries the default route is used for the job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultRouteOption {
    /// What the profile says; without a profile, skip the HCA unless it is a rail.
    #[default]
    Auto,
    Use,
    /// Skip the HCA even if there is no other.
    Skip,
}

/// Whether NCCL uses rdma-init's env plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvPluginOption {
    /// Use it if every NCCL in the image supports env plugins, and no other plugin is named.
    #[default]
    Auto,
    Off,
}

/// Which profile to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProfileOption {
    /// The profile with evidence on this host.
    #[default]
    Auto,
    /// No profile, and no variables filled in.
    None,
    Named(String),
}
