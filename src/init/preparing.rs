//! The first stage: from the fork until the child has become the command, or cannot become it any more.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use super::execed::has_never_execed;
use super::link::{self, News, Watch};
use super::message::InitMessage;
use super::note::HandoffMemory;
use super::orders::Refusal;
use super::sealed::Sealed;
use super::spawn::{Inheritance, cannot_start, spawn};
use super::supervisor::Supervisor;
use crate::exit;
use crate::log::Level;
use crate::sys::fork::Ended;
use crate::sys::signals::{self, Received};

/// The message if the preparation did not finish but had already decided.
pub(crate) const WITH_WHAT_WAS_DECIDED: &str = "The command is started with what was decided. \
    Processes that enter the container later may not find all of it.";

/// The message if no process can be started, so that the command takes the place of this one.
pub(crate) const IN_PLACE: &str = "The command takes the place of rdma-init, so no signal is forwarded to \
    it and no process of it is reaped.";

/// What ended the wait in the preparing stage.
enum Event {
    Signal(Received),
    News(News),
    TimeUp,
    /// The kernel does not let this process wait for signals.
    CannotWaitForSignals,
}

/// How the preparing stage ended.
pub(super) enum PreparingEnd {
    /// The command is running.
    Running,
    /// The main child has ended: either the command, or the preparation that was to become it.
    Ended { ended: Ended, was_command: bool },
    /// Everything was reported; exit with this code.
    Exit(i32),
}

/// What only this stage knows, and what the preparation hands over to later stages.
pub(super) struct Preparation {
    pub(super) inheritance: Inheritance,
    pub(super) started: Instant,
    /// When the command was executed, once this process knows that it was.
    pub(super) executed: Option<Instant>,
    /// The kernel's count of processes that it killed because memory ran out, when the command had started.
    pub(super) oom_kills: Option<u64>,
    /// Whether the main child may not be the command yet. Such a child is examined between its end and its
    /// reaping.
    pub(super) is_running: bool,
    /// The main child has ended, and certainly never executed a program.
    pub(super) never_execed: bool,
    /// The command could not be executed, and a process has reported this.
    not_run: bool,
    /// The process of a preparation that PID 1 gave up on.
    pub(super) replaced: Option<Pid>,
    /// Reports whether a command that was started without preparation could be executed.
    untouched: Option<Watch>,
    /// The preparation's note for the end; `None` once it is known that there is none.
    pub(super) note: Option<Rc<HandoffMemory>>,
    /// The state that the preparation saved for processes that enter, if it saved one.
    left: Option<Rc<Sealed>>,
}

impl Preparation {
    pub(super) fn new(inheritance: Inheritance, started: Instant, watch: &mut Watch) -> Preparation {
        Preparation {
            inheritance,
            started,
            executed: None,
            oom_kills: None,
            is_running: true,
            never_execed: false,
            not_run: false,
            replaced: None,
            untouched: None,
            note: watch.take_note(),
            left: watch.take_state(),
        }
    }

    /// Returns whether the command could not be executed, which was already reported.
    pub(super) fn could_not_run(&self) -> bool {
        let tells = |watch: &Watch| watch.read() == News::Told(InitMessage::NotRun);
        self.not_run || self.untouched.as_ref().is_some_and(tells)
    }

    /// Returns when a command was executed that this process knows of since `seen`: the child notes it. Others can
    /// write to the note, too.
    pub(super) fn executed_by(&self, seen: Instant) -> Instant {
        let prepared = self.note.as_deref().and_then(HandoffMemory::prepared);
        let noted = prepared.and_then(|after| self.started.checked_add(after));
        noted.map_or(seen, |noted| noted.min(seen))
    }

    /// Frees what the preparation did not use, and returns the remaining descriptors.
    pub(super) fn descriptors_for_later(&mut self) -> Vec<RawFd> {
        self.note.take_if(|note| note.ports().is_none());
        self.left.take_if(|left| !left.is_sealed());
        let untouched = self.untouched.as_ref().map(Watch::raw_fds).into_iter().flatten();
        let note = self.note.as_deref().map(HandoffMemory::raw_fd);
        untouched.chain(note).chain(self.left.as_deref().map(Sealed::raw_fd)).collect()
    }
}

