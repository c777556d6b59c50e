//! Gives up what a process that does one thing does not need.

use caps::Capability;
use nix::libc;
use nix::sys::prctl::set_dumpable;

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`: 64 capabilities, in two halves.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Gives up all capabilities of this process but these, for good, as far as the kernel allows. From now on, only a
/// process with CAP_SYS_PTRACE may look into this one: another process of the same user, which has fewer
/// capabilities than this one had, could otherwise read the environment here.
pub(crate) fn keep_only(kept: &[Capability]) {
    let _ = set_dumpable(false);
    give_up_all_but(kept);
}

fn give_up_all_but(kept: &[Capability]) {
    let kept = kept.iter().fold(0, |kept, capability| kept | capability.bitmask());
    let mut header = Header { version: VERSION, pid: 0 };
    // For each half: effective, permitted, inheritable.
    let mut held = [[0_u32; 3]; 2];
    // SAFETY: both structures are as the kernel has them (capget(2)), and outlive the calls.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, &raw mut held) == 0 {
            held[0].iter_mut().for_each(|set| *set &= kept as u32);
            held[1].iter_mut().for_each(|set| *set &= (kept >> 32) as u32);
            libc::syscall(libc::SYS_capset, &raw mut header, &raw const held);
        }
    }
}

#[cfg(test)]
mod tests {
    use caps::CapSet;

    use super::*;

    /// Capabilities belong to a thread.
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
