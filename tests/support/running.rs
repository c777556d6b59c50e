//! Starts and watches the program, either as PID 1 of a PID namespace with its own /proc, or in place.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::ptr::null;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use super::clock::{Clock, End};
use super::hang::Hang;
pub use super::process::from_scratch;
use super::{DEADLINE, binary, poll_for, poll_until, process, status_field};

/// Does the same as [`process::rdma_init`], and captures the output.
pub fn rdma_init<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = process::rdma_init(arguments);
    without_watcher_in_qemu(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Turns the watcher off in QEMU, which cannot start it: each start on a host with RDMA would say so.
pub fn without_watcher_in_qemu(command: &mut Command) {
    const EM_AARCH64: u16 = 183;
    if cfg!(target_arch = "x86_64") && machine() == Some(EM_AARCH64) {
        command.env("RDMA_INIT_WATCH", "off");
    }
}

/// Returns the number in the program's ELF file of the machine that it is for.
pub(super) fn machine() -> Option<u16> {
    let mut head = [0; 20];
    fs::File::open(binary()).and_then(|mut file| file.read_exact(&mut head)).ok()?;
    Some(u16::from_le_bytes([head[18], head[19]]))
}

/// Returns the command for the program that starts a shell script.
pub fn shell(script: &str) -> Command {
    rdma_init(["--", "sh", "-c", script])
}

/// Returns a shell that runs `first` and then becomes this command.
pub fn after(first: &str, command: Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.args(["-ec", &format!("{first} \"$@\""), "sh"]).arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    from_scratch(&mut shell);
    shell
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// When it ended, on its clock.
    pub at: Duration,
    /// The sum of its own timeouts that expired, on its clock; zero by the real clock, which does not know it.
    pub waited: Duration,
}

impl Ended {
    /// Expects that it ended no sooner than this time after this moment on its clock, and did not wait much longer. A
    /// busy machine may hold up its end, but not what it waits for.
    #[track_caller]
    pub fn expect_time(self, since: Duration, time: Duration) -> Ended {
        assert!(self.at - since >= time && self.waited < 2 * time, "{time:?} after {since:?}: {self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }
}

/// A running program. Dropping this value kills it with its whole PID namespace.
pub struct Running {
    pub pid: i32,
    stdout: Stream,
    stderr: Stream,
    clock: Clock,
    status: Receiver<End>,
    ended: Option<End>,
}

/// Starts a program as PID 1.
pub fn as_pid_1(command: Command) -> Running {
    start(command, true, Clock::real(), None::<fn()>)
}

/// Flags of the program, and a function that starts it with them.
pub type Way = (&'static [&'static str], fn(Command) -> Running);

/// Starts a program in place, that is, not as PID 1.
pub fn in_place(command: Command) -> Running {
    start(command, false, Clock::real(), None::<fn()>)
}

/// Starts a program as PID 1 or in place. Opening or executing certain paths hangs.
pub fn hanging(command: Command, as_pid_1: bool, hang: &Hang) -> Running {
    start(command, as_pid_1, Clock::real(), Some(hang.filter()))
}

/// Starts a program as PID 1 or in place, in a thread that first installs this filter.
pub fn filtered(command: Command, as_pid_1: bool, install: impl FnOnce() + Send + 'static) -> Running {
    start(command, as_pid_1, Clock::real(), Some(install))
}

/// Starts the program. One thread starts it and waits for it: PID namespaces and seccomp filters belong to a
/// thread, and the parent-death signal is sent when that thread ends.
pub(super) fn start(
    mut command: Command,
    as_pid_1: bool,
    clock: Clock,
    filter: Option<impl FnOnce() + Send + 'static>,
) -> Running {
    let parent = std::process::id();
    // SAFETY: the closure makes system calls only, with constants.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if as_pid_1 {
                check(libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), 0, null()))?;
            } else if libc::getppid().cast_unsigned() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    let (send_child, child) = channel();
    let own_clock = clock.clone();
    let (send_status, status) = channel();
    thread::spawn(move || {
        let traced = clock.follow(&mut command);
        if as_pid_1 {
            // SAFETY: the call affects this thread alone.
            check(unsafe { libc::unshare(libc::CLONE_NEWPID) })
                .and_then(|()| leave_files_of_the_machine())
                .expect("a PID namespace can be made: these tests run as root");
        }
        if let Some(install) = filter {
            install();
        }
        let mut child = command.spawn().expect("the program starts");
        let pid = child.id().cast_signed();
        let _ = send_child.send((pid, child.stdout.take(), child.stderr.take()));
        // This closes the test's copies of the descriptors that the program got.
        drop(command);
        let end = match traced {
            Some(end) => end.recv().expect("it has been traced"),
            None => {
                let status = child.wait().expect("it can be waited for");
                End { status, at: clock.elapsed(), waited: Duration::ZERO }
            }
        };
        let _ = send_status.send(end);
    });
    let (pid, stdout, stderr) = child.recv().expect("the program starts");
    Running {
        pid,
        stdout: Stream::of(stdout),
        stderr: Stream::of(stderr),
        clock: own_clock,
        status,
        ended: None,
    }
}

