//! The stages of a supervisor: the preparation, the command, the remaining processes, and the end.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::libc::{SIGCHLD, SIGKILL};
use nix::unistd::{Pid, getpgrp};

use super::end::CommandEnd;
use super::forwarding::Forwarding;
use super::link::{self, Link, Watch};
use super::note::HandoffMemory;
use super::orders::Orders;
use super::preparing::{Preparation, PreparingEnd};
use super::spawn::{Inheritance, cannot_start, spawn};
use super::stopping::Stopping;
use super::supervisor::{AccountOutcome, AtEnd, Supervisor, Tasks};
use super::survivors::{Reach, name_descendants};
use super::terminal;
use super::watcher::PATIENCE;
use crate::facts::oom::oom_kills;
use crate::sys::capabilities::keep_only;
use crate::sys::fork::{self, Ended, NoAnswer};
use crate::sys::memory;
use crate::sys::seccomp::refuse_what_is_never_called;
use crate::sys::signals::{self, Inherited};

/// The longest time by which the account may delay the end of the container: for the counters and the file in which
/// Kubernetes looks for the reason of a failure, and without a new look at the ports if a driver hangs.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(3);
const SEEN_PATIENCE: Duration = Duration::from_secs(1);

/// The answer of the account's process if the fabric broke.
const BROKEN: u8 = 1;

/// No process can be started for the preparation, so this process must itself become the command.
#[derive(Debug)]
pub(crate) struct Alone {
    /// Why, as a sentence without a final period.
    pub why: String,
}

/// Runs `prepare` in a child, which becomes the command, and acts as its init. Returns the exit code.
///
/// # Errors
/// No process can be started. In this case, this process is as it was before.
///
/// All signals must be blocked; `inherited` is what the command gets back. If the preparation does not
/// finish, `command` is started unprepared; it may be empty. `parent` is the process that started this one.
/// If this process is not PID 1, it becomes a subreaper.
pub(crate) fn supervise(
    inherited: Inherited,
    command: Vec<CString>,
    orders: Orders,
    parent: Pid,
    tasks: Tasks,
    prepare: impl FnOnce(&Link) -> i32,
) -> Result<i32, Alone> {
    let started = Instant::now();
    let sigchld = signals::set_default(SIGCHLD);
    let reach = if std::process::id() == 1 { Reach::Namespace } else { Reach::Descendants };
    reach.adopt(true);
    let alone = |what, error| {
        sigchld.restore();
        reach.adopt(false);
        Err(Alone { why: cannot_start(what, error) })
    };
    let (mut watch, link) = match link::pair() {
        Ok(pair) => pair,
        Err(error) => return alone("a pipe or an eventfd for the process that prepares the command", error),
    };
    let inheritance = Inheritance { inherited, sigchld };
    let child = match spawn(&inheritance, getpgrp(), || prepare(&link)) {
        Ok(child) => child,
        Err(error) => return alone("the process that prepares the command", error),
    };
    drop(link);

    let mut supervisor = Supervisor {
        command,
        tasks,
        reach,
        parent,
        orders: Orders::default(),
        child,
        childless: false,
        preparation: Preparation::new(inheritance, started, &mut watch),
        forwarding: Forwarding::default(),
        stopping: Stopping::default(),
        watcher: None,
        watcher_ended: false,
    };
    supervisor.follow(orders);
    let code = supervisor.until_the_end(watch);
    // The process is about to exit, which frees all of this faster.
    std::mem::forget(supervisor);
    Ok(code)
}

impl Supervisor {
    fn until_the_end(&mut self, watch: Watch) -> i32 {
        let ended = self.until_command_ends(watch);
        let at = Instant::now();
        self.end_watcher(
            ended.as_ref().ok().filter(|(_, was_command)| *was_command).map(|(ended, _)| *ended),
            PATIENCE,
        );
        if self.reach == Reach::Descendants {
            // A shell that waits for this process gets its terminal back.
            terminal::hand_over(self.child, getpgrp());
        }
        let (ended, was_command) = match ended {
            Ok(ended) => ended,
            Err(code) => return code,
        };
        // The signal is determined before the drain: a signal that arrives during the drain did not cause
        // the end.
        let signal = self.forwarding.signal_behind(ended);
        self.drain();
        let end = CommandEnd {
            ended,
            code: self.orders.supervision.remap.of(ended.code()),
            ran: self.ran(at, was_command),
            signal: signal.map(|(signal, when)| (signal, at.saturating_duration_since(when))),
            killed: self.stopping.why_killed(),
            left: self.left(was_command && signal.is_some()),
            oom_kills: self.oom_kills(),
            is_of_fabric: false,
        };
        let end = if was_command { self.account(end) } else { end };
        end.report(self.orders.voice, || was_command.then(|| self.command_name()));
        end.code
    }

