//! Makes one of the program's system calls fail.
//!
//! A seccomp filter passes the calls to a thread of the test, which counts the program's calls and allows all
//! except one of them. So the program can be PID 1, which would be impossible with a tracer in its namespace.
//!
//! Errors that the kernel cannot return in that place are left out: EFAULT, EBADF and EINVAL, which indicate
//! a bug of the caller, and ECHILD while there is a child. An older kernel or a sandbox returns ENOSYS and
//! EPERM for a call that it does not support or allow.

use std::io::Write;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::hang::{SEND, answering, go_on, install, receive};
use super::running::send;

/// A system call with its name and its errors, the likely ones first.
pub type Call = (libc::c_long, &'static str, &'static [i32]);

macro_rules! calls {
    ($($name:ident $call:ident: $($error:ident)*;)*) => {
        &[$((libc::$call, stringify!($name), &[$(libc::$error),*])),*]
    };
}

/// The list omits brk(2), which returns no error to the program; close(2), which closes the descriptor even
/// if it returns an error; and signal masks and handlers, futex(2), exit(2) and sigreturn(2), which do not
/// fail.
const CALLS: &[Call] = calls! {
    openat SYS_openat: ENOENT EACCES EMFILE ELOOP EINTR ENFILE ENOMEM ENOSPC EROFS ENOTDIR EEXIST ENXIO ENODEV EPERM EOVERFLOW EDQUOT EBUSY ETXTBSY EAGAIN ENAMETOOLONG EOPNOTSUPP EIO ENOSYS;
    read SYS_read: EIO EINTR EAGAIN EISDIR EINVAL EPERM;
    pread64 SYS_pread64: EIO EINTR EAGAIN EISDIR EPERM;
    readv SYS_readv: EIO EINTR EAGAIN EPERM;
    write SYS_write: ENOSPC EIO EINTR EAGAIN EPIPE EDQUOT EFBIG EPERM;
    pwrite64 SYS_pwrite64: ENOSPC EIO EINTR EDQUOT EFBIG EPERM;
    writev SYS_writev: ENOSPC EIO EINTR EAGAIN EPIPE EPERM;
    lseek SYS_lseek: ESPIPE EINVAL EOVERFLOW EPERM;
    fstat SYS_fstat: ENOMEM EOVERFLOW EPERM;
    newfstatat SYS_newfstatat: ENOENT EACCES ELOOP ENOMEM ENOTDIR EOVERFLOW EPERM;
    statx SYS_statx: ENOSYS EPERM ENOENT EACCES ELOOP ENOMEM ENOTDIR;
    statfs SYS_statfs: ENOSYS EACCES EINTR EIO ELOOP ENOENT ENOMEM EPERM;
    fstatfs SYS_fstatfs: ENOSYS EINTR EIO ENOMEM EPERM;
    faccessat SYS_faccessat: EACCES ENOENT ELOOP ENOTDIR EROFS EIO ENOMEM EPERM;
    faccessat2 SYS_faccessat2: ENOSYS EACCES ENOENT ELOOP ENOTDIR EROFS EPERM;
    getdents64 SYS_getdents64: ENOENT ENOTDIR EIO EPERM;
    readlinkat SYS_readlinkat: ENOENT EACCES EINVAL EIO ELOOP ENOMEM ENOTDIR EPERM;
    mkdirat SYS_mkdirat: EACCES EROFS EEXIST ENOSPC EDQUOT ENOENT ENOMEM EPERM;
    mknodat SYS_mknodat: EPERM EACCES EEXIST ENOSPC EROFS;
    unlinkat SYS_unlinkat: EACCES EBUSY EIO ENOENT EPERM EROFS EISDIR;
    renameat SYS_renameat: EACCES EBUSY ENOSPC EXDEV EROFS ENOENT EPERM EDQUOT EISDIR;
    renameat2 SYS_renameat2: ENOSYS EINVAL EACCES EBUSY ENOSPC EROFS ENOENT EPERM;
    fchmod SYS_fchmod: EPERM EIO EROFS;
    fchown SYS_fchown: EPERM EIO EROFS;
    fsync SYS_fsync: EIO EINVAL ENOSPC EROFS EDQUOT;
    ftruncate SYS_ftruncate: EINTR EPERM EIO EFBIG;
    fcntl SYS_fcntl: EMFILE EPERM EAGAIN EINTR;
    dup3 SYS_dup3: EMFILE EBUSY EINTR EPERM;
    ioctl SYS_ioctl: ENOTTY EPERM;
    poll SYS_ppoll: EINTR ENOMEM EPERM;
    pipe2 SYS_pipe2: EMFILE ENFILE EPERM;
    eventfd2 SYS_eventfd2: EMFILE ENFILE ENODEV ENOMEM ENOSYS EPERM;
    signalfd4 SYS_signalfd4: EMFILE ENFILE ENODEV ENOMEM ENOSYS EPERM;
    memfd_create SYS_memfd_create: EMFILE ENFILE ENOMEM EINVAL ENOSYS EPERM;
    pidfd_open SYS_pidfd_open: EMFILE ENFILE ENODEV ENOMEM ESRCH ENOSYS EPERM;
    close_range SYS_close_range: ENOSYS EMFILE ENOMEM EPERM;
    clone SYS_clone: EAGAIN ENOMEM EPERM;
    clone3 SYS_clone3: ENOSYS EAGAIN ENOMEM EPERM;
    execve SYS_execve: ENOENT EACCES EIO ELOOP EMFILE ENFILE ENOMEM ENOTDIR EPERM ETXTBSY E2BIG EAGAIN ENOEXEC EISDIR ELIBBAD;
    wait4 SYS_wait4: EINTR;
    waitid SYS_waitid: EINTR ENOSYS;
    kill SYS_kill: EPERM ESRCH;
    tgkill SYS_tgkill: EAGAIN EPERM ESRCH;
    rt_sigtimedwait SYS_rt_sigtimedwait: EINTR EPERM;
    sigaltstack SYS_sigaltstack: ENOMEM EPERM;
    setpgid SYS_setpgid: EACCES EPERM ESRCH;
    prctl SYS_prctl: EPERM EINVAL EACCES;
    prlimit64 SYS_prlimit64: EPERM ENOSYS;
    capget SYS_capget: EPERM;
    capset SYS_capset: EPERM;
    mmap SYS_mmap: ENOMEM EACCES EAGAIN ENFILE EPERM;
    mremap SYS_mremap: ENOMEM EAGAIN EPERM;
    mprotect SYS_mprotect: ENOMEM EACCES EPERM;
    munmap SYS_munmap: ENOMEM EPERM;
    madvise SYS_madvise: EAGAIN EIO ENOMEM EPERM;
    mlock2 SYS_mlock2: ENOMEM EPERM EAGAIN ENOSYS;
    sched_getaffinity SYS_sched_getaffinity: ENOSYS EPERM;
    getrandom SYS_getrandom: ENOSYS EPERM EINTR;
    uname SYS_uname: EPERM;
    sysinfo SYS_sysinfo: EPERM;
    chdir SYS_chdir: EACCES EIO ELOOP ENOENT ENOMEM EPERM;
    getcwd SYS_getcwd: EACCES ENOENT ERANGE ENOMEM EPERM;
    timer_create SYS_timer_create: EAGAIN ENOMEM ENOTSUP EPERM;
    timer_settime SYS_timer_settime: EPERM;
    timer_delete SYS_timer_delete: EPERM;
    socket SYS_socket: EAFNOSUPPORT EACCES EMFILE ENFILE ENOBUFS ENOMEM EPROTONOSUPPORT EPERM;
    socketpair SYS_socketpair: EMFILE ENFILE EOPNOTSUPP ENOMEM EPERM;
    bind SYS_bind: EACCES EADDRINUSE EADDRNOTAVAIL ENOMEM EPERM;
    listen SYS_listen: EADDRINUSE EPERM;
    connect SYS_connect: ECONNREFUSED EACCES EADDRNOTAVAIL EAGAIN EINTR ENETUNREACH ETIMEDOUT EPERM;
    accept4 SYS_accept4: EAGAIN ECONNABORTED EINTR EMFILE ENFILE ENOBUFS ENOMEM EPROTO EPERM;
    getsockname SYS_getsockname: ENOBUFS EPERM;
    getpeername SYS_getpeername: ENOBUFS ENOTCONN EPERM;
    setsockopt SYS_setsockopt: ENOPROTOOPT EPERM;
    getsockopt SYS_getsockopt: ENOPROTOOPT EPERM;
    sendto SYS_sendto: EAGAIN ECONNRESET EINTR EMSGSIZE ENOBUFS ENOMEM EPIPE EACCES EPERM;
    sendmsg SYS_sendmsg: EAGAIN ECONNRESET EINTR EMSGSIZE ENOBUFS ENOMEM EPIPE EACCES EPERM;
    recvfrom SYS_recvfrom: EAGAIN ECONNREFUSED EINTR ENOMEM ENOTCONN EPERM;
    recvmsg SYS_recvmsg: EAGAIN ECONNREFUSED EINTR ENOMEM ENOTCONN EPERM;
    shutdown SYS_shutdown: ENOTCONN ENOBUFS EPERM;
    epoll_create1 SYS_epoll_create1: EMFILE ENFILE ENOMEM EPERM;
    epoll_ctl SYS_epoll_ctl: ENOMEM ENOSPC EPERM;
    epoll_pwait SYS_epoll_pwait: EINTR EPERM;
};

