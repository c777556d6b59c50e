//! The state that PID 1 keeps if it is rdma-init's own init: memory that no process can change (see
//! `init::sealed`). It is the only proof that no mount can hide.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::unistd::Uid;

use super::run::{self, Run};

/// The name of that memory.
pub(crate) const NAME: &str = "rdma-init-state";

/// The seals that prevent any change of the memory.
pub(crate) const SEALS: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// In bytes: more than the variables of any process can have.
const LONGEST: u64 = 8 * 1024 * 1024;

const FOLDER: &str = "/proc/1/fd";

/// PID 1's answer.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The state that this container's start saved, and PID 1's user.
    Left(Box<Run>, Uid),
    /// PID 1 is rdma-init's init, but its start saved nothing or is not done.
    Nothing,
    /// PID 1 does not answer. It may not be rdma-init's init, it may be the init of another container that
    /// shares this PID namespace, or this process may not be permitted to inspect it
    /// (`PTRACE_MODE_READ_FSCREDS`, ptrace(2): the same user and group, or root with CAP_SYS_PTRACE).
    Silent,
}

/// Asks PID 1 for the state of the start.
pub(crate) fn ask() -> Answer {
    if std::process::id() == 1 || !runs_this_program(1) {
        return Answer::Silent;
    }
    let Ok(entries) = fs::read_dir(FOLDER) else { return Answer::Silent };
    let memory = entries.flatten().find(|entry| is_memory(&entry.path(), NAME));
    let held = memory.and_then(|entry| read(&entry.path()));
    held.map_or(Answer::Nothing, |(run, owner)| Answer::Left(Box::new(run), owner))
}

/// Returns whether a process runs this very program in this very mount namespace. In a PID namespace that
/// several containers share, PID 1 is a process of one of them, or of none.
pub(crate) fn runs_this_program(pid: i32) -> bool {
    let pid = pid.to_string();
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let program = |pid: &str| {
        let status = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((status.dev(), status.ino()))
    };
    mounts(&pid).is_some()
        && mounts(&pid) == mounts("self")
        && program(&pid).is_some()
        && program(&pid) == program("self")
}

/// Returns whether this descriptor of a process, as /proc shows it, is memory of this name.
pub(crate) fn is_memory(path: &Path, name: &str) -> bool {
    let link = fs::read_link(path).unwrap_or_default();
    link.to_str().is_some_and(|link| link.trim_end_matches(" (deleted)") == format!("/memfd:{name}"))
}

/// Returns the state in this memory; `None` if the memory can still be changed.
fn read(path: &Path) -> Option<(Run, Uid)> {
    let memory = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    if !is_sealed(&memory) {
        return None;
    }
    let owner = Uid::from_raw(memory.metadata().ok()?.uid());
    let mut text = Vec::new();
    memory.take(LONGEST).read_to_end(&mut text).ok()?;
    Some((run::parse(&text).ok()?, owner))
}

/// Returns whether this memory can no longer be changed.
pub(crate) fn is_sealed(memory: &File) -> bool {
    let seals = fcntl(memory, FcntlArg::F_GET_SEALS).unwrap_or_default();
    SealFlag::from_bits_truncate(seals).contains(SEALS)
}
