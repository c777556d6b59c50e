//! The libraries that a job moves its data with: for each, its variables from what was decided
//! for the job, in its own grammar. Of [`nccl`] there is a model as well: what it makes of the
//! user's values, and what it will do.

mod gloo;
pub mod nccl;
mod nvshmem;
pub mod rccl;
mod tensorpipe;
mod ucx;

use crate::fabric::Rails;

/// The value that makes a library other than NCCL follow the same decisions. `None` for a
/// variable that no library here has, and where nothing was decided that it could follow.
pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    [gloo::value, nvshmem::value, tensorpipe::value, ucx::value]
        .into_iter()
        .find_map(|value| value(variable, rails))
}
