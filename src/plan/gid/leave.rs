//! Whether NCCL can find the right index itself for as long as the job runs.

use crate::libraries::nccl::installed;
use crate::libraries::nccl::predict::net_plugin;
use crate::libraries::nccl::version::{TOLERATES_EMPTY_SLOTS, Version};
use crate::plan::Context;
use crate::plan::rule::NotLeftToNccl;

/// Returns the releases in the image, if each of them searches the table at every connection, whatever the
/// table looks like by then.
///
/// # Errors
/// The reason why this is not certain for each release.
pub(super) fn releases(context: &Context) -> Result<Vec<Version>, NotLeftToNccl> {
    let Context { facts, profile, user, .. } = context;
    // RCCL's sources have been compared only up to 2.21.5 (`libraries::rccl`).
    if installed::is_rccl(facts) {
        return Err(NotLeftToNccl::Rccl);
    }
    let releases = installed::releases(facts).map_err(NotLeftToNccl::Unknown)?;
    // In older releases, the search ends at the empty entries that a change leaves behind.
    let oldest = *releases.first().ok_or(NotLeftToNccl::NotFound)?;
    if oldest < TOLERATES_EMPTY_SLOTS {
        return Err(NotLeftToNccl::Older(oldest));
    }
    let version = user.version().unwrap_or(oldest);
    let value = |name: &str| {
        let published = || profile.variables.get(name).filter(|_| !context.leaves_alone(name));
        user.get(name).map(|setting| setting.value.as_str()).or_else(|| published().map(String::as_str))
    };
    match net_plugin(facts, &value, version) {
        Some(file) => Err(NotLeftToNccl::Plugin(file)),
        None => Ok(releases),
    }
}
