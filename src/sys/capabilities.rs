//! Gives up the capabilities that a process with a single task does not need.

use caps::{CapSet, Capability};
use nix::sys::prctl::set_dumpable;

/// Gives up all of this process's capabilities except these. If root executes a program, that program has
/// them again. From now on, only a process with CAP_SYS_PTRACE may inspect this one: otherwise another
/// process of the same user, with fewer capabilities than this one had, could read the environment here.
pub(crate) fn keep_only(kept: &[Capability]) {
    let _ = set_dumpable(false);
    give_up_all_but(kept);
}

fn give_up_all_but(kept: &[Capability]) {
    // An effective capability must be permitted, so the permitted set goes last.
    for set in [CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        let Ok(mut held) = caps::read(None, set) else { continue };
        held.retain(|capability| kept.contains(capability));
        let _ = caps::set(None, set, &held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities belong to a thread, so the test uses its own.
    #[test]
    fn what_is_not_kept_is_gone_and_nothing_is_gained() {
        let sets = [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient];
        let now = move || sets.map(|set| caps::read(None, set).unwrap());
        let (before, after, nothing) = std::thread::spawn(move || {
            let before = now();
            give_up_all_but(&[Capability::CAP_IPC_LOCK, Capability::CAP_BPF]);
            let after = now();
            give_up_all_but(&[]);
            (before, after, now())
        })
        .join()
        .unwrap();
        let kept = [Capability::CAP_IPC_LOCK, Capability::CAP_BPF].into_iter().collect();
        for (before, after) in before.iter().zip(after) {
            assert_eq!(after, before & &kept);
        }
        assert!(nothing.iter().all(caps::CapsHashSet::is_empty), "{nothing:?}");
    }
}
