//! Starts a child and learns how it ended.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid, fork, pipe2, read, write};

use super::children;

/// Forks and runs `child` in the new process, which exits with its result.
///
/// The caller is single-threaded (this program starts no thread before the command runs), so the child may
/// use all of libc.
///
/// # Errors
/// Fails with EAGAIN or ENOMEM if the kernel cannot create another process.
pub(crate) fn spawn(child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    // SAFETY: no other thread exists that could hold a lock in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            children::started(child);
            Ok(child)
        }
        ForkResult::Child => exit_now(child()),
    }
}

/// The end of a process from [`spawn_unseen`] sends this signal, with a code of SIGCHLD's (`do_notify_parent` of
/// kernel/signal.c), which no process can send. By default, it does nothing.
pub(crate) const END_OF_UNSEEN: i32 = libc::SIGURG;

/// Returns whether a signal with this code says that a process from [`spawn_unseen`] has ended.
pub(super) fn is_end_of_unseen(signal: i32, code: i32) -> bool {
    signal == END_OF_UNSEEN && (libc::CLD_EXITED..=libc::CLD_DUMPED).contains(&code)
}

/// Does the same as [`spawn`], but no wait for children sees the new process (except with `__WALL` or `__WCLONE`),
/// and its end sends no SIGCHLD.
///
/// # Errors
/// Fails as [`spawn`] does, and with EINVAL in QEMU's user mode.
pub(crate) fn spawn_unseen(child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    let flags = END_OF_UNSEEN as usize;
    // SAFETY: without flags and a stack, clone(2) is fork(2); all its arguments after the signal are 0, so that their
    // order, which depends on the architecture, is of no account. No other thread exists that could hold a lock in the
    // child.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) } {
        -1 => Err(Errno::last()),
        0 => exit_now(child()),
        // A process ID is an int.
        child => Ok(Pid::from_raw(child as i32)),
    }
}

/// Reaps a process from [`spawn_unseen`], and waits this long at most for its end. Returns whether it is
/// gone.
pub(crate) fn reap_unseen(child: Pid, patience: Duration) -> bool {
    if patience.is_zero() {
        return try_to_reap_unseen(child);
    }
    match pidfd(child) {
        Some(fd) => {
            let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout);
            try_to_reap_unseen(child)
        }
        None => reap_unseen_without_fd(child, patience),
    }
}

/// `None` on kernels before 5.3, and if a filter forbids it.
fn pidfd(process: Pid) -> Option<OwnedFd> {
    // SAFETY: pidfd_open(2) takes a process number and flags, and gives a descriptor that only this function has.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0_usize) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: as above.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks again and again: nothing else shows the end of a process without exit signal.
fn reap_unseen_without_fd(child: Pid, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        if try_to_reap_unseen(child) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn try_to_reap_unseen(child: Pid) -> bool {
    let mut status = 0;
    // SAFETY: `status` is a valid place for one int.
    match unsafe { libc::waitpid(child.as_raw(), &mut status, libc::__WCLONE | libc::WNOHANG) } {
        0 => return false,
        -1 if Errno::last() != Errno::ECHILD => {}
        _ => return true,
    }
    let (id, options) = (child.as_raw().cast_unsigned(), libc::__WCLONE | libc::WNOHANG | libc::WEXITED);
    // SAFETY: a seccomp filter refuses wait4(2). The place is valid for the call, which fills it or leaves it zeroed; then
    // the process number in it is 0.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::waitid(libc::P_PID, id, &raw mut info, options) {
            0 => info.si_pid() != 0,
            _ => Errno::last() == Errno::ECHILD,
        }
    }
}

unsafe extern "C" {
    /// The variant of fork(2) that a signal handler may use (glibc 2.34).
    fn _Fork() -> libc::pid_t;
}

/// Why a separate process did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The process or its pipe could not be created.
    NotStarted(Errno),
    /// The process ended without an answer.
    Ended,
    /// The time expired.
    InTime,
}

