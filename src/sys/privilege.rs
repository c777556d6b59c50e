//! Rights that the file of the program lends to whoever starts it.

use caps::{CapSet, Capability};
use nix::libc;
use nix::unistd::{getegid, geteuid, getgid, getuid};

/// Whether this process has the rights of another user than the one who started it: by a
/// set-user-ID or set-group-ID bit, or by a capability of the file.
///
/// CAP_IPC_LOCK does not count. It is lent on purpose (`setcap cap_ipc_lock+p`), as another
/// user than root gets it in no other way, and all it lets a process do is to pin memory.
pub fn is_lent() -> bool {
    // SAFETY: the auxiliary vector is there as long as the process is.
    // A security module sets this as well, where nothing is lent.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return false;
    }
    // Without a file's, another user than root has those that are ambient (capabilities(7)).
    let of_file = || {
        let held = |set| caps::read(None, set).unwrap_or_default();
        let mut lent = &held(CapSet::Permitted) - &held(CapSet::Ambient);
        lent.remove(&Capability::CAP_IPC_LOCK);
        !lent.is_empty()
    };
    getuid() != geteuid() || getgid() != getegid() || !getuid().is_root() && of_file()
}
