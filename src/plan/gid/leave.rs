//! Whether NCCL can be left to find the right index itself, as long as the job runs.

use crate::libraries::nccl::installed;
use crate::libraries::nccl::predict::net_plugin;
use crate::libraries::nccl::version::{TOLERATES_EMPTY_SLOTS, Version};
use crate::plan::Context;
use crate::plan::rule::NotLeft;

/// Returns the releases in the image, of which each searches the table at every connection, however the table
/// looks by then.
///
/// # Errors
/// Why it is not sure that each does.
pub(super) fn releases(context: &Context) -> Result<Vec<Version>, NotLeft> {
    let Context { facts, profile, user, .. } = context;
    // Its sources have been compared up to 2.21.5 alone (`libraries::rccl`).
    if installed::is_rccl(facts) {
        return Err(NotLeft::Rccl);
    }
    let releases = installed::releases(facts).map_err(NotLeft::Unknown)?;
    // The empty entries that a change leaves behind end the search of older ones.
    let oldest = *releases.first().ok_or(NotLeft::NotFound)?;
    if oldest < TOLERATES_EMPTY_SLOTS {
        return Err(NotLeft::Older(oldest));
    }
    let version = user.version().unwrap_or(oldest);
    let value = |name: &str| {
        let published = || profile.variables.get(name).filter(|_| !context.leaves_alone(name));
        user.get(name).map(|setting| setting.value.as_str()).or_else(|| published().map(String::as_str))
    };
    match net_plugin(facts, &value, version) {
        Some(file) => Err(NotLeft::Plugin(file)),
        None => Ok(releases),
    }
}
