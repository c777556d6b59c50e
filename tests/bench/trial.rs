//! Runs one process as PID 1 of a PID namespace of its own.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// A pipe for the output of the programs, which is read and thrown away, as a container engine
/// reads it.
pub struct Sink(File, OwnedFd);

impl Sink {
    pub fn new() -> Sink {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe can be made");
        nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
            .expect("a pipe can be set to not block");
        Sink(read.into(), write)
    }

    pub fn empty(&mut self) {
        let mut buffer = [0; 4096];
        while matches!(self.0.read(&mut buffer), Ok(1..)) {}
    }
}

pub struct Trial {
    pub pid: i32,
    pidfd: OwnedFd,
    pub started: Instant,
}

impl Trial {
    /// Clones a process and executes the program in it. Its environment has only PATH.
    pub fn start(arguments: &[CString], output: &Sink) -> Trial {
        let mut argv: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        argv.push(std::ptr::null());
        let path = c"PATH=/usr/local/bin:/usr/bin:/bin".as_ptr();
        let envp = [path, std::ptr::null()];
        let (mut pidfd, output) = (-1i32, output.1.as_raw_fd());
        let flags = libc::CLONE_NEWPID | libc::CLONE_PIDFD | libc::SIGCHLD;
        let started = Instant::now();
        // SAFETY: without CLONE_VM this is a fork; the child makes only system calls, with data
        // that was prepared before the fork.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
        if pid == 0 {
            // SAFETY: as above; these are the child's system calls.
            unsafe {
                libc::dup2(output, 1);
                libc::dup2(output, 2);
                libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
                libc::_exit(126)
            }
        }
        assert!(pid > 0, "clone: {}; this has to run as root", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made this descriptor for us.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Trial { pid: i32::try_from(pid).expect("a process number"), pidfd, started }
    }

    pub fn kill(&self, signal: i32) {
        // SAFETY: kill takes plain numbers; the process has not been reaped, so its number is
        // still its own.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Returns whether the process ends within this time.
    pub fn ends_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(time).expect("a short time");
        matches!(poll(&mut fds, timeout), Ok(1))
    }

    /// Waits for the end of the process. Returns the time since the clone, and the wait status.
    pub fn end(self) -> (Duration, i32) {
        let mut status = 0;
        // SAFETY: the pointer is valid, and the process is our child.
        let waited = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(waited, self.pid);
        (self.started.elapsed(), status)
    }
}
