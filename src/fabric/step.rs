//! What the choice of the rails has done, as data for those who report it.

use super::subnet::Prefix;

/// What has narrowed down the rails, and the result, by the names of the ports.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NarrowingStep {
    /// The Pod's resource claims hold others.
    Unclaimed(Vec<String>),
    /// A device plugin has given the Pod others.
    NotGiven(Vec<String>),
    /// Every GPU has an HCA that is near, so those that are near none are left out.
    FarLeftOut(Vec<String>),
    /// One InfiniBand subnet has the rails.
    OtherSubnets { left_out: Vec<String>, rails: Prefix },
    /// Ports with an interface that carries a default route.
    DefaultRoute { left_out: Vec<String>, kept: Vec<String> },
    /// Those that are kept because the GPUs need them.
    Kept(KeptRails),
}

/// Ports that carry a default route, and are rails anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRails {
    /// The name of each port, and of its interface.
    pub rails: Vec<(String, String)>,
    pub route: WhichRoute,
    /// How many HCAs would be left without them, and how many GPUs there are.
    pub hcas: usize,
    pub gpus: usize,
}

/// Which of the default routes it is that an interface carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRoute {
    /// No other interface carries one.
    Only,
    OneOfSeveral,
    /// The one of several that the kernel prefers.
    Best,
}
