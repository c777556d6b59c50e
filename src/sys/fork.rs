//! Starting a child and learning how it ended.

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, Pid, fork};

/// Forks and runs `child` in the new process, which exits with its result.
///
/// The caller is single-threaded (this program starts no thread before the
/// command runs), so the child may use all of libc.
///
/// # Errors
/// EAGAIN or ENOMEM when the kernel cannot make another process.
pub fn spawn(child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    // SAFETY: no other thread exists that could hold a lock in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => exit_now(child()),
    }
}

/// Ends the process without running libc's exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// For a process that PID 1 has given up on: sleeps until the kill comes.
pub fn wait_to_be_killed() -> ! {
    loop {
        nix::unistd::pause();
    }
}

/// How a reaped process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
}

/// What the kernel has to say about our children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    Ended(Pid, Ended),
    /// Stopped by this signal, by job control for example.
    Stopped(Pid, i32),
    /// None that has ended; there are others.
    Running,
    /// There is no child at all.
    Childless,
}

/// Reaps one process that has ended, any of ours, or with `stops` hears of one that
/// has stopped.
///
/// Not nix's `waitpid`: it has no name for real-time signals and loses the
/// status of a process that one of them killed.
pub fn reap(stops: bool) -> Reaped {
    // WNOHANG because the loop that calls this waits for signals, not for children.
    wait(ANY, libc::WNOHANG | if stops { libc::WUNTRACED } else { 0 })
}

/// Waits until a process has ended, and reaps it.
pub fn wait_and_reap() -> Reaped {
    wait(ANY, 0)
}

/// Reaps this child alone, if it has ended. `Childless` where it is not ours, or was
/// reaped already.
pub fn reap_child(child: Pid) -> Reaped {
    wait(child, libc::WNOHANG)
}

/// For waitpid(2).
const ANY: Pid = Pid::from_raw(-1);

fn wait(which: Pid, options: i32) -> Reaped {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for one int.
        let pid = unsafe { libc::waitpid(which.as_raw(), &mut status, options) };
        match (pid, Pid::from_raw(pid)) {
            (0, _) => return Reaped::Running,
            (-1, _) if Errno::last() == Errno::EINTR => {}
            (-1, _) => return Reaped::Childless,
            (_, pid) if libc::WIFEXITED(status) => {
                return Reaped::Ended(pid, Ended::Exited(libc::WEXITSTATUS(status)));
            }
            (_, pid) if libc::WIFSIGNALED(status) => {
                return Reaped::Ended(pid, Ended::Killed(libc::WTERMSIG(status)));
            }
            (_, pid) if libc::WIFSTOPPED(status) => return Reaped::Stopped(pid, libc::WSTOPSIG(status)),
            _ => {}
        }
    }
}
