//! What the choice of the rails has done, as data for those who report it.

use super::which_route::WhichRoute;

/// What has narrowed the rails down, and what came of it, by the names of the ports.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Every GPU has an HCA that is near, so those that are near none are left out.
    FarLeftOut(Vec<String>),
    /// Ports with an interface that carries a default route.
    DefaultRoute { left_out: Vec<String>, kept: Vec<String> },
    /// Those that are kept because the GPUs need them.
    Kept(KeptRails),
}

/// Ports that carry a default route, and are rails all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRails {
    /// The name of each port, and of its interface.
    pub rails: Vec<(String, String)>,
    pub route: WhichRoute,
    /// How many HCAs would be left without them, and how many GPUs there are.
    pub hcas: usize,
    pub gpus: usize,
}
