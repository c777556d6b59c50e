//! Makes one system call of the program fail.
//!
//! A seccomp filter hands the calls to a thread of the test, which counts those of the program and lets all of
//! them go on but one. So the program can be PID 1, which no tracer in its namespace leaves it.

use std::io::Write;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::hang::{SEND, go_on, install, receive};

/// A call of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which process of the program makes it: they are numbered in the order of their first calls, and PID 1
    /// is 0.
    pub process: usize,
    pub call: libc::c_long,
    /// How many calls of this kind the process has made before.
    pub nth: usize,
}

/// The program's calls, in their order.
pub type Calls = Receiver<Vec<Place>>;

/// More processes and calls than a start has.
const PROCESSES: usize = 64;
const NUMBERS: usize = 512;
const LONGEST: usize = 100_000;

/// Returns a function that installs a filter for these calls in the thread that then starts the program, and what
/// the program has called by its end. The call at `fails` gives its error, and has no effect.
pub fn fail(
    program: &Path,
    calls: Vec<libc::c_long>,
    fails: Option<(Place, i32)>,
) -> (impl FnOnce() + Send + use<>, Calls) {
    let of_program = std::fs::metadata(program).expect("the program is there");
    let mut server = Server {
        program: (of_program.dev(), of_program.ino()),
        fails,
        pids: [0; PROCESSES],
        counts: Box::new([[0; NUMBERS]; PROCESSES]),
        seen: Vec::with_capacity(LONGEST),
    };
    let (send, receive) = channel::<OwnedFd>();
    let (send_seen, seen) = channel();
    // This thread is started before the filter is installed, which it would inherit.
    thread::spawn(move || {
        let Ok(listener) = receive.recv() else { return };
        while server.serve(&listener) {}
        let _ = send_seen.send(server.seen);
    });
    let filter = move || {
        let listener = install(&calls, 0).expect("a seccomp filter can be installed");
        send.send(listener).expect("the thread that answers runs");
    };
    (filter, seen)
}

/// It allocates nothing while it answers: the thread that starts the program has the filter, too, and may wait for
/// an answer while it holds a lock of the allocator.
struct Server {
    /// The device and inode of the program.
    program: (u64, u64),
    fails: Option<(Place, i32)>,
    pids: [u32; PROCESSES],
    counts: Box<[[usize; NUMBERS]; PROCESSES]>,
    seen: Vec<Place>,
}

impl Server {
    /// Answers one call; `false` if no process has the filter any more.
    fn serve(&mut self, listener: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            return true;
        }
        if !fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            return false;
        }
        // The calling process may be gone.
        let Some(call) = receive(listener) else { return true };
        match self.error(&call) {
            None => go_on(listener, call.id),
            Some(errno) => give(listener, call.id, errno),
        }
        true
    }

    fn error(&mut self, call: &libc::seccomp_notif) -> Option<i32> {
        if !self.is_of_program(call.pid) {
            return None;
        }
        let process = self.pids.iter().position(|pid| [0, call.pid].contains(pid))?;
        self.pids[process] = call.pid;
        let count = self.counts[process].get_mut(usize::try_from(call.data.nr).ok()?)?;
        let place = Place { process, call: call.data.nr.into(), nth: *count };
        *count += 1;
        if self.seen.len() < LONGEST {
            self.seen.push(place);
        }
        self.fails.filter(|(fails, _)| *fails == place).map(|(_, errno)| errno)
    }

    /// Whether the process runs the program: it may be a shell before, or the command afterwards.
    fn is_of_program(&self, pid: u32) -> bool {
        let mut path = [0; 32];
        let is_whole = write!(&mut path[..31], "/proc/{pid}/exe").is_ok();
        // SAFETY: the path ends with a zero, and the structure is plain data that the call fills.
        unsafe {
            let mut status: libc::stat = zeroed();
            is_whole
                && libc::stat(path.as_ptr().cast(), &raw mut status) == 0
                && (status.st_dev, status.st_ino) == self.program
        }
    }
}

/// Lets a call fail with this error.
fn give(listener: &OwnedFd, call: u64, errno: i32) {
    // SAFETY: the structure is plain data, and has the size that the request names.
    unsafe {
        let mut answer: libc::seccomp_notif_resp = zeroed();
        answer.id = call;
        answer.error = -errno;
        libc::ioctl(listener.as_raw_fd(), SEND, &answer);
    }
}
