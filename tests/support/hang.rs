//! Makes one file hang for every process that opens or executes it, like a dead network file system or a
//! driver whose firmware does not answer.
//!
//! A seccomp filter passes every openat(2) and execve(2) to a thread of the test. The thread allows all of
//! them except those for these paths, which it never answers, or answers only when the test wants it.

use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::DEADLINE;

/// Paths that hang, as the program passes them to openat(2) or execve(2).
pub struct Hang {
    paths: Vec<String>,
    /// How many calls are allowed before one hangs.
    passes: usize,
    /// Until then, all calls go on.
    armed: Arc<AtomicBool>,
    flags: libc::c_ulong,
    hit: Sender<i32>,
    hits: Receiver<i32>,
    released: Arc<EventFd>,
}

impl Hang {
    /// Returns a call that hangs until its process gets a signal that has a handler or kills the process.
    pub fn interruptible(path: &str) -> Hang {
        Hang::new(path, 0)
    }

    /// Returns a call that hangs until its process gets a signal that kills it, as on NFS, FUSE and autofs.
    pub fn killable(path: &str) -> Hang {
        Hang::new(path, libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
    }

    fn new(path: &str, flags: libc::c_ulong) -> Hang {
        let (hit, hits) = channel();
        let released = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap());
        let armed = Arc::new(AtomicBool::new(true));
        Hang { paths: vec![path.to_owned()], passes: 0, armed, flags, hit, hits, released }
    }

    /// Makes another path hang as well.
    pub fn and(mut self, path: &str) -> Hang {
        self.paths.push(path.to_owned());
        self
    }

    /// Allows the first call: the next one hangs, which may be another process's.
    pub fn but_the_first(mut self) -> Hang {
        self.passes = 1;
        self
    }

    /// Lets all calls go on before [`Hang::arm`].
    pub fn once_armed(self) -> Hang {
        self.armed.store(false, Ordering::SeqCst);
        self
    }

    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Waits until some process hangs, and returns its number.
    #[track_caller]
    pub fn wait(&self) -> i32 {
        self.hits
            .recv_timeout(DEADLINE)
            .unwrap_or_else(|_| panic!("no process opened or executed one of {:?}", self.paths))
    }

    /// Allows all calls that hang, and all later ones.
    pub fn release(&self) {
        self.released.write(1).unwrap();
    }

    /// Returns a function that installs the filter. The thread that then starts the program must call it.
    pub fn filter(&self) -> impl FnOnce() + Send + use<> {
        let (paths, flags) = (self.paths.clone(), self.flags);
        let armed = Arc::clone(&self.armed);
        let mut calls =
            Calls { paths, passes: self.passes, armed, hit: self.hit.clone(), hanging: Vec::new() };
        let released = Arc::clone(&self.released);
        let answer = answering(move |listener| while let Ok(true) = calls.serve(&listener, &released) {});
        move || {
            let listener = install(&[libc::SYS_openat, libc::SYS_execve], flags)
                .expect("a seccomp filter can be installed");
            answer(listener);
        }
    }
}

/// Starts a thread that answers the calls of a filter which is not installed yet: otherwise it would inherit the
/// filter. Returns a function that gives it the listener. That takes neither memory nor a filtered call: the thread
/// with the filter may wait for an answer while it holds a lock of the allocator.
pub(super) fn answering(work: impl FnOnce(OwnedFd) + Send + 'static) -> impl FnOnce(OwnedFd) + Send {
    const NONE: RawFd = -1;
    let given = Arc::new(AtomicI32::new(NONE));
    let taken = Arc::clone(&given);
    let thread = thread::spawn(move || {
        loop {
            match taken.load(Ordering::SeqCst) {
                NONE => thread::park(),
                // SAFETY: the other thread has given this descriptor up.
                listener => return work(unsafe { OwnedFd::from_raw_fd(listener) }),
            }
        }
    });
    let thread = thread.thread().clone();
    move |listener| {
        given.store(listener.into_raw_fd(), Ordering::SeqCst);
        thread.unpark();
    }
}