/// Moves this thread into a mount namespace of its own, which does not have the files that another start of the program
/// may have written on this machine.
fn leave_files_of_the_machine() -> io::Result<()> {
    // SAFETY: system calls with strings that outlive them, which affect this thread alone.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(null(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_PRIVATE, null()))?;
        if fs::exists("/etc/nccl.conf")? {
            // The mount keeps the file when its name is gone.
            let empty = tempfile::NamedTempFile::new()?;
            let (file, conf) = (CString::new(empty.path().as_os_str().as_bytes())?, c"/etc/nccl.conf");
            check(libc::mount(file.as_ptr(), conf.as_ptr(), null(), libc::MS_BIND, null()))?;
        }
        if fs::exists("/run/rdma-init")? {
            let (tmpfs, state) = (c"tmpfs".as_ptr(), c"/run/rdma-init".as_ptr());
            check(libc::mount(tmpfs, state, tmpfs, 0, c"mode=755".as_ptr().cast()))?;
        }
    }
    Ok(())
}

fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Running {
    /// Waits until standard output contains this text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        if let Err(found) = self.stdout.wait_for(text, 1) {
            let errors = self.stderr.so_far();
            panic!("no {text:?} on standard output: {found:?}, standard error: {errors}");
        }
    }

    /// Waits until standard error contains this text.
    #[track_caller]
    pub fn wait_for_error(&mut self, text: &str) {
        self.wait_for_errors(text, 1);
    }

    /// Waits until standard error contains this text so many times.
    #[track_caller]
    pub fn wait_for_errors(&mut self, text: &str, count: usize) {
        if let Err(found) = self.stderr.wait_for(text, count) {
            panic!("not {count} times {text:?} on standard error: {found}");
        }
    }

    #[track_caller]
    pub fn kill(&self, signal: i32) {
        send(self.pid, signal);
    }

    /// Returns the process that PID 1 started, after waiting until it exists.
    #[track_caller]
    pub fn child(&self) -> i32 {
        poll_until("PID 1 has a child", || children(self.pid).first().copied())
    }

    /// Returns the process that PID 1 started, after waiting until it has become the command.
    #[track_caller]
    pub fn command(&self) -> i32 {
        command_of(self.pid)
    }

    /// Waits until PID 1 has nothing left to do but wait for signals.
    #[track_caller]
    pub fn rests(&self) {
        rests(self.pid);
    }

    /// Returns the time on its clock.
    pub fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Returns whether the program has ended, without waiting.
    pub fn has_ended(&mut self) -> bool {
        self.ended = self.ended.or_else(|| self.status.try_recv().ok());
        self.ended.is_some()
    }

    /// Waits for the end, at most for this time. Returns whether the program has ended.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        if self.ended.is_none() {
            self.ended = match self.status.recv_timeout(time) {
                Ok(end) => Some(end),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => panic!("what follows the program has failed"),
            };
        }
        self.ended.is_some()
    }

    /// Waits for the end. Panics after [`DEADLINE`].
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let until = Instant::now() + DEADLINE;
        while !self.ends_within(Duration::from_secs(1)) && Instant::now() < until {
            self.clock.pass_again();
        }
        if self.ended.is_none() {
            let states: Vec<String> =
                std::iter::once(self.pid).chain(children(self.pid)).map(describe).collect();
            self.kill(libc::SIGKILL);
            let (stdout, stderr) = (self.stdout.all(), self.stderr.all());
            panic!("no end within {DEADLINE:?}: {states:#?}\nstdout: {stdout}\nstderr: {stderr}");
        }
        let End { status, at, waited } = self.ended.expect("it has ended");
        Ended { status, stdout: self.stdout.all(), stderr: self.stderr.all(), at, waited }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            send(self.pid, libc::SIGKILL);
        }
    }
}

/// Returns the process that an init started, after waiting until it has become the command.
#[track_caller]
pub fn command_of(init: i32) -> i32 {
    let own = fs::read_link(format!("/proc/{init}/exe")).expect("the init runs");
    poll_until("the command runs", || {
        let child = *children(init).first()?;
        let exe = fs::read_link(format!("/proc/{child}/exe")).ok()?;
        (exe != own).then_some(child)
    })
}

/// Waits until an init has nothing left to do except wait for signals. While a process waits for a signal,
/// the kernel does not show the signal as blocked.
#[track_caller]
pub fn rests(init: i32) {
    poll_until("the init waits for signals", || is_at_rest(init).then_some(()));
}

/// Returns whether an init has nothing left to do at this moment except wait for signals.
pub fn is_at_rest(init: i32) -> bool {
    let status = status(init);
    let is = |field, what| status_field(&status, field).is_some_and(|value| value.starts_with(what));
    is("State", 'S') && is_clear(&status, "SigBlk")
}

