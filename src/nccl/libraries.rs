//! What NCCL can load from the image, by the rules of the dynamic loader and of
//! libibverbs. Where nobody has looked, everything counts as there but plugins.

use super::version::Version;
use crate::facts::Facts;
use crate::facts::rdma::Hca;

/// The release of NCCL that the job loads, as far as the image tells.
pub fn release(facts: &Facts) -> Option<Version> {
    facts.platform.nccl_version.as_deref().and_then(Version::parse)
}

pub fn has_libibverbs(_facts: &Facts) -> bool {
    true
}

pub fn has_provider(_facts: &Facts, _hca: &Hca) -> bool {
    true
}

/// The file that a plugin's name leads to, if it is there.
pub fn plugin(_facts: &Facts, _name: &str) -> Option<String> {
    None
}
