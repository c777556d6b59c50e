//! The library that the job's collectives use: NCCL, or RCCL instead on AMD GPUs. Sentences about the library
//! take it as a parameter.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Image;
use crate::facts::Facts;
use crate::facts::gpu::Make;

/// NCCL, or RCCL, which shares NCCL's variables and most of its behavior.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavor {
    #[default]
    Nccl,
    Rccl,
}

impl Flavor {
    /// Returns the library that the job uses on this host.
    pub(crate) fn of(facts: &Facts) -> Flavor {
        let is_rccl =
            |image: &Image| !image.rccl.is_empty() && (image.nccl.is_empty() || facts.gpu.make == Make::Amd);
        if facts.image.as_ref().is_some_and(is_rccl) { Flavor::Rccl } else { Flavor::Nccl }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    pub(crate) fn is_nccl(&self) -> bool {
        *self == Flavor::Nccl
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Flavor::Nccl => "NCCL",
            Flavor::Rccl => "RCCL",
        })
    }
}

/// Documents contain a boolean: whether the library is RCCL.
impl Serialize for Flavor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Flavor::Rccl)
    }
}
