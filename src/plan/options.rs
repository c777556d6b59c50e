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
    /// Variables never to fill.
    pub keep: BTreeSet<String>,
    /// Variables to set, as if by the user.
    pub set: IndexMap<String, String>,
    /// The libraries other than NCCL to decide for.
    pub libraries: Wanted,
}

/// Whether the HCA whose interface carries the default route is used for the job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultRouteOption {
    /// As the profile says; else not, unless it is a rail.
    #[default]
    Auto,
    Use,
    /// Not even if no other is there.
    Skip,
}

/// Whether NCCL asks our env plugin for each variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvPluginOption {
    /// If every NCCL of the image asks one, and no other is named.
    #[default]
    Auto,
    Off,
}

/// Which profile to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProfileOption {
    /// The one whose evidence is there.
    #[default]
    Auto,
    /// Fill nothing.
    None,
    Named(String),
}
