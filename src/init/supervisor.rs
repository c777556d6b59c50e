//! The loop of PID 1.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::SIGCHLD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use super::link::{self, Link, News, Terms, Watch};
use super::terminal;
use crate::config::DEFAULT_PREPARE_TIMEOUT;
use crate::exit;
use crate::sys::exec::Image;
use crate::sys::fork::{self, Ended};
use crate::sys::signals::{self, Disposition, Inherited, Received};
use crate::sys::stdio::{Stderr, close_inherited};

/// Runs `prepare` in a child, which becomes the command, and serves as its init.
/// Returns the code to exit with.
///
/// All signals must be blocked; `inherited` is what the command gets back.
/// `arguments` are the program's own: when the preparation does not come to an
/// end, the command after the first `--` is started as it is.
pub fn supervise(inherited: Inherited, arguments: Vec<CString>, prepare: impl FnOnce(&Link) -> i32) -> i32 {
    let started = Instant::now();
    let sigchld = signals::set_default(SIGCHLD);
    let (watch, link) = match link::pair() {
        Ok(pair) => pair,
        Err(error) => return cannot_start("a pipe to the process that prepares the command", error),
    };
    let become_child = || {
        terminal::take_foreground();
        sigchld.restore();
        inherited.restore();
        prepare(&link)
    };
    let child = match fork::spawn(become_child) {
        Ok(child) => child,
        Err(error) => return cannot_start("the process that prepares the command", error),
    };
    drop(link);

    let mut supervisor = Supervisor {
        inherited,
        sigchld,
        arguments,
        child,
        forwarded: Forwarded::default(),
        refuse: None,
        warned_of_kill: false,
    };
    match supervisor.preparing(watch, started) {
        Some(code) => code,
        None => supervisor.running(),
    }
}

fn cannot_start(what: &str, error: Errno) -> i32 {
    say(&format!(
        "cannot create {what}: {error}. Is the container's limit of processes or open files too low?"
    ));
    exit::FAILED
}

fn say(message: &str) {
    Stderr::at_once().put(format!("rdma-init: {message}\n").as_bytes());
}

struct Supervisor {
    inherited: Inherited,
    sigchld: Disposition,
    arguments: Vec<CString>,
    /// The main child: what it exits with, we exit with.
    child: Pid,
    /// What was sent to the child so far.
    forwarded: Forwarded,
    /// The code to refuse with, should the preparation not come to its end.
    refuse: Option<i32>,
    warned_of_kill: bool,
}

/// A set of signals: bit n-1 for signal n.
#[derive(Clone, Copy, Default)]
struct Forwarded(u64);

impl Forwarded {
    fn add(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }

    fn signals(self) -> impl Iterator<Item = i32> {
        (1..=64).filter(move |signal| self.has(*signal))
    }
}

/// What the wait of the preparing stage ended with.
enum Event {
    Signal(Received),
    News(News),
    TimeUp,
}

impl Supervisor {
    /// From the fork until the child has become the command. Returns a code
    /// when it ended before.
    fn preparing(&mut self, watch: Watch, started: Instant) -> Option<i32> {
        let Ok(pending) = signals::pending_fd() else {
            // Without it there is no deadline, but the container works.
            self.leave_inherited_behind(&[]);
            return None;
        };
        let [pipe, permit] = watch.raw_fds();
        self.leave_inherited_behind(&[pipe, permit, pending.as_raw_fd()]);
        let mut deadline = Some(DEFAULT_PREPARE_TIMEOUT);
        loop {
            match wait(&pending, &watch, deadline.map(|after| started + after)) {
                Event::Signal(received) => {
                    if let Some(ended) = self.handle(&received) {
                        self.learn_last_terms(&watch);
                        return self.ended_early(ended, watch.claim_start());
                    }
                }
                Event::News(News::Terms(terms)) => {
                    let Terms { deadline: configured, refuse } = terms;
                    deadline = configured;
                    self.refuse = refuse;
                }
                Event::News(News::Nothing) => {}
                // By the exec; or, where the child never set out to exec, by its end.
                Event::News(News::Closed) => {
                    if !watch.claim_start() {
                        return None;
                    }
                    let ended = self.until_child_ends();
                    return self.ended_early(ended, true);
                }
                Event::TimeUp if watch.claim_start() => {
                    self.learn_last_terms(&watch);
                    let after = deadline.unwrap_or_default();
                    let _ = signals::kill(self.child, nix::libc::SIGKILL);
                    return self.start_untouched(&format!(
                        "the preparation did not finish within {after:?} (prepare-timeout) and was stopped"
                    ));
                }
                Event::TimeUp => return None,
            }
        }
    }

