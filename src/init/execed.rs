//! Determines whether a child had become the command before it ended, because a command must not run twice.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

use crate::facts::reader::of_kernel;

/// `PF_FORKNOEXEC` from the kernel's `include/linux/sched.h`: the process was forked and has not executed a
/// program since.
const FORKED_ONLY: u64 = 0x40;

/// Returns whether a child has never executed a program. Call it only for a child that can no longer
/// execute anything: it has ended, or has closed all its files, but is not reaped yet.
///
/// `true` is certain: the kernel reports it (proc(5), field 9 of `/proc/PID/stat`). `false` may also mean
/// that the answer is unknown: this PID namespace has no /proc, or a sandbox such as gVisor does not report
/// these flags. An alternative without /proc would be setpgid(2), which fails for a child that has executed
/// a program; but gVisor allows it for every child, so the command would run twice.
pub(super) fn has_never_execed(child: Pid) -> bool {
    flags(child).is_some_and(|flags| flags & FORKED_ONLY != 0)
}

fn flags(child: Pid) -> Option<u64> {
    let own = std::process::id().to_string();
    // In the /proc of another PID namespace, the same number refers to another process.
    if fs::read_link("/proc/self").ok()? != Path::new(&own) {
        return None;
    }
    let stat = of_kernel(format!("/proc/{child}/stat"))?;
    // The program's name may contain anything, even a parenthesis. The fields after it are: state, parent,
    // group, session, terminal, foreground group of the terminal, flags.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(1);
    (fields.next()? == own).then_some(())?;
    fields.nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::exec::PreparedExec;
    use crate::sys::fork::{Ended, Reaped, reap_child, spawn};
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    /// Calls [`has_never_execed`] for a child that has ended but is not reaped, then reaps it.
    fn ended(child: impl FnOnce() -> i32) -> (bool, Reaped) {
        let child = spawn(child).unwrap();
        waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        (has_never_execed(child), reap_child(child))
    }

    #[test]
    fn a_dead_child_shows_whether_it_had_become_the_command() {
        let exec = |path: &str| {
            PreparedExec::new(vec![std::ffi::CString::new(path).unwrap()], Vec::new()).exec() as i32
        };
        for (child, never, code) in [
            (Box::new(|| 3) as Box<dyn FnOnce() -> i32>, true, 3),
            (Box::new(|| exec("/no/such/program")), true, nix::libc::ENOENT),
            (Box::new(|| exec("/bin/true")), false, 0),
        ] {
            let (told, reaped) = ended(child);
            assert!(matches!(reaped, Reaped::Ended(_, Ended::Exited(found)) if found == code), "{reaped:?}");
            assert_eq!(told, never, "{code}");
        }
        assert!(!has_never_execed(Pid::from_raw(1)), "no child of ours");
    }
}
