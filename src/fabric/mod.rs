//! Which rails a job has: its HCAs with their ports, the GIDs that have an address of this
//! container, and the interface over which its processes find each other. Pure, and without
//! words of its own: `plan::words` has them.
//!
//! Nothing here knows a library, a profile or the configuration. What the user or a profile says about
//! the ports comes as [`Wanted`], and what is left out, kept and tried goes back as data. So
//! every library can be given the same decision.

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
mod step;
pub(crate) mod subnet;
pub(crate) mod twin;

pub use choose::{Wanted, choose, dominant_link_layer};
pub use default_route::OnDefaultRoute;
pub use enough::enough;
pub use gid::own_slots;
pub use nvswitch::NvSwitch;
pub use port::{Candidate, SkipReason, Verdict, candidates, needs_own_library};
pub use step::{KeptRails, NarrowingStep, WhichRoute};

/// The decision for the job, as each library gets it.
#[derive(Clone, Copy)]
pub struct Rails<'a> {
    /// All ports that were examined, used or not.
    pub ports: &'a [Candidate<'a>],
    /// The index that is right on every port, if there is one.
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
