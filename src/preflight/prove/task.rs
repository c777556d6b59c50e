//! A piece of work in its own process, which sends its result over a socket. If it hangs, it is killed
//! without affecting any other task.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::SIGKILL;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json;
use crate::sys::fork::{self, Reaped};
use crate::sys::signals::{self, without_signals_of_writing};
use crate::sys::worker::{self, ReadState};

/// The largest result, in bytes.
const LIMIT: usize = 1024 * 1024;

/// The longest time for a task: a clock cannot represent an endless one.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A running process. It is killed when this value is dropped.
///
/// This process must be single-threaded, and must not reap children elsewhere meanwhile.
pub(in crate::preflight) struct Task {
    pid: Pid,
    socket: UnixStream,
    told: Vec<u8>,
    deadline: Instant,
    is_over: bool,
}

/// Why a task has no result.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::preflight) enum TaskError {
    /// The task took longer than it may.
    Late,
    /// The task ended without a result.
    Ended,
}

impl Task {
    /// Starts the work, which may take this long and needs these descriptors.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if the kernel cannot create another process.
    pub(in crate::preflight) fn start<T: Serialize>(
        limit: Duration,
        keep: &[RawFd],
        work: impl FnOnce() -> T,
    ) -> Result<Task, Errno> {
        let (pid, socket) = worker::start(keep, |socket| tell(socket, &work()))?;
        Ok(Task {
            pid,
            socket,
            told: Vec::new(),
            deadline: Instant::now() + limit.min(LONGEST),
            is_over: false,
        })
    }

    /// Returns a descriptor that is readable when the task has sent something, or has ended.
    pub(in crate::preflight) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns when the task will be killed.
    pub(in crate::preflight) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the result, if it has arrived; `None` while the task is running.
    pub(in crate::preflight) fn result<T: DeserializeOwned>(&mut self) -> Option<Result<T, TaskError>> {
        let is_told = self.listen();
        let is_late = Instant::now() >= self.deadline;
        if !is_told && !is_late {
            return None;
        }
        self.end();
        match json::read(&self.told) {
            Ok(found) if is_told => Some(Ok(found)),
            _ if is_told => Some(Err(TaskError::Ended)),
            _ => Some(Err(TaskError::Late)),
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::preflight) fn wait<T: DeserializeOwned>(mut self) -> Result<T, TaskError> {
        loop {
            if let Some(result) = self.result() {
                return result;
            }
            // Rounded up, so that the wait does not end just before the deadline.
            let left = self.deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], left);
        }
    }

    /// Returns whether the task has sent everything.
    fn listen(&mut self) -> bool {
        let told = &mut self.told;
        let read = worker::read(&mut self.socket, |bytes| {
            let fits = told.len() + bytes.len() <= LIMIT;
            if fits {
                told.extend_from_slice(bytes);
            }
            fits
        });
        read != ReadState::More
    }

    /// Kills the process, and reaps it unless it hangs in the kernel even then.
    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let _ = signals::kill(self.pid, SIGKILL);
        let until = Instant::now() + Duration::from_secs(1);
        while matches!(fork::reap_child(self.pid), Reaped::Running | Reaped::Stopped(..)) {
            if Instant::now() >= until {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end();
    }
}

fn tell(mut socket: UnixStream, found: &impl Serialize) -> bool {
    let line = json::line(found);
    let told = without_signals_of_writing(|| socket.write_all(&line));
    let _ = socket.shutdown(Shutdown::Both);
    told.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_returns_its_result_or_an_error() {
        let long = Duration::from_secs(60);
        let start = |limit, work: fn() -> u32| Task::start(limit, &[], work).unwrap();
        assert_eq!(start(long, || 7).wait(), Ok(7));
        assert_eq!(start(long, || fork::exit_now(0)).wait::<u32>(), Err(TaskError::Ended));
        let hang: fn() -> u32 = || fork::wait_to_be_killed();
        assert_eq!(start(Duration::from_millis(50), hang).wait::<u32>(), Err(TaskError::Late));
    }
}