    /// Gives up waiting for a command that hangs in the kernel after its SIGKILL, and gives the account all the same: a
    /// driver that hangs is a reason to look for one. Returns the exit code.
    fn give_up(&mut self) -> i32 {
        let (code, at, ended) = (self.gave_up(), Instant::now(), Ended::Killed(SIGKILL));
        let signal = self.forwarding.signal_behind(ended);
        let end = CommandEnd {
            ended,
            code,
            ran: self.ran(at, true),
            signal: signal.map(|(signal, when)| (signal, at.saturating_duration_since(when))),
            killed: self.stopping.why_killed(),
            left: self.left(false),
            oom_kills: self.oom_kills(),
            is_of_fabric: false,
        };
        self.account(end).code
    }

    /// Returns for how long the command ran that ended at this time; or the preparation, if it never became the
    /// command. What the preparation takes, such as the wait for other nodes, is no time of the command.
    fn ran(&self, at: Instant, was_command: bool) -> Duration {
        let since = match was_command {
            true => self.preparation.executed.unwrap_or_else(|| self.preparation.executed_by(at)),
            false => self.preparation.started,
        };
        at.saturating_duration_since(since)
    }

    /// Returns the processes that got a SIGKILL by a timeout; or, after a stop signal, those that the end of this PID
    /// namespace kills.
    fn left(&mut self, is_stopped: bool) -> Vec<String> {
        if self.stopping.has_killed() || !is_stopped || self.reach == Reach::Descendants {
            return std::mem::take(&mut self.stopping.left);
        }
        self.reap();
        name_descendants()
    }

    fn oom_kills(&self) -> u64 {
        let before = self.preparation.oom_kills;
        before.zip(oom_kills()).map_or(0, |(before, now)| now.saturating_sub(before))
    }

    /// Returns how the main child ended, and whether it was the command by then; or the exit code if
    /// everything was reported.
    fn until_command_ends(&mut self, watch: Watch) -> Result<(Ended, bool), i32> {
        match self.preparing(watch) {
            PreparingEnd::Exit(code) => Err(code),
            PreparingEnd::Ended { ended, was_command } => Ok((ended, was_command)),
            PreparingEnd::Running => {
                self.preparation.is_running = false;
                self.preparation.executed = Some(self.preparation.executed_by(Instant::now()));
                self.release_inherited();
                self.preparation.oom_kills = oom_kills();
                self.start_watcher();
                // At this point, little of the program's code is in memory, and the following loop needs
                // even less.
                memory::forget_own_code();
                let Some(ended) = self.until_child_ends() else { return Err(self.give_up()) };
                if self.preparation.could_not_run() {
                    return Err(ended.code());
                }
                Ok((ended, true))
            }
        }
    }

    /// Gives the account of the job's ports since the command was started, if the preparation has left a note for
    /// that, and returns the end with the code that follows from it. A child of PID 1 gives the account: it reads
    /// counters, which PID 1 itself does not do, and which may hang. Signals that arrive during this time are not
    /// forwarded: the command is gone.
    fn account(&self, end: CommandEnd) -> CommandEnd {
        let memory = self.preparation.note.as_deref();
        let note = memory.and_then(HandoffMemory::ports).unwrap_or_default();
        if note.is_empty() && end.oom_kills == 0 {
            return end;
        }
        let broken = end.of_broken_fabric(self.orders.supervision.fabric_exit_code);
        let give = |time, looks| {
            fork::within(time, || {
                keep_only(&[]);
                refuse_what_is_never_called();
                let ended = |outcome: AccountOutcome| {
                    let end = broken.as_ref().filter(|_| outcome == AccountOutcome::Broken).unwrap_or(&end);
                    end.line(Some(&self.command_name()))
                };
                let has_failed = end.ended != Ended::Exited(0) && end.code != 0;
                let at_end = AtEnd {
                    looks,
                    seen: memory.and_then(HandoffMemory::seen),
                    watcher_ended: self.watcher_ended,
                    ran: end.ran,
                    is_cut_short: has_failed || end.signal.is_some(),
                    is_out_of_memory: end.oom_kills > 0,
                    failed: if has_failed { Some(&ended) } else { None },
                };
                match (self.tasks.give_account)(&note, &at_end) {
                    AccountOutcome::Sound => 0,
                    AccountOutcome::Broken => BROKEN,
                }
            })
        };
        let answer = match give(ACCOUNT_PATIENCE, true) {
            // A driver hangs, but what the watcher has seen needs no driver.
            Err(NoAnswer::InTime) => give(SEEN_PATIENCE, false),
            answer => answer,
        };
        broken.filter(|_| answer == Ok(BROKEN)).unwrap_or(end)
    }
}