impl Supervisor {
    /// Runs from the fork until the child has become the command or has ended.
    pub(super) fn preparing(&mut self, watch: Watch) -> PreparingEnd {
        let Ok(pending) = signals::pending_fd() else {
            // Without a descriptor for signals, there is no deadline, but the container works.
            return PreparingEnd::Running;
        };
        loop {
            let event = wait(&pending, &watch, self.preparing_wakes_at());
            if matches!(event, Event::TimeUp) {
                // This process may have been held up. Orders that the child sent in time can change the deadline.
                self.hear(&watch);
                if self.preparing_wakes_at().is_none_or(|at| at > Instant::now()) {
                    continue;
                }
            }
            match event {
                Event::Signal(received) => {
                    // The child may have sent orders that concern this signal just before it arrived.
                    self.hear(&watch);
                    if let Some(ended) = self.handle(&received) {
                        return self.ended_early(ended, &watch);
                    }
                }
                Event::News(News::Told(InitMessage::Orders(orders))) => self.follow(*orders),
                // `until_child_ends` gets the same error and reports it.
                Event::CannotWaitForSignals => return PreparingEnd::Running,
                Event::News(News::Told(InitMessage::NotRun)) => self.preparation.not_run = true,
                Event::News(News::Nothing) => {}
                // The exec closed the pipe; or the child's end did, if the child never reached the exec.
                Event::News(News::Closed) => {
                    if !watch.claim_start() && !has_never_execed(self.child) {
                        return PreparingEnd::Running;
                    }
                    return match self.until_child_ends() {
                        Some(ended) => self.ended_unprepared(ended),
                        None => PreparingEnd::Exit(self.gave_up()),
                    };
                }
                Event::TimeUp if self.stopping.has_killed() => return PreparingEnd::Exit(self.gave_up()),
                Event::TimeUp if self.kill_due().is_some_and(|(_, at)| at <= Instant::now()) => {
                    self.kill_all();
                    self.kill_command();
                }
                Event::TimeUp if watch.claim_start() => {
                    self.hear(&watch);
                    let after = self.orders.terms.deadline.unwrap_or_default();
                    let _ = signals::kill(self.child, SIGKILL);
                    return self.start_untouched(&format!(
                        "the preparation did not finish within {after:?} (prepare-timeout) and was stopped"
                    ));
                }
                // The child is about to exec, and a signal may still kill it before that.
                Event::TimeUp => self.orders.terms.deadline = None,
            }
        }
    }

    /// Handles the messages from the child that were not read yet.
    fn hear(&mut self, watch: &Watch) {
        loop {
            match watch.read() {
                News::Told(InitMessage::Orders(orders)) => self.follow(*orders),
                News::Told(InitMessage::NotRun) => self.preparation.not_run = true,
                News::Nothing | News::Closed => return,
            }
        }
    }

    /// Handles the end of a child before its exec was seen.
    fn ended_early(&mut self, ended: Ended, watch: &Watch) -> PreparingEnd {
        self.hear(watch);
        if watch.claim_start() || self.preparation.never_execed {
            return self.ended_unprepared(ended);
        }
        match ended {
            // Here, 126 and 127 are codes of rdma-init, not codes that the command itself returned.
            Ended::Exited(code) if self.preparation.not_run => PreparingEnd::Exit(code),
            ended => PreparingEnd::Ended { ended, was_command: !self.preparation.not_run },
        }
    }

    /// Handles the end of a child that did not become the command.
    fn ended_unprepared(&mut self, ended: Ended) -> PreparingEnd {
        match ended {
            // Neither this process sent the signal, nor did a person or the terminal ask for the end, so rdma-init
            // itself failed.
            Ended::Killed(signal)
                if !self.forwarding.sent().has(signal)
                    && !self.stopping.has_killed()
                    && ![SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&signal) =>
            {
                self.start_untouched(&format!("the preparation was killed by {}", signals::name(signal)))
            }
            Ended::Killed(_) => PreparingEnd::Ended { ended, was_command: false },
            // The child has reported why.
            Ended::Exited(code) => PreparingEnd::Exit(code),
        }
    }