    /// Reads what the child said that has not been read yet: it may have ended a
    /// moment after it said that the command must not start without the checks.
    fn learn_last_terms(&mut self, watch: &Watch) {
        while let News::Terms(terms) = watch.read() {
            self.refuse = terms.refuse;
        }
    }

    /// The child ended before the exec was seen; `preparing` when it had not
    /// even set out to exec.
    fn ended_early(&mut self, ended: Ended, preparing: bool) -> Option<i32> {
        match ended {
            // By no signal that came through us: our own program failed.
            Ended::Killed(signal) if preparing && !self.forwarded.has(signal) => {
                self.start_untouched(&format!("the preparation was killed by {}", signals::name(signal)))
            }
            ended => Some(code_of(ended)),
        }
    }

    /// Starts the command as it would have started without us, unless it must not
    /// start without the checks.
    fn start_untouched(&mut self, why: &str) -> Option<i32> {
        if let Some(code) = self.refuse {
            say(&format!(
                "{why}. Refusing to start the command (exit code {code}), as require-rdma or memlock = \"enforce\" asks."
            ));
            return Some(code);
        }
        let Some(dashes) = self.arguments.iter().position(|a| a.as_bytes() == b"--") else {
            say(&format!("{why}."));
            return Some(exit::FAILED);
        };
        say(&format!(
            "{why}. The command is started as it would have been without rdma-init: \
             no variable is filled in and no limit is raised."
        ));
        let command = self.arguments.split_off(dashes + 1);
        let (inherited, sigchld) = (self.inherited, self.sigchld);
        let started = fork::spawn(|| {
            terminal::take_foreground();
            sigchld.restore();
            inherited.restore();
            let name = command.first().cloned().unwrap_or_default();
            let error = Image::new(command, crate::sys::environ::entries()).exec();
            say(&format!("cannot run {}: {}", name.to_string_lossy(), error.desc()));
            exit::of_exec_error(error)
        });
        match started {
            Ok(child) => {
                self.child = child;
                // It starts with every signal blocked, so each of these counts as if
                // it had been sent at the start: a stop is still a stop, and what the
                // command inherits as ignored is still ignored.
                for signal in self.forwarded.signals() {
                    let _ = signals::kill(child, signal);
                }
                None
            }
            Err(error) => Some(cannot_start("the command's process", error)),
        }
    }

    /// Until the command ends.
    fn running(&mut self) -> i32 {
        code_of(self.until_child_ends())
    }

    fn until_child_ends(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.handle(&signals::wait()) {
                return ended;
            }
        }
    }

    /// Forwards a signal, or reaps; returns how the main child ended.
    fn handle(&mut self, received: &Received) -> Option<Ended> {
        if received.signal() == SIGCHLD {
            return self.reap();
        }
        match received.forward(self.child) {
            Ok(()) => self.forwarded.add(received.signal()),
            // It has ended; its SIGCHLD is on the way.
            Err(Errno::ESRCH) => {}
            Err(error) => self.warn_of_kill(received.signal(), error),
        }
        None
    }

    /// Once: a child that changed its user can get no signal from an init
    /// without CAP_KILL, and that is no reason to end.
    fn warn_of_kill(&mut self, signal: i32, error: Errno) {
        if !self.warned_of_kill {
            self.warned_of_kill = true;
            say(&format!(
                "cannot forward {} to process {}: {}. If it changed its user, \
                 start the container as that user or with the capability KILL.",
                signals::name(signal),
                self.child,
                error.desc()
            ));
        }
    }

    /// Reaps every process that has ended, orphans included.
    fn reap(&self) -> Option<Ended> {
        let mut main = None;
        while let Some((pid, ended)) = fork::reap() {
            if pid == self.child {
                main = Some(ended);
            }
        }
        main
    }

    /// Lets go of everything that PID 1 has no use for: descriptors that the
    /// command may want closed some day, and the folder it may want unmounted.
    fn leave_inherited_behind(&self, own: &[i32]) {
        close_inherited(&mut own.to_vec());
        let _ = nix::unistd::chdir("/");
    }
}

fn code_of(ended: Ended) -> i32 {
    match ended {
        Ended::Exited(code) => code,
        Ended::Killed(signal) => exit::of_signal(signal),
    }
}

fn wait(pending: &OwnedFd, watch: &Watch, until: Option<Instant>) -> Event {
    loop {
        // A signal first: when the child has ended, it also explains the closed pipe.
        if let Some(received) = signals::take() {
            return Event::Signal(received);
        }
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Event::TimeUp;
                }
                // Rounded up, so that the wait does not end just before the time.
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds =
            [PollFd::new(pending.as_fd(), PollFlags::POLLIN), PollFd::new(watch.fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout).is_ok()
            && fds[0].revents().is_none_or(|r| r.is_empty())
            && fds[1].revents().is_some_and(|r| !r.is_empty())
        {
            return Event::News(watch.read());
        }
    }
}
