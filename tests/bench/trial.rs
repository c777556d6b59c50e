//! A process as PID 1 of a new PID namespace.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Reads and discards what the programs print, as a container engine would.
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

/// What to start, laid out in memory in advance.
pub struct Start {
    root: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Start {
    pub fn new(root: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Start {
        Start { root, arguments, environment }
    }
}

pub struct Trial {
    pub pid: i32,
    pidfd: OwnedFd,
    pub started: Instant,
}

impl Trial {
    /// Clones, and executes the program in the child.
    pub fn start(start: &Start, output: &Sink) -> Trial {
        let pointers = |texts: &[CString]| -> Vec<_> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&start.arguments), pointers(&start.environment));
        let root = start.root.as_ptr();
        let (mut pidfd, output) = (-1i32, output.1.as_raw_fd());
        let flags = libc::CLONE_NEWPID | libc::CLONE_PIDFD | libc::SIGCHLD;
        let started = Instant::now();
        // SAFETY: without CLONE_VM this is a fork; the child makes only system calls, with data that was
        // laid out before.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
        if pid == 0 {
            // SAFETY: as above.
            unsafe {
                libc::chroot(root);
                libc::chdir(c"/".as_ptr());
                libc::dup2(output, 1);
                libc::dup2(output, 2);
                libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
                libc::_exit(126)
            }
        }
        assert!(pid > 0, "clone: {}; this has to run as root", std::io::Error::last_os_error());
        // SAFETY: the kernel has just created this descriptor for this process.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Trial { pid: i32::try_from(pid).expect("a process number"), pidfd, started }
    }

    pub fn kill(&self, signal: i32) {
        // SAFETY: plain numbers; the process has not been waited for.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Returns whether the process ends in time.
    pub fn ends_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(time).expect("a short time");
        matches!(poll(&mut fds, timeout), Ok(1))
    }

    /// Waits for the end. Returns the time since the clone, and the wait status.
    pub fn end(self) -> (Duration, i32) {
        let mut status = 0;
        // SAFETY: the pointer is valid, and the process is a child of this one.
        let waited = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(waited, self.pid);
        (self.started.elapsed(), status)
    }
}
