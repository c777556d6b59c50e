//! Standard descriptors: writes messages that never block, and keeps descriptors closed for the command.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::write;

use super::nonblocking;
use super::signals::without_signals_of_writing;

/// The space that a pipe has at least if poll(2) reports it as writable (`PIPE_BUF`).
const PIPE_BUF: usize = 4096;

/// The space that a stopped terminal has at least if poll(2) reports it as writable.
const TERMINAL_ROOM: usize = 1;

/// Standard error as a sink that gives up rather than blocking or failing: a process that reads rdma-init's
/// messages must not be able to keep the command from starting or PID 1 from reaping.
#[derive(Debug, Clone)]
pub struct Stderr {
    patience: Duration,
    /// The first write sets it.
    gives_up: Arc<OnceLock<Instant>>,
}

impl Stderr {
    /// Returns a sink whose writes together wait no longer than `patience` for a reader.
    pub fn with_patience(patience: Duration) -> Stderr {
        Stderr { patience, gives_up: Arc::default() }
    }

    /// Returns a sink for PID 1, which never waits.
    pub fn at_once() -> Stderr {
        Stderr::with_patience(Duration::ZERO)
    }

    /// Writes as much as possible and drops the rest.
    pub fn put(&self, bytes: &[u8]) {
        without_signals_of_writing(|| self.write(bytes));
    }

    fn write(&self, mut bytes: &[u8]) {
        let stderr = std::io::stderr();
        let kind = fstat(&stderr).map_or(0, |status| status.st_mode & libc::S_IFMT);
        // Nearly always, this one call writes all of it.
        if kind == libc::S_IFIFO
            && let Ok(written) = nonblocking::to_pipe_at_once(stderr.as_fd(), bytes)
        {
            bytes = bytes.get(written..).unwrap_or_default();
        }
        if bytes.is_empty() {
            return;
        }
        let way = Way::to(stderr.as_fd(), kind);
        let fd = match &way {
            Way::Own(own) => own.as_fd(),
            Way::Pipe | Way::Socket | Way::Limited(_) => stderr.as_fd(),
        };
        while !bytes.is_empty() && self.writable(fd) {
            let written = match way {
                Way::Own(_) => write(fd, bytes),
                Way::Pipe => nonblocking::to_pipe(fd, bytes)
                    .unwrap_or_else(|| write(fd, &bytes[..bytes.len().min(PIPE_BUF)])),
                Way::Socket => nonblocking::to_socket(fd, bytes),
                Way::Limited(room) => write(fd, &bytes[..bytes.len().min(room)]),
            };
            match written {
                Ok(0) => return,
                Ok(written) => bytes = &bytes[written.min(bytes.len())..],
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if !self.left().is_zero() => {}
                Err(_) => return,
            }
        }
    }

    /// Returns how much longer this sink waits for a reader.
    fn left(&self) -> Duration {
        let gives_up = self.gives_up.get_or_init(|| Instant::now() + self.patience);
        gives_up.saturating_duration_since(Instant::now())
    }

    fn writable(&self, fd: BorrowedFd) -> bool {
        loop {
            let timeout = PollTimeout::try_from(self.left()).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
            match poll(&mut fds, timeout) {
                Ok(0) => return false,
                Ok(_) => {
                    return fds[0].revents().is_some_and(|r| r.contains(PollFlags::POLLOUT));
                }
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// How to write to standard error without waiting. Other processes share its file description, so it must not
/// be made non-blocking.
enum Way {
    /// A second, non-blocking open file description of the same pipe or terminal.
    Own(OwnedFd),
    /// A pipe that this user cannot open again, because it belongs to another user (su, gosu, setpriv) or
    /// because there is no /proc.
    Pipe,
    Socket,
    /// poll(2) tells when there is room for this much. Another writer may fill it first.
    Limited(usize),
}

impl Way {
    /// `kind` is the type of the file, as in `st_mode`.
    fn to(stderr: BorrowedFd, kind: libc::mode_t) -> Way {
        if [libc::S_IFIFO, libc::S_IFCHR].contains(&kind) {
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            if let Ok(own) = open("/proc/self/fd/2", flags, Mode::empty()) {
                return Way::Own(own);
            }
        }
        match kind {
            libc::S_IFIFO => Way::Pipe,
            libc::S_IFSOCK => Way::Socket,
            _ if stderr.is_terminal() => Way::Limited(TERMINAL_ROOM),
            _ => Way::Limited(PIPE_BUF),
        }
    }
}

impl std::io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Fills closed standard descriptors until the exec, so that no file that rdma-init opens gets their numbers
/// and then its messages. They are close-on-exec: the command finds them closed, as they were.
pub(crate) fn reserve_closed() {
    for number in 0..=2 {
        // SAFETY: only F_GETFD is asked of the number, which may be closed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if fcntl(fd, FcntlArg::F_GETFD) == Err(Errno::EBADF)
            // This needs no /dev/null, and reads and writes fail as on a closed descriptor.
            && let Ok(place) = open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        {
            // The kernel returns the lowest free number, which is this one.
            std::mem::forget(place);
        }
    }
}

/// Returns standard input without the standard library's buffer.
pub(crate) fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the descriptor is always open, because `reserve_closed` fills it.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

/// Closes every descriptor from 3 up except these. PID 1 must not keep files, pipes and sockets open that
/// were meant for the command.
pub(crate) fn close_inherited(keep: &mut [i32]) {
    keep.sort();
    let mut first = 3u32;
    for &fd in keep.iter() {
        let Ok(fd) = u32::try_from(fd) else { continue };
        if fd >= first {
            if fd > first {
                close_range(first, fd - 1);
            }
            first = fd + 1;
        }
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the descriptors belong to the process that started us; none of ours is in
    // the range, as the caller named those.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == -1 {
        close_one_by_one(first, last);
    }
}

/// Closes the range one by one, for Linux before 5.9 or a seccomp filter that does not allow the call.
fn close_one_by_one(first: u32, last: u32) {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(Result::ok);
    let open: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| (first..=last).contains(fd)) {
        // SAFETY: as above. The directory's own descriptor is closed already, and closing a
        // number that is free does nothing.
        unsafe { libc::close(fd.cast_signed()) };
    }
}
