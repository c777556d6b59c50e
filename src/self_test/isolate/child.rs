//! The life of one child: this process starts it, reads its messages, answers it, kills it when its
//! time is up, and reaps it.

use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::SIGKILL;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, dup2_stdin, dup2_stdout};

use super::Work;
use super::message::{ChildReport, Message};
use crate::json;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::pidfd::Pidfd;
use crate::sys::signals::{self, without_signals_of_writing};
use crate::sys::worker::{self, ReadState};
use crate::verbs::port_test::{PortTest, ProbeEnd, ProbeResult};
use crate::verbs::step::Step;
use crate::verbs::talk::{End, ProbeControl};

/// How long a killed process may take to exit. If it sleeps in the kernel, waiting for a device that
/// does not answer, it may never exit.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Child(ChildState);

enum ChildState {
    Running(Running),
    Over(ProbeResult),
}

struct Running {
    pid: Pid,
    /// `None` before Linux 5.3, which has no pidfd_open(2).
    pidfd: Option<Pidfd>,
    /// `None` after the child has closed its side.
    socket: Option<UnixStream>,
    told: ChildReport,
    /// When the current time limit began.
    since: Instant,
    /// When the child's time is up; `None` while it waits for this process.
    deadline: Option<Instant>,
    killed: Option<KilledChild>,
}

/// When a child was killed, and why.
struct KilledChild {
    at: Instant,
    /// Whether it was killed because it sent more than [`message::LIMIT`](super::message::LIMIT).
    for_telling: bool,
}

impl Child {
    pub(crate) fn start(wanted: &PortTest, work: Work) -> Child {
        let running = start(wanted, work).map(|(pid, socket)| Running {
            pid,
            pidfd: Pidfd::open(pid).ok(),
            socket: Some(socket),
            told: ChildReport::default(),
            since: Instant::now(),
            deadline: None,
            killed: None,
        });
        Child(match running {
            Ok(running) => ChildState::Running(running),
            Err(errno) => ChildState::Over(Err(ProbeEnd::NotStarted { errno: errno as i32 })),
        })
    }

    /// Gives the child time until the deadline.
    pub(crate) fn allow(&mut self, deadline: Instant) {
        if let ChildState::Running(running) = &mut self.0 {
            running.since = Instant::now();
            running.deadline = Some(deadline);
        }
    }

    /// Reads, kills or reaps, whichever is due. Returns when to check again, or `None` if the child has
    /// ended or has sent what `is_there` looks for.
    pub(crate) fn advance(&mut self, is_there: impl Fn(&ChildReport) -> bool) -> Option<Instant> {
        let ChildState::Running(running) = &mut self.0 else { return None };
        match running.advance() {
            Ok(_) if running.killed.is_none() && is_there(&running.told) => {
                running.deadline = None;
                None
            }
            Ok(next) => Some(next),
            Err(result) => {
                self.0 = ChildState::Over(result);
                None
            }
        }
    }

    /// Returns what the child has sent, if it is still running.
    pub(crate) fn told(&self) -> Option<&ChildReport> {
        match &self.0 {
            ChildState::Running(running) => Some(&running.told),
            ChildState::Over(_) => None,
        }
    }

    /// Sends the message that the child waits for. `None` means that no message will ever arrive.
    pub(crate) fn answer(&mut self, message: Option<&Message>) {
        let ChildState::Running(running) = &mut self.0 else { return };
        let Some(socket) = &mut running.socket else { return };
        let sent =
            message.is_some_and(|message| without_signals_of_writing(|| message.write(socket)).is_ok());
        if !sent {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    /// Returns the descriptors to poll for events of the child.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = match &self.0 {
            ChildState::Running(running) => Some(running),
            ChildState::Over(_) => None,
        };
        let socket = running.and_then(|running| running.socket.as_ref()).map(AsFd::as_fd);
        let pidfd = running.and_then(|running| running.pidfd.as_ref()).map(AsFd::as_fd);
        socket.into_iter().chain(pidfd)
    }

    /// Returns whether no descriptor reports the child's end.
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(&self.0, ChildState::Running(Running { pidfd: None, .. }))
    }

    pub(crate) fn into_result(self) -> ProbeResult {
        match self.0 {
            ChildState::Over(result) => result,
            ChildState::Running(running) => Err(running.hung(false)),
        }
    }
}