/// Calls that arm64 does not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[Call] = calls! {
    open SYS_open: ENOENT EACCES EMFILE;
    stat SYS_stat: ENOENT EACCES ENOMEM;
    lstat SYS_lstat: ENOENT EACCES ENOMEM;
    access SYS_access: EACCES ENOENT;
    poll SYS_poll: EINTR ENOMEM EPERM;
    readlink SYS_readlink: ENOENT EACCES EINVAL EIO ELOOP ENOMEM ENOTDIR EPERM;
    mkdir SYS_mkdir: EACCES EROFS EEXIST ENOSPC EPERM;
    rename SYS_rename: EACCES EBUSY ENOSPC EXDEV EROFS ENOENT EPERM;
    unlink SYS_unlink: EACCES EBUSY EIO ENOENT EPERM EROFS;
    dup2 SYS_dup2: EMFILE EBUSY EINTR EPERM;
    epoll_wait SYS_epoll_wait: EINTR EPERM;
    fork SYS_fork: EAGAIN ENOMEM;
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[Call] = &[];

fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(OLD)
}

/// Returns the call with its name and its errors.
pub fn call_of(place: Place) -> &'static Call {
    calls().find(|(number, ..)| *number == place.call).expect("a call that is handed over")
}

/// One of the program's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which of the program's processes makes it: they are numbered in the order of their first calls, and
    /// PID 1 is 0.
    pub process: usize,
    pub call: libc::c_long,
    /// How many calls of this kind the process has made before.
    pub nth: usize,
}