    /// Starts the command as far as it was prepared. If the preparation had decided, the command gets the
    /// decision. Otherwise it starts as it would have started without rdma-init, or is refused if it must
    /// not start without the checks.
    fn start_untouched(&mut self, why: &str) -> PreparingEnd {
        let voice = self.orders.voice;
        // The preparation saves the decision only after all requested checks.
        let decision = self.preparation.note.as_deref().and_then(HandoffMemory::decision);
        let refusal = self.orders.terms.refuse;
        if let (None, Some(refusal)) = (&decision, refusal) {
            return PreparingEnd::Exit(self.refuse(refusal, why));
        }
        let command = self.command.clone();
        if command.is_empty() {
            voice.say(Level::Error, &format!("{why}."));
            return PreparingEnd::Exit(exit::FAILED);
        }
        let how = match &decision {
            Some(_) => WITH_WHAT_WAS_DECIDED,
            None => {
                "The command is started as it would have been without rdma-init: \
                 no variable is filled in and no limit is raised."
            }
        };
        voice.say(Level::Error, &format!("{why}. {how}"));
        let (watch, link) = match link::pair_without_memory() {
            Ok((watch, link)) => (Some(watch), Some(link)),
            // Without a pipe, this process cannot report whether the command was executed, but running the
            // command is more important.
            Err(_) => (None, None),
        };
        let (before, tasks) = (self.child, self.tasks);
        let execute = || {
            if voice.json {
                voice.start_log();
            }
            match &decision {
                Some(decision) => (tasks.execute_decided)(decision, command.clone(), refusal),
                None => (tasks.execute_untouched)(command.clone()),
            }
        };
        let started = spawn(&self.preparation.inheritance, before, || {
            let code = execute();
            if let Some(link) = link {
                link.not_run();
            }
            code
        });
        match started {
            Ok(child) => {
                self.preparation.replaced = Some(before);
                self.preparation.note = None;
                self.preparation.left = None;
                self.preparation.untouched = watch;
                self.child = child;
                // The new process starts with all signals blocked, so each of these signals acts as if it
                // had been sent at the start: a stop signal still stops, and a signal that the command
                // inherits as ignored is still ignored.
                for signal in self.forwarding.sent().signals() {
                    let _ = signals::kill(child, signal);
                }
                PreparingEnd::Running
            }
            Err(error) => {
                // The command would not notice a stop signal that was sent before.
                if let Some(signal) = self.forwarding.stop_asked() {
                    return PreparingEnd::Exit(Ended::Killed(signal).code());
                }
                let why = cannot_start("the command's process", error);
                voice.say(Level::Error, &format!("{why}. {IN_PLACE}"));
                // Otherwise the command would unknowingly be a subreaper and adopt orphans.
                self.reach.adopt(false);
                self.preparation.inheritance.restore();
                PreparingEnd::Exit(execute())
            }
        }
    }

    /// Reports why the command is not started, and has a child write the reason to where Kubernetes looks
    /// for it. Returns the exit code.
    fn refuse(&self, refusal: Refusal, why: &str) -> i32 {
        let reason = refusal.because(why);
        let voice = self.orders.voice;
        let refusing = (self.tasks.refusing)(&reason, refusal.code);
        if voice.json {
            voice.start_log();
            tracing::error!(event = "refusal", code = refusal.code, "{refusing}");
        } else {
            voice.say(Level::Error, &refusing);
        }
        if let Some(failed) = (self.tasks.leave_reason)(&reason) {
            voice.say(Level::Error, &failed);
        }
        refusal.code
    }

    /// Returns the next deadline, including that of the preparation. No signal announces a deadline.
    fn preparing_wakes_at(&self) -> Option<Instant> {
        let deadline =
            self.orders.terms.deadline.and_then(|after| self.preparation.started.checked_add(after));
        deadline.filter(|_| !self.stopping.has_killed()).into_iter().chain(self.wake_at()).min()
    }
}

fn wait(pending: &OwnedFd, watch: &Watch, until: Option<Instant>) -> Event {
    // Signals are read first: if the child has ended, its SIGCHLD also explains why the pipe is closed.
    let signal = || match signals::take() {
        Ok(received) => received.map(Event::Signal),
        Err(_) => Some(Event::CannotWaitForSignals),
    };
    loop {
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return signal().unwrap_or(Event::TimeUp);
                }
                // Rounded up, so that the wait does not end just before the deadline.
                PollTimeout::try_from(left.saturating_add(Duration::from_millis(1)))
                    .unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds =
            [PollFd::new(pending.as_fd(), PollFlags::POLLIN), PollFd::new(watch.fd(), PollFlags::POLLIN)];
        let result = poll(&mut fds, timeout);
        let [has_signal, has_news] = fds.map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
        if (has_signal || result.is_err())
            && let Some(event) = signal()
        {
            return event;
        }
        if has_news {
            return Event::News(watch.read());
        }
    }
}
