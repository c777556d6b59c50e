//! The user of this process.

use std::sync::OnceLock;

use nix::unistd::Uid;

/// Returns the effective user, for which the kernel is asked once: this program never changes its user.
pub(crate) fn effective() -> Uid {
    static EFFECTIVE: OnceLock<Uid> = OnceLock::new();
    *EFFECTIVE.get_or_init(Uid::effective)
}
