//! The user of this process, and privileges that the program's file gives to the user who starts it.

use std::sync::OnceLock;

use caps::{CapSet, Capability};
use nix::libc;
use nix::unistd::{Uid, getegid, geteuid, getgid, getuid};

/// Returns the effective user. Asks the kernel only once, because this program never changes its user.
pub(crate) fn effective() -> Uid {
    static EFFECTIVE: OnceLock<Uid> = OnceLock::new();
    *EFFECTIVE.get_or_init(Uid::effective)
}

/// Returns whether this process has privileges that the user who started it lacks: through a set-user-ID or
/// set-group-ID bit, or through a file capability.
///
/// CAP_IPC_LOCK does not count. It is granted on purpose (`setcap cap_ipc_lock+p`), because a non-root user
/// cannot get it in any other way, and it lets a process only pin memory.
pub(crate) fn has_lent_rights() -> bool {
    // SAFETY: the auxiliary vector is there as long as the process is.
    // A security module also sets this, even if the file gives no privileges.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return false;
    }
    // Without file capabilities, a user other than root has only the ambient ones (capabilities(7)).
    let of_file = || {
        let held = |set| caps::read(None, set).unwrap_or_default();
        let mut lent = &held(CapSet::Permitted) - &held(CapSet::Ambient);
        lent.remove(&Capability::CAP_IPC_LOCK);
        !lent.is_empty()
    };
    getuid() != geteuid() || getgid() != getegid() || !getuid().is_root() && of_file()
}
