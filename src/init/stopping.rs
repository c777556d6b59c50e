//! The last stage: which processes remain, how long they may take, and when they are killed.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{SIGCHLD, SIGCONT, SIGKILL, SIGTERM};

use super::end::Killed;
use super::supervisor::Supervisor;
use super::survivors::{name_descendants, signal_descendants};
use super::watcher::SHORT_PATIENCE;
use crate::exit;
use crate::log::Level;
use crate::sys::fork::Ended;
use crate::sys::signals;

/// How long a killed process may take to disappear. One that takes longer hangs in the kernel, and the
/// container would hang if it waited for it.
const DYING: Duration = Duration::from_secs(5);

/// The state of this stage.
#[derive(Default)]
pub(super) struct Stopping {
    /// When the wait for processes other than the command began.
    draining: Option<Instant>,
    /// When all remaining processes were killed, and why.
    killed: Option<(Killed, Instant)>,
    /// The processes that were left just before that.
    pub(super) left: Vec<String>,
    /// Whether the command has credentials that do not let this process kill it.
    may_not_kill: bool,
}

impl Stopping {
    pub(super) fn has_killed(&self) -> bool {
        self.killed.is_some()
    }

    /// Returns why all remaining processes were killed, if they were.
    pub(super) fn why_killed(&self) -> Option<Killed> {
        self.killed.map(|(why, _)| why)
    }
}

impl Supervisor {
    /// After the command has ended, asks all other processes to end, once, and waits for them. Processes
    /// from outside (`docker exec`) are asked as well, but they are not children of PID 1, so it cannot
    /// wait for them.
    pub(super) fn drain(&mut self) {
        if self.orders.supervision.drain_timeout.is_none() && !self.stopping.has_killed() {
            return;
        }
        // More processes may have ended by now, because signals can merge.
        self.reap();
        if self.childless {
            return;
        }
        if !self.reach.can_see() {
            let message = "cannot see which processes are left: /proc is not that of this PID namespace. rdma-init does not wait for them.";
            self.orders.voice.say(Level::Error, message);
            return;
        }
        if !self.stopping.has_killed() {
            self.stopping.draining = Some(Instant::now());
            // torchrun abandons its workers if it gets a second SIGTERM.
            match self.orders.supervision.kill_group && self.forwarding.sent().has(SIGTERM) {
                true => signal_descendants(SIGTERM, Some(self.child)),
                false => self.reach.signal(SIGTERM),
            }
            // A stopped process does not handle SIGTERM until it is continued.
            self.reach.signal(SIGCONT);
        }
        while !self.childless {
            match signals::wait(self.wake_at()) {
                Ok(Some(received)) if received.signal() == SIGCHLD => {
                    self.reap();
                }
                // The watcher has ended before, and its signal was on its way.
                Ok(Some(received)) if received.is_end_of_unseen() => {}
                // The signal is not forwarded: the command is gone, and another process may have its PID by
                // now.
                Ok(Some(received)) => {
                    if let Some(signal) = self.orders.supervision.rewrite.of(received.signal()) {
                        self.forwarding.note_stop(received.signal(), signal);
                    }
                }
                Ok(None) if self.stopping.has_killed() => return,
                Ok(None) => {
                    self.reap();
                    if !self.childless {
                        self.kill_all();
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Returns the next deadline. No signal announces a deadline.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.stopping.killed {
            Some((_, at)) if self.stopping.may_not_kill => Some(at),
            Some((_, at)) => at.checked_add(DYING),
            None => self.kill_due().map(|(_, at)| at),
        }
    }

    /// Returns when all remaining processes must be killed, and why.
    pub(super) fn kill_due(&self) -> Option<(Killed, Instant)> {
        let supervision = &self.orders.supervision;
        let of_stop = self
            .forwarding
            .stop_asked_at()
            .zip(supervision.stop_timeout)
            .and_then(|(at, time)| Some((Killed::StopTimeout(time), at.checked_add(time)?)));
        let of_drain = self
            .stopping
            .draining
            .zip(supervision.drain_timeout)
            .and_then(|(at, time)| Some((Killed::DrainTimeout(time), at.checked_add(time)?)));
        [of_stop, of_drain].into_iter().flatten().min_by_key(|(_, at)| *at)
    }

    pub(super) fn kill_all(&mut self) {
        if let Some((why, _)) = self.kill_due() {
            // The signal reaches every process, so the watcher ends before it, and can still tell the job's other nodes
            // how the command ends.
            self.end_watcher(Some(Ended::Killed(SIGKILL)), SHORT_PATIENCE);
            self.reap();
            self.stopping.left = name_descendants();
            self.stopping.killed = Some((why, Instant::now()));
            self.reach.signal(SIGKILL);
        }
    }

    /// Kills the command by its PID, which is known even if no other process is visible. Records whether
    /// this process lacks the permission.
    pub(super) fn kill_command(&mut self) {
        self.stopping.may_not_kill = signals::kill(self.child, SIGKILL) == Err(Errno::EPERM);
    }

    /// Gives up waiting for killed processes: a process that does not disappear hangs in the kernel,
    /// usually in a driver.
    pub(super) fn gave_up(&self) -> i32 {
        let child = self.child;
        let message = if self.stopping.may_not_kill {
            format!(
                "process {child} cannot be killed: it has changed its user, and rdma-init has no capability KILL. rdma-init exits without it."
            )
        } else {
            format!(
                "process {child} is still alive {DYING:?} after SIGKILL: it hangs in the kernel (a driver or a file system). rdma-init no longer waits for it."
            )
        };
        self.orders.voice.say(Level::Error, &message);
        self.orders.supervision.remap.of(exit::of_signal(SIGKILL))
    }
}