/// The program's calls, in order.
pub type Calls = Receiver<Vec<Place>>;

/// More processes and calls than a start makes.
const PROCESSES: usize = 64;
const NUMBERS: usize = 512;
const LONGEST: usize = 100_000;

/// Returns a function that installs a filter for [`CALLS`] in the thread that then starts the program, and
/// the list of calls that the program has made by its end. The call at `fails` returns its error and has no
/// effect.
pub fn fail(program: &Path, fails: Option<(Place, i32)>) -> (impl FnOnce() + Send + use<>, Calls) {
    watch(program, fails, None)
}

/// Does the same as [`fail`], but all calls go on, and the one at `place` sends this signal to all of the program's
/// processes.
pub fn strike(program: &Path, place: Place, signal: i32) -> impl FnOnce() + Send + use<> {
    watch(program, None, Some((place, signal))).0
}

fn watch(
    program: &Path,
    fails: Option<(Place, i32)>,
    strikes: Option<(Place, i32)>,
) -> (impl FnOnce() + Send + use<>, Calls) {
    let of_program = std::fs::metadata(program).expect("the program is there");
    let mut server = Server {
        program: (of_program.dev(), of_program.ino()),
        fails,
        strikes,
        pids: [0; PROCESSES],
        counts: vec![[0; NUMBERS]; PROCESSES].into_boxed_slice(),
        seen: Vec::with_capacity(LONGEST),
    };
    let (send_seen, seen) = channel();
    let answer = answering(move |listener| {
        while server.serve(&listener) {}
        let _ = send_seen.send(server.seen);
    });
    let filter = move || {
        let numbers: Vec<libc::c_long> = calls().map(|(number, ..)| *number).collect();
        let listener = install(&numbers, 0).expect("a seccomp filter can be installed");
        answer(listener);
    };
    (filter, seen)
}

/// Answers the calls. It allocates nothing while it answers: the thread that starts the program has the
/// filter, too, and may wait for an answer while it holds a lock of the allocator.
struct Server {
    /// The device and inode of the program.
    program: (u64, u64),
    fails: Option<(Place, i32)>,
    /// The call at which all processes get a signal.
    strikes: Option<(Place, i32)>,
    pids: [u32; PROCESSES],
    counts: Box<[[usize; NUMBERS]]>,
    seen: Vec<Place>,
}

impl Server {
    /// Answers one call; returns `false` if no process has the filter any more.
    fn serve(&mut self, listener: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            return true;
        }
        if !fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            return false;
        }
        // The calling process may have ended.
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
        if let Some((_, signal)) = self.strikes.filter(|(strikes, _)| *strikes == place) {
            // The PID of one that has ended may be another program's by now.
            let ours = self.pids.iter().filter(|pid| **pid != 0 && self.is_of_program(**pid));
            ours.for_each(|pid| send(pid.cast_signed(), signal));
        }
        self.fails.filter(|(fails, _)| *fails == place).map(|(_, errno)| errno)
    }

    /// Returns whether the process runs the program: before, it may be a shell, and afterwards the command.
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

/// Makes a call fail with this error.
fn give(listener: &OwnedFd, call: u64, errno: i32) {
    // SAFETY: the structure is plain data, and has the size that the request names.
    unsafe {
        let mut answer: libc::seccomp_notif_resp = zeroed();
        answer.id = call;
        answer.error = -errno;
        libc::ioctl(listener.as_raw_fd(), SEND, &answer);
    }
}
