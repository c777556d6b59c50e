//! What the choice of the rails has done, as data for the modules that report it.

use std::fmt;

use super::subnet::Prefix;

/// One step that has narrowed down the rails, and its result as the names of ports.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NarrowingStep {
    /// The Pod's resource claims hold other ports than these.
    Unclaimed(Vec<String>),
    /// A device plugin has given the Pod other ports than these.
    NotGiven(Vec<String>),
    /// Every GPU has a near HCA, so these ports, which are near no GPU, are skipped.
    FarLeftOut(Vec<String>),
    /// The rails are in one InfiniBand subnet; the skipped ports are in others.
    OtherSubnets { left_out: Vec<String>, rails: Prefix },
    /// The rails have one rate; the skipped ports are slower.
    Slower { left_out: Vec<String>, rails: String },
    /// Ports with an interface that carries a default route.
    DefaultRoute { left_out: Vec<String>, kept: Vec<String> },
    /// The ports that are kept because the GPUs need them.
    Kept(KeptRails),
}

/// Ports that carry a default route, but are rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRails {
    /// The name of each port, and of its interface.
    pub rails: Vec<(String, String)>,
    pub route: WhichRoute,
    /// How many HCAs would remain without these ports, and how many GPUs there are.
    pub hcas: usize,
    pub gpus: usize,
}

/// Which of the default routes an interface carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRoute {
    /// No other interface carries one.
    Only,
    OneOfSeveral,
    /// Of several routes, the one that the kernel prefers.
    Best,
}

impl fmt::Display for WhichRoute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            WhichRoute::Only => "the default route",
            WhichRoute::OneOfSeveral => "a default route",
            WhichRoute::Best => "the default route of the lowest metric",
        })
    }
}