/// Runs `work` in a separate process and returns its answer.
///
/// A signal handler may also use it, if `work` does only what signal-safety(7) allows.
///
/// # Errors
/// Fails if there is no answer within this time, and then kills the process, or for another reason.
pub(crate) fn within(time: Duration, work: impl FnOnce() -> u8) -> Result<u8, NoAnswer> {
    let (here, there) = pipe2(OFlag::O_CLOEXEC).map_err(NoAnswer::NotStarted)?;
    // SAFETY: no other thread exists, and the caller vouches for `work` in a handler.
    let child = match unsafe { _Fork() } {
        -1 => return Err(NoAnswer::NotStarted(Errno::last())),
        0 => {
            let _ = write(&there, &[work()]);
            exit_now(0)
        }
        child => Pid::from_raw(child),
    };
    drop(there);
    let answer = answer(&here, Instant::now() + time);
    if answer.is_err() {
        let _ = super::signals::kill(child, libc::SIGKILL);
    }
    // Does not wait for a process that hangs in the kernel; the process that adopts orphans reaps it.
    wait(child, if answer.is_ok() { 0 } else { libc::WNOHANG });
    answer
}

/// Returns the byte that is written to the other end of the pipe, unless that end is closed or the time
/// expires.
fn answer(pipe: &OwnedFd, until: Instant) -> Result<u8, NoAnswer> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the wait does not end just before the time.
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, left) {
            Ok(0) => return Err(NoAnswer::InTime),
            Ok(_) => {
                let mut byte = [0];
                return if read(pipe, &mut byte) == Ok(1) { Ok(byte[0]) } else { Err(NoAnswer::Ended) };
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(NoAnswer::NotStarted(errno)),
        }
    }
}

/// Ends the process without running libc's exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Sleeps until the kill, for a process that PID 1 has given up on.
pub(crate) fn wait_to_be_killed() -> ! {
    loop {
        nix::unistd::pause();
    }
}

/// How a reaped process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
}

/// What the kernel reports about this process's children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    Ended(Pid, Ended),
    /// Stopped by this signal, by job control for example.
    Stopped(Pid, i32),
    /// No child has ended; at least one is running.
    Running,
    /// There is no child.
    NoSuchChild,
}

/// Reaps any child that has ended, and also returns one that has stopped.
///
/// nix's `waitpid` is unsuitable: it has no names for real-time signals, and loses the status of a process
/// that one of them killed.
pub(crate) fn reap() -> Reaped {
    // Uses WNOHANG because the loop that calls this waits for signals, not for children.
    wait(ANY, libc::WNOHANG | libc::WUNTRACED)
}

/// Does the same as [`reap`], but first calls `look` with the process while the kernel still knows it.
pub(crate) fn reap_after(look: impl FnOnce(Pid)) -> Reaped {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the place is valid for the call, which fills it or leaves it zeroed; then the
    // process number in it is 0.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::waitid(libc::P_ALL, 0, &raw mut info, options) {
            0 => info.si_pid(),
            // This also happens if there is no child.
            _ => return reap(),
        }
    };
    if pid == 0 {
        return Reaped::Running;
    }
    look(Pid::from_raw(pid));
    wait(Pid::from_raw(pid), libc::WNOHANG | libc::WUNTRACED)
}

/// Waits until a process has ended, and reaps it.
pub(crate) fn wait_and_reap() -> Reaped {
    wait(ANY, 0)
}

/// Reaps only this child, if it has ended. Returns `NoSuchChild` if it is not a child of this process or was
/// already reaped.
pub(crate) fn reap_child(child: Pid) -> Reaped {
    wait(child, libc::WNOHANG)
}

/// The argument of waitpid(2) that means any child.
const ANY: Pid = Pid::from_raw(-1);

fn wait(which: Pid, options: i32) -> Reaped {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for one int.
        let pid = unsafe { libc::waitpid(which.as_raw(), &mut status, options) };
        match (pid, Pid::from_raw(pid)) {
            (0, _) => return Reaped::Running,
            (-1, _) => match Errno::last() {
                Errno::EINTR => {}
                Errno::ECHILD => return Reaped::NoSuchChild,
                // A seccomp filter refuses wait4(2).
                _ => return wait_by_id(which, options),
            },
            (_, pid) if libc::WIFEXITED(status) => {
                children::reaped(pid);
                return Reaped::Ended(pid, Ended::Exited(libc::WEXITSTATUS(status)));
            }
            (_, pid) if libc::WIFSIGNALED(status) => {
                children::reaped(pid);
                return Reaped::Ended(pid, Ended::Killed(libc::WTERMSIG(status)));
            }
            (_, pid) if libc::WIFSTOPPED(status) => return Reaped::Stopped(pid, libc::WSTOPSIG(status)),
            _ => {}
        }
    }
}