impl Running {
    /// Returns when to check again or, as an error, the result.
    fn advance(&mut self) -> Result<Instant, ProbeResult> {
        // The child is reaped before its socket is read to the end, so that no message is missed.
        let reaped = fork::reap_child(self.pid);
        if !self.listen() {
            self.kill(true);
        }
        match reaped {
            Reaped::Ended(_, ended) => return Err(self.ended(ended)),
            // Another function has reaped the child.
            Reaped::NoSuchChild => return Err(self.ended(Ended::Exited(0))),
            Reaped::Running | Reaped::Stopped(..) => {}
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.kill(false);
        }
        match (&self.killed, self.deadline) {
            (Some(killed), _) if now >= killed.at + GRACE => Err(Err(self.hung(false))),
            (Some(killed), _) => Ok(killed.at + GRACE),
            (None, Some(deadline)) => Ok(deadline),
            (None, None) => Ok(now),
        }
    }

    /// Reads what is in the socket. Returns `false` if the child has sent too much.
    fn listen(&mut self) -> bool {
        let Some(socket) = &mut self.socket else { return true };
        match worker::read(socket, |bytes| self.told.push(bytes)) {
            ReadState::More => true,
            told => {
                self.socket = None;
                told == ReadState::All
            }
        }
    }

    /// Kills the child. It is not reaped yet, so no other process can have its PID.
    fn kill(&mut self, for_telling: bool) {
        if self.killed.is_none() {
            let _ = signals::kill(self.pid, SIGKILL);
            self.killed = Some(KilledChild { at: Instant::now(), for_telling });
        }
    }

    fn ended(&self, ended: Ended) -> ProbeResult {
        let (during, found) = self.told.read();
        match (ended, &self.killed) {
            (_, Some(killed)) if killed.for_telling => Err(ProbeEnd::Garbled { during }),
            (Ended::Killed(SIGKILL), Some(_)) => Err(self.hung(true)),
            (Ended::Killed(signal), _) => Err(ProbeEnd::Crashed { signal: signals::name(signal), during }),
            (Ended::Exited(_), _) if self.told.is_garbled() => Err(ProbeEnd::Garbled { during }),
            (Ended::Exited(code), _) => match found {
                Some(found) if code == 0 => Ok(found),
                _ => Err(ProbeEnd::Exited { code, during }),
            },
        }
    }

    fn hung(&self, gone: bool) -> ProbeEnd {
        let (during, found) = self.told.read();
        // The child had already sent its result, so the kernel was closing the device.
        let during = if found.is_some() { Some(Step::Close) } else { during };
        let end = self.killed.as_ref().map_or_else(Instant::now, |killed| killed.at);
        let after_ms = end.duration_since(self.since).as_millis().try_into().unwrap_or(u64::MAX);
        ProbeEnd::Hung { after_ms, during, gone }
    }
}

/// Starts a child and does the work in it. The child does not keep the sockets of other children or the
/// descriptors of the command.
fn start(wanted: &PortTest, work: Work) -> Result<(Pid, UnixStream), Errno> {
    worker::start(&[], |socket| {
        // A provider may print something, but standard output belongs to the parent.
        if let Ok(null) = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) {
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
        }
        let mut parent = Parent(BufReader::new(socket));
        let found = work(wanted, &mut parent);
        Message::Found(Box::new(found)).write(parent.0.get_mut()).is_ok()
    })
}

/// The parent, as a child sees it.
struct Parent(BufReader<UnixStream>);

impl Parent {
    fn tell(&mut self, message: &Message) {
        // The parent notices if the message is missing.
        let _ = message.write(self.0.get_mut());
    }

    fn hear(&mut self) -> Option<Message> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        json::read(line.as_bytes()).ok()
    }
}

impl ProbeControl for Parent {
    fn step(&mut self, step: Step) {
        self.tell(&Message::At(step));
    }

    fn exchange(&mut self, own: End) -> Option<End> {
        self.tell(&Message::End(own));
        match self.hear()? {
            Message::End(far) => Some(far),
            _ => None,
        }
    }

    fn meet(&mut self) -> bool {
        self.tell(&Message::Ready);
        matches!(self.hear(), Some(Message::Ready))
    }
}
