//! Forwards signals to the command.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{SIGCHLD, SIGCONT, SIGINT, SIGQUIT, SIGTERM};
use nix::unistd::{Pid, getpgrp};

use super::supervisor::Supervisor;
use super::survivors::Reach;
use super::terminal;
use crate::log::Level;
use crate::sys::fork::{END_OF_UNSEEN, Ended};
use crate::sys::signals::{self, Forwarded, Received, Target};

/// The set of signals that were sent to the command: bit n-1 for signal n.
#[derive(Clone, Copy, Default)]
pub(super) struct SignalSet(u64);

impl SignalSet {
    pub(super) fn add(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    pub(super) fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }

    pub(super) fn signals(self) -> impl Iterator<Item = i32> {
        (1..=signals::LARGEST).filter(move |signal| self.has(*signal))
    }
}

/// How long after a forwarded signal a stop may still be its effect: a command that ignores it is not stopped by it.
const STOPPING: Duration = Duration::from_secs(10);

/// What has been forwarded so far.
#[derive(Default)]
pub(super) struct Forwarding {
    /// The signals that were sent to the main child.
    sent: SignalSet,
    last: Option<(i32, Instant)>,
    /// The first stop signal in its forwarded form, and when it arrived.
    stop: Option<(i32, Instant)>,
    /// Whether a signal has stopped the main child, and this process has not continued it.
    is_stopped: bool,
    warned_of_kill: bool,
    warned_of_value: bool,
}

impl Forwarding {
    pub(super) fn sent(&self) -> SignalSet {
        self.sent
    }

    /// Returns when the first stop signal arrived.
    pub(super) fn stop_asked_at(&self) -> Option<Instant> {
        self.stop.map(|(_, at)| at)
    }

    /// Returns the first stop signal in its forwarded form.
    pub(super) fn stop_asked(&self) -> Option<i32> {
        self.stop.map(|(signal, _)| signal)
    }

    /// Records a signal if it is a stop signal.
    pub(super) fn note_stop(&mut self, received: i32, forwarded: i32) {
        if self.stop.is_none() && (is_stop(received) || is_stop(forwarded)) {
            self.stop = Some((forwarded, Instant::now()));
        }
    }

    /// Handles a signal that has stopped the main child. If this process forwarded it, its sender can also send SIGCONT.
    pub(super) fn child_stopped(&mut self, child: Pid, signal: i32) {
        let is_recent = |(last, at): (i32, Instant)| last == signal && at.elapsed() < STOPPING;
        let is_forwarded = self.last.is_some_and(is_recent);
        // The next stop has another cause.
        self.last = self.last.filter(|_| !is_forwarded);
        self.is_stopped = !terminal::handle_stop(child, signal, is_forwarded);
    }

    /// Continues the main child after a stop signal, because a stopped process does not handle one.
    fn continue_stopped(&mut self, child: Pid) {
        if std::mem::take(&mut self.is_stopped) {
            terminal::resume(child);
        }
    }

    /// Returns the signal to name in the line about the end: the stop signal, or the signal that killed the
    /// command if the init forwarded it.
    pub(super) fn signal_behind(&self, ended: Ended) -> Option<(i32, Instant)> {
        let killer = self.last.filter(|(signal, _)| ended == Ended::Killed(*signal));
        self.stop.filter(|(signal, _)| self.sent.has(*signal)).or(killer)
    }
}

impl Supervisor {
    /// Forwards a signal, or reaps. Returns how the main child ended, if it did.
    pub(super) fn handle(&mut self, received: &Received) -> Option<Ended> {
        if received.signal() == SIGCHLD {
            return self.reap();
        }
        if received.signal() == END_OF_UNSEEN {
            // The kernel keeps only one of these signals: a user's may stand for both.
            self.reap_watcher();
        }
        if received.is_end_of_unseen() {
            return None;
        }
        let signal = self.orders.supervision.rewrite.of(received.signal())?;
        if signal == SIGCONT && self.reach == Reach::Descendants {
            // A shell's `fg` has continued this process, so the command gets the terminal back.
            terminal::hand_over(getpgrp(), self.child);
        }
        let target = match self.orders.supervision.kill_group {
            true => Target::Group(self.child),
            false => Target::Process(self.child),
        };
        match received.forward(target, signal) {
            Ok(how) => {
                self.forwarding.sent.add(signal);
                self.forwarding.last = Some((signal, Instant::now()));
                self.forwarding.is_stopped &= signal != SIGCONT;
                self.warn_of_value(signal, how);
            }
            // The command has ended, and its SIGCHLD is about to arrive.
            Err(Errno::ESRCH) => {}
            Err(error) => self.warn_of_kill(signal, error),
        }
        // Recorded even if the signal reached no process, because it asks the container to stop.
        self.forwarding.note_stop(received.signal(), signal);
        // A preparation has nothing to save.
        if (is_stop(received.signal()) || is_stop(signal)) && !self.preparation.is_running {
            self.forwarding.continue_stopped(self.child);
        }
        None
    }

    /// Warns once. An init without CAP_KILL cannot signal a child that changed its user, but that is not a
    /// reason for the init to exit.
    fn warn_of_kill(&mut self, signal: i32, error: Errno) {
        if std::mem::replace(&mut self.forwarding.warned_of_kill, true) {
            return;
        }
        let message = format!(
            "cannot forward {} to process {}: {}. If it changed its user, \
             start the container as that user or with the capability KILL.",
            signals::name(signal),
            self.child,
            error.desc()
        );
        self.orders.voice.say(Level::Error, &message);
    }

    fn warn_of_value(&mut self, signal: i32, how: Forwarded) {
        if how == Forwarded::Whole || std::mem::replace(&mut self.forwarding.warned_of_value, true) {
            return;
        }
        let message = format!(
            "the value that came with {} was not forwarded: to a process group (kill-group), only Linux 6.9 and later can send it.",
            signals::name(signal)
        );
        self.orders.voice.say(Level::Warn, &message);
    }
}

/// Returns whether container engines, schedulers, and people use this signal to stop a process.
fn is_stop(signal: i32) -> bool {
    [SIGTERM, SIGINT, SIGQUIT].contains(&signal)
}
