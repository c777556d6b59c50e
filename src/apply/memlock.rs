//! Raises the limit on the memory that the command can pin, and checks whether pinning works.

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::facts::limits::{Amount, Limit};
use crate::facts::process::Process;
use crate::findings::memlock::{self, Pinning};
use crate::sys::memory;

/// Raises the limit as far as possible, and keeps a capability for the command. Returns the new limit, and
/// whether the command can pin memory according to the rules.
pub(crate) fn raise(limit: Limit, process: &Process) -> (Limit, Pinning) {
    let wanted = memlock::raised(limit, process);
    if wanted != limit && set(wanted).is_err() {
        // A seccomp filter or a security module may forbid what the capability allows.
        let _ = set(Limit { soft: limit.hard, hard: limit.hard });
    }
    let limit = match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((soft, hard)) => Limit { soft: Amount::from_rlim(soft), hard: Amount::from_rlim(hard) },
        Err(_) => limit,
    };
    let kept = process.uid == 0 || keep_capability(process);
    let pinning = match memlock::pinning(limit, process) {
        Pinning::Capability if !kept => Pinning::Limited(limit.soft.to_rlim()),
        pinning => pinning,
    };
    (limit, pinning)
}

fn set(limit: Limit) -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_MEMLOCK, limit.soft.to_rlim(), limit.hard.to_rlim())
}

/// Makes CAP_IPC_LOCK ambient and returns whether the command keeps it: a process that is not root loses a
/// capability at the exec unless it is ambient.
fn keep_capability(process: &Process) -> bool {
    let lock = Capability::CAP_IPC_LOCK;
    process.capabilities.ambient.has(lock)
        || process.capabilities.permitted.has(lock)
            && caps::raise(None, CapSet::Inheritable, lock).is_ok()
            && caps::raise(None, CapSet::Effective, lock).is_ok()
            && caps::raise(None, CapSet::Ambient, lock).is_ok()
}

/// In bytes: larger than 8 MiB, the usual limit if none was set.
const LEAST_PROBE: u64 = 16 * 1024 * 1024;

/// In bytes: the address space is large but finite.
const LARGEST_PROBE: u64 = 1 << 40;

/// Corrects the result of the rules by trying to lock more memory than the limit allows.
pub(crate) fn proven(pinning: Pinning, limit: Limit) -> Pinning {
    let bytes = match limit.soft {
        Amount::Limited(bytes) => Some(bytes),
        Amount::Unlimited(_) => None,
    };
    let size = bytes.map_or(LEAST_PROBE, |bytes| bytes.saturating_add(1 << 20).max(LEAST_PROBE));
    if size > LARGEST_PROBE {
        return pinning;
    }
    let size = usize::try_from(size).unwrap_or(1 << 24);
    match (memory::can_pin(size), bytes) {
        (None, _) => pinning,
        (Some(true), None) => Pinning::Unlimited,
        (Some(true), Some(_)) => Pinning::Capability,
        (Some(false), bytes) => Pinning::Limited(bytes.unwrap_or(0)),
    }
}
