//! Which rails a job has: its HCAs with their ports, the GIDs that hold an address of this container, and the
//! interface over which its processes find each other. This module is pure.
//!
//! This module does not know libraries, profiles, or the configuration. What the user or a profile decides
//! about the ports comes in as [`Wanted`]; what was skipped, kept, and tried goes out as data. This way,
//! every library gets the same decision.

mod choose;
pub(crate) mod claims;
pub(crate) mod default_route;
pub(crate) mod distance;
mod enough;
#[cfg(test)]
mod fake;
pub(crate) mod gid;
pub(crate) mod interface;
pub(crate) mod near;
pub(crate) mod nvswitch;
pub(crate) mod of_gpu;
pub(crate) mod own_interface;
mod port;
mod slower;
mod step;
pub(crate) mod subnet;
pub(crate) mod twin;

pub use choose::{Wanted, choose, link_layer_of_job};
pub use default_route::OnDefaultRoute;
pub use enough::enough;
pub use gid::own_slots;
pub use nvswitch::NvSwitch;
pub(crate) use port::is_of_gaudi;
pub use port::{Candidate, SkipReason, Verdict, candidates, needs_own_library};
pub use step::{KeptRails, NarrowingStep, WhichRoute};

/// The decision for the job, in the form that every library gets.
#[derive(Clone, Copy)]
pub struct Rails<'a> {
    /// All ports that were examined, used or not.
    pub ports: &'a [Candidate<'a>],
    /// The index that is right on every port, if one is.
    pub gid_index: Option<u32>,
    /// The interface over which the processes find each other.
    pub interface: Option<&'a str>,
}

impl Rails<'_> {
    /// Returns the ports that the job uses, as `mlx5_1:1`.
    #[must_use]
    pub fn port_names(&self) -> Vec<String> {
        self.ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect()
    }
}