fn is_clear(status: &str, mask: &str) -> bool {
    status_field(status, mask) == Some("0000000000000000")
}

/// Waits until an init has received the signals that were sent to it, so that the next one does not merge
/// with them.
#[track_caller]
pub fn has_taken_signals(init: i32) {
    poll_until("the init has taken the signal", || {
        let status = status(init);
        let sleeps = status_field(&status, "State")?.starts_with('S');
        (sleeps && status_field(&status, "ShdPnd")? == "0000000000000000").then_some(())
    });
}

pub fn send(pid: i32, signal: i32) {
    // SAFETY: kill takes plain numbers. Only the thread that then sends the status reaps a process.
    unsafe { libc::kill(pid, signal) };
}

pub fn status(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

pub fn children(pid: i32) -> Vec<i32> {
    children_of_thread(pid, pid)
}

pub(super) fn children_of_thread(pid: i32, thread: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Returns whether PID 1 has blocked signals or has forked.
pub fn is_in_main(pid: i32) -> bool {
    let blocks = status_field(&status(pid), "SigBlk").is_some_and(|mask| mask != "0000000000000000");
    blocks || !children(pid).is_empty()
}

/// Returns whether a process is still running; a zombie is not.
pub fn lives(pid: i32) -> bool {
    status_field(&status(pid), "State").is_some_and(|state| !state.starts_with('Z'))
}

/// Returns whether a signal has stopped a process.
pub fn is_stopped(pid: i32) -> bool {
    status_field(&status(pid), "State").is_some_and(|state| state.starts_with('T'))
}

#[track_caller]
pub fn wait_until_stopped(pid: i32) {
    poll_until(&format!("process {pid} is stopped"), || {
        (is_stopped(pid) || has_taken_stop(pid)).then_some(())
    });
}

/// Returns whether a traced process has received the SIGSTOP that was sent to it: the kernel does not show that it is
/// stopped.
fn has_taken_stop(pid: i32) -> bool {
    let status = status(pid);
    let is_pending = |field| {
        let pending = status_field(&status, field).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_none_or(|mask| mask & 1 << (libc::SIGSTOP - 1) != 0)
    };
    let is_traced = status_field(&status, "State").is_some_and(|state| state.starts_with('t'));
    is_traced && !is_pending("ShdPnd") && !is_pending("SigPnd")
}

/// Returns a process's descendants, with its children first.
pub fn descendants(pid: i32) -> Vec<i32> {
    let below = children(pid);
    let further: Vec<i32> = below.iter().flat_map(|child| descendants(*child)).collect();
    [below, further].concat()
}

/// Returns a process's open descriptors, each with its target.
pub fn descriptors(pid: i32) -> Vec<(i32, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
    let mut found: Vec<(i32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?.display().to_string()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// Waits until a process has exactly these descriptors, because a program that is starting briefly has
/// others. The error names the ones that it has.
pub fn has_descriptors(pid: i32, numbers: &[i32]) -> Result<(), String> {
    let has = |pid| descriptors(pid).iter().map(|(number, _)| *number).eq(numbers.iter().copied());
    let settled = poll_for(DEADLINE, || has(pid).then_some(()));
    settled.ok_or_else(|| format!("{:?} instead of {numbers:?}", descriptors(pid)))
}

fn describe(pid: i32) -> String {
    let status = status(pid);
    let wanted = ["Name", "State", "SigBlk", "ShdPnd"];
    let fields = wanted.map(|name| format!("{name} {}", status_field(&status, name).unwrap_or("?")));
    let descriptors = if status.is_empty() { Vec::new() } else { descriptors(pid) };
    format!("{}, {descriptors:?}", fields.join(", "))
}

pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The text that arrives on a pipe. A separate thread reads the pipe.
struct Stream {
    pieces: Receiver<Vec<u8>>,
    text: Vec<u8>,
}

impl Stream {
    fn of(source: Option<impl Read + Send + 'static>) -> Stream {
        let (send, pieces) = channel();
        if let Some(mut source) = source {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = source.read(&mut buffer) {
                    if send.send(buffer[..length].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        Stream { pieces, text: Vec::new() }
    }

    fn so_far(&mut self) -> String {
        self.text.extend(self.pieces.try_iter().flatten());
        String::from_utf8_lossy(&self.text).into_owned()
    }

    fn wait_for(&mut self, text: &str, count: usize) -> Result<(), String> {
        let until = Instant::now() + DEADLINE;
        loop {
            let so_far = self.so_far();
            if so_far.matches(text).count() >= count {
                return Ok(());
            }
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.text.extend(piece),
                Err(_) => return Err(self.so_far()),
            }
        }
    }

    /// Returns everything until the last process has closed the pipe, or, in QEMU, has been left behind with it.
    fn all(&mut self) -> String {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.text.extend(piece),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return self.so_far(),
            }
        }
    }
}