/// Does the same as [`wait`], by waitid(2).
fn wait_by_id(which: Pid, options: i32) -> Reaped {
    let kind = if which == ANY { libc::P_ALL } else { libc::P_PID };
    loop {
        // SAFETY: the place is valid for the call, which fills it or leaves it zeroed; then the process number in it is
        // 0. The fields are those of a child.
        let (pid, status, code) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            match libc::waitid(kind, which.as_raw().cast_unsigned(), &raw mut info, options | libc::WEXITED) {
                0 => (Pid::from_raw(info.si_pid()), info.si_status(), info.si_code),
                _ if Errno::last() == Errno::EINTR => continue,
                _ => return Reaped::NoSuchChild,
            }
        };
        let ended = match code {
            _ if pid.as_raw() == 0 => return Reaped::Running,
            libc::CLD_STOPPED => return Reaped::Stopped(pid, status),
            libc::CLD_EXITED => Ended::Exited(status),
            libc::CLD_KILLED | libc::CLD_DUMPED => Ended::Killed(status),
            _ => continue,
        };
        children::reaped(pid);
        return Reaped::Ended(pid, ended);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nix::unistd::gettid;

    use super::*;

    /// Every wait names its process, because this program's tests have children at the same time.
    #[test]
    fn no_wait_sees_a_process_without_exit_signal() {
        let child = match spawn_unseen(|| wait_to_be_killed()) {
            // QEMU's user mode.
            Err(Errno::EINVAL) => return,
            started => started.unwrap(),
        };
        assert_eq!(reap_child(child), Reaped::NoSuchChild, "it runs");
        super::super::signals::kill(child, libc::SIGKILL).unwrap();
        let mut status = 0;
        // SAFETY: `status` is a valid place for one int.
        let ended = unsafe { libc::waitpid(child.as_raw(), &mut status, libc::__WCLONE) };
        assert_eq!((ended, libc::WTERMSIG(status)), (child.as_raw(), libc::SIGKILL));
    }

    /// Ends a child only once the thread that has started it sleeps, and so waits for it.
    ///
    /// It allocates nothing: another thread of the test may hold the allocator's lock during a clone(2) that libc
    /// does not see.
    fn end_once_awaited(waits: &File) -> i32 {
        let mut stat = [0; 512];
        loop {
            let length = waits.read_at(&mut stat, 0).unwrap_or(0);
            if stat[..length].windows(3).any(|part| part == b") S") {
                return 0;
            }
        }
    }

    #[test]
    fn the_end_of_such_a_process_is_awaited_with_and_without_a_descriptor() {
        let ways: [fn(Pid, Duration) -> bool; 2] = [reap_unseen, reap_unseen_without_fd];
        let own = File::open(format!("/proc/{}/task/{}/stat", Pid::this(), gettid())).unwrap();
        for way in ways {
            let child = match spawn_unseen(|| end_once_awaited(&own)) {
                // QEMU's user mode.
                Err(Errno::EINVAL) => return,
                started => started.unwrap(),
            };
            assert!(way(child, Duration::from_secs(60)));
            let child = spawn_unseen(|| wait_to_be_killed()).unwrap();
            assert!(!way(child, Duration::from_millis(20)), "it runs");
            super::super::signals::kill(child, libc::SIGKILL).unwrap();
            assert!(way(child, Duration::from_secs(60)));
        }
    }

    #[test]
    fn an_answer_comes_from_another_process_and_in_time() {
        let own = std::process::id();
        assert_eq!(within(Duration::from_secs(30), || u8::from(std::process::id() != own)), Ok(1));
        assert_eq!(within(Duration::from_secs(30), || exit_now(0)), Err(NoAnswer::Ended));
        let started = Instant::now();
        assert_eq!(within(Duration::from_millis(50), || wait_to_be_killed()), Err(NoAnswer::InTime));
        assert!(started.elapsed() >= Duration::from_millis(50));
    }
}
