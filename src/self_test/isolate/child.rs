//! One child: started, listened to, killed when its time is up, and reaped.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc::SIGKILL;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, pipe2};

use super::super::device::{ProbeResult, Wanted};
use super::Work;
use super::message::{Message, Told};
use crate::exit;
use crate::facts::reader::describe;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::pidfd::Pidfd;
use crate::sys::signals;
use crate::sys::stdio::close_inherited;

/// So long a process that was killed may take to end. One that sleeps in the kernel, on
/// a device that does not answer, may never.
const GRACE: Duration = Duration::from_secs(1);

pub struct Child(State);

enum State {
    Running(Running),
    Over(ProbeResult),
}

struct Running {
    pid: Pid,
    /// `None` before Linux 5.3.
    pidfd: Option<Pidfd>,
    /// `None` from its end on.
    pipe: Option<File>,
    told: Told,
    started: Instant,
    deadline: Instant,
    killed: Option<Killed>,
}

/// When and why.
struct Killed {
    at: Instant,
    for_telling: bool,
}

impl Child {
    pub fn start(wanted: &Wanted, parent: Pid, each: Duration, end: Instant, work: Work) -> Child {
        let started = Instant::now();
        let running = start(wanted, parent, work).map(|(pid, pipe)| Running {
            pid,
            pidfd: Pidfd::open(pid).ok(),
            pipe: Some(pipe),
            told: Told::default(),
            started,
            deadline: (started + each).min(end),
            killed: None,
        });
        Child(match running {
            Ok(running) => State::Running(running),
            Err(errno) => State::Over(ProbeResult::NotStarted { error: describe(errno) }),
        })
    }

    /// Does what is to be done now; `None` when the child is over, or the time of what
    /// is to be done next.
    pub fn advance(&mut self) -> Option<Instant> {
        let State::Running(running) = &mut self.0 else { return None };
        match running.advance() {
            Ok(next) => Some(next),
            Err(result) => {
                self.0 = State::Over(result);
                None
            }
        }
    }

    /// What to wait for.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = match &self.0 {
            State::Running(running) => Some(running),
            State::Over(_) => None,
        };
        let pipe = running.and_then(|running| running.pipe.as_ref()).map(AsFd::as_fd);
        let pidfd = running.and_then(|running| running.pidfd.as_ref()).map(AsFd::as_fd);
        pipe.into_iter().chain(pidfd)
    }

    /// Whether its end cannot be waited for.
    pub fn is_unseen(&self) -> bool {
        matches!(&self.0, State::Running(Running { pidfd: None, .. }))
    }

    pub fn into_result(self) -> ProbeResult {
        match self.0 {
            State::Over(result) => result,
            State::Running(running) => running.hung(false),
        }
    }
}

impl Running {
    /// The time to look again, or the result.
    fn advance(&mut self) -> Result<Instant, ProbeResult> {
        // Before the pipe is read to its end, so that nothing told is missed.
        let reaped = fork::reap_child(self.pid);
        if !self.listen() {
            self.kill(true);
        }
        match reaped {
            Reaped::Ended(_, ended) => return Err(self.ended(ended)),
            // Somebody else has reaped it.
            Reaped::Childless => return Err(self.ended(Ended::Exited(0))),
            Reaped::Running | Reaped::Stopped(..) => {}
        }
        let now = Instant::now();
        if now >= self.deadline {
            self.kill(false);
        }
        match &self.killed {
            Some(killed) if now >= killed.at + GRACE => Err(self.hung(false)),
            Some(killed) => Ok(killed.at + GRACE),
            None => Ok(self.deadline),
        }
    }

    /// Takes what is in the pipe. `false` when it is too much.
    fn listen(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return true };
        let mut buffer = [0; 4096];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    if !self.told.push(buffer.get(..length).unwrap_or_default()) {
                        self.pipe = None;
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => break,
            }
        }
        self.pipe = None;
        true
    }

    /// The child is not reaped yet, so the number is still its own.
    fn kill(&mut self, for_telling: bool) {
        if self.killed.is_none() {
            let _ = signals::kill(self.pid, SIGKILL);
            self.killed = Some(Killed { at: Instant::now(), for_telling });
        }
    }

    fn ended(&self, ended: Ended) -> ProbeResult {
        let (during, found) = self.told.read();
        match (ended, &self.killed) {
            (_, Some(killed)) if killed.for_telling => ProbeResult::Garbled { during },
            (Ended::Killed(SIGKILL), Some(_)) => self.hung(true),
            (Ended::Killed(signal), _) => ProbeResult::Crashed { signal: signals::name(signal), during },
            (Ended::Exited(_), _) if self.told.is_garbled() => ProbeResult::Garbled { during },
            (Ended::Exited(code), _) => match found {
                Some(found) if code == 0 => ProbeResult::Done(found),
                _ => ProbeResult::Exited { code, during },
            },
        }
    }

    fn hung(&self, gone: bool) -> ProbeResult {
        let (during, found) = self.told.read();
        // It had told everything, so the kernel was closing the device.
        let during = if found.is_some() { Some("close".to_owned()) } else { during };
        let end = self.killed.as_ref().map_or_else(Instant::now, |killed| killed.at);
        let after_ms = end.duration_since(self.started).as_millis().try_into().unwrap_or(u64::MAX);
        ProbeResult::Hung { after_ms, during, gone }
    }
}

fn start(wanted: &Wanted, parent: Pid, work: Work) -> Result<(Pid, File), nix::errno::Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let pid = fork::spawn(|| be_the_child(wanted, parent, write, work))?;
    Ok((pid, read.into()))
}

/// Gives the code to exit with.
fn be_the_child(wanted: &Wanted, parent: Pid, pipe: OwnedFd, work: Work) -> i32 {
    // A panic must not unwind into what the parent was doing.
    let told = catch_unwind(AssertUnwindSafe(|| {
        signals::on_parent_death(SIGKILL, parent);
        // The ends of other pipes, and what belongs to the command.
        close_inherited(&mut [pipe.as_raw_fd()]);
        // A provider may print; standard output is the parent's.
        if let Ok(null) = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) {
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
        }
        let mut pipe = File::from(pipe);
        let found = work(wanted, &mut |step| {
            // The parent notices what is missing.
            let _ = Message::At(step.to_owned()).write(&mut pipe);
        });
        Message::Found(Box::new(found)).write(&mut pipe)
    }));
    match told {
        Ok(Ok(())) => 0,
        _ => exit::FAILED,
    }
}
