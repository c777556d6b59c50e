//! The user of this process, and rights that the program's file gives to the user who starts it.

use std::sync::OnceLock;

use caps::{CapSet, Capability};
use nix::libc;
use nix::unistd::{Uid, getegid, geteuid, getgid, getuid};

/// Returns the effective user, for which the kernel is asked once: this program never changes its user.
pub(crate) fn effective() -> Uid {
    static EFFECTIVE: OnceLock<Uid> = OnceLock::new();
    *EFFECTIVE.get_or_init(Uid::effective)
}

/// Returns whether this process has the rights of another user than the one who started it: by a
/// set-user-ID or set-group-ID bit, or by a capability of the file.
///
/// CAP_IPC_LOCK does not count. It is lent on purpose (`setcap cap_ipc_lock+p`), as another
/// user than root gets it in no other way, and all it lets a process do is to pin memory.
pub(crate) fn has_lent_rights() -> bool {
    // SAFETY: the auxiliary vector is there as long as the process is.
    // A security module sets this as well, even if the file gives no rights.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return false;
    }
    // Without capabilities of the file, a user other than root has only the ambient ones
    // (capabilities(7)).
    let of_file = || {
        let held = |set| caps::read(None, set).unwrap_or_default();
        let mut lent = &held(CapSet::Permitted) - &held(CapSet::Ambient);
        lent.remove(&Capability::CAP_IPC_LOCK);
        !lent.is_empty()
    };
    getuid() != geteuid() || getgid() != getegid() || !getuid().is_root() && of_file()
}