/// Returns the program of a filter that gives this answer to these calls.
pub(super) fn filter(calls: &[libc::c_long], answer: u32) -> Vec<libc::sock_filter> {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let code = |code: u32| u16::try_from(code).expect("a small number");
    let is = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let give = code(libc::BPF_RET | libc::BPF_K);
    let mut program = vec![statement(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0)];
    for call in calls {
        let number = u32::try_from(*call).expect("a small number");
        program.push(libc::sock_filter { jf: 1, ..statement(is, number) });
        program.push(statement(give, answer));
    }
    program.push(statement(give, libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs a filter that passes these calls to the returned descriptor.
pub(super) fn install(calls: &[libc::c_long], flags: libc::c_ulong) -> io::Result<OwnedFd> {
    let mut program = filter(calls, libc::SECCOMP_RET_USER_NOTIF);
    let length = u16::try_from(program.len()).expect("a short program");
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let flags = flags | libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program outlives the call; the result is a new descriptor.
    unsafe {
        match libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(i32::try_from(fd).expect("a descriptor"))),
        }
    }
}

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`: `_IOWR('!', 0 and 1, ...)`.
const RECEIVE: libc::c_ulong = request(0, size_of::<libc::seccomp_notif>());
pub(super) const SEND: libc::c_ulong = request(1, size_of::<libc::seccomp_notif_resp>());

const fn request(number: u64, size: usize) -> libc::c_ulong {
    3 << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | number
}

/// The paths that must hang, and the calls that are hanging.
struct Calls {
    /// The paths that hang; the list is empty once they are released.
    paths: Vec<String>,
    /// How many calls for these paths are still allowed.
    passes: usize,
    armed: Arc<AtomicBool>,
    hit: Sender<i32>,
    hanging: Vec<u64>,
}

impl Calls {
    /// Answers one call, or leaves it hanging; returns `false` if no process has the filter any more.
    fn serve(&mut self, listener: &OwnedFd, released: &EventFd) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(
                released.as_fd(),
                if self.paths.is_empty() { PollFlags::empty() } else { PollFlags::POLLIN },
            ),
        ];
        poll(&mut fds, PollTimeout::NONE)?;
        let has_come = |fd: &PollFd| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        if has_come(&fds[1]) {
            self.paths.clear();
            self.hanging.drain(..).for_each(|call| go_on(listener, call));
            return Ok(true);
        }
        if !has_come(&fds[0]) {
            return Ok(false);
        }
        // The calling process may have ended.
        let Some(call) = receive(listener) else { return Ok(true) };
        let hangs = self.armed.load(Ordering::SeqCst)
            && opened(&call).is_some_and(|opened| self.paths.iter().any(|path| opened == path.as_bytes()));
        if hangs && self.passes == 0 {
            self.hanging.push(call.id);
            let _ = self.hit.send(call.pid.cast_signed());
        } else {
            self.passes = self.passes.saturating_sub(usize::from(hangs));
            go_on(listener, call.id);
        }
        Ok(true)
    }
}

/// Returns the call that waits for an answer; `None` if its process has ended.
pub(super) fn receive(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    // SAFETY: the structure is plain data, and has the size that the request names.
    unsafe {
        let mut call: libc::seccomp_notif = zeroed();
        (libc::ioctl(listener.as_raw_fd(), RECEIVE, &mut call) == 0).then_some(call)
    }
}

/// Lets the kernel execute the call.
pub(super) fn go_on(listener: &OwnedFd, call: u64) {
    // SAFETY: as above.
    unsafe {
        let mut answer: libc::seccomp_notif_resp = zeroed();
        answer.id = call;
        answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        libc::ioctl(listener.as_raw_fd(), SEND, &answer);
    }
}

/// Returns the path in the call, read from the calling process's memory.
fn opened(call: &libc::seccomp_notif) -> Option<Vec<u8>> {
    let memory = fs::File::open(format!("/proc/{}/mem", call.pid)).ok()?;
    let mut path = vec![0; 256];
    let place = if i64::from(call.data.nr) == libc::SYS_execve { 0 } else { 1 };
    let length = memory.read_at(&mut path, call.data.args[place]).ok()?;
    path.truncate(path[..length].iter().position(|byte| *byte == 0)?);
    Some(path)
}
