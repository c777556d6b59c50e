//! The watcher of the job's ports: a process beside the command. PID 1 starts it, and kills it at the end.

use std::time::Duration;

use nix::libc::{SIGKILL, SIGSTOP};
use nix::sys::prctl::set_name;
use nix::unistd::Pid;

use super::note::HandoffMemory;
use super::supervisor::{Left, Supervisor};
use super::survivors::{Reach, kill_children_of};
use crate::log::Level;
use crate::state::run::WATCHER;
use crate::sys::capabilities::keep_only;
use crate::sys::farewell;
use crate::sys::fork::{self, Ended};
use crate::sys::signals;

/// How long a supervisor waits for the end of a watcher that it has told how the command ended: its own command, that
/// of `on-finding`, gets two seconds for what it is doing, and the rest is for its end.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The same if all processes are about to be killed; and the wait of a supervisor that is not PID 1 for a watcher that
/// it has killed.
pub(super) const SHORT_PATIENCE: Duration = Duration::from_millis(100);

impl Supervisor {
    /// Starts the watcher, if the orders request it and the preparation saved ports to watch. No wait for children
    /// returns it, and its end is only reported.
    pub(super) fn start_watcher(&mut self) {
        if !self.orders.supervision.watch {
            return;
        }
        let Some(memory) = self.preparation.note.clone() else { return };
        let (watch, supervisor) = (self.tasks.watch, Pid::this());
        let started = self.preparation.executed.unwrap_or(self.preparation.started);
        let watcher = fork::spawn_unseen(|| {
            let _ = set_name(WATCHER);
            // A supervisor that is killed cannot kill the watcher.
            signals::on_parent_death(SIGKILL, supervisor);
            // The watcher needs no capabilities: all users may read what it reads.
            keep_only(&[]);
            if let Some(note) = memory.ports() {
                watch(&note, started.elapsed(), &|left| match left {
                    Left::Looked(at, seen) => memory.leave_seen(at, seen),
                    Left::AwaitsEnd(awaits) => memory.leave_awaits_end(awaits),
                });
            }
            0
        });
        match watcher {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                let message = format!(
                    "cannot start the watcher ({error:?}, {}): the ports are not watched.",
                    error.desc()
                );
                self.orders.voice.say(Level::Warn, &message);
            }
        }
    }

    /// Reaps the watcher if it has ended by itself, and says so: nobody else would notice that it is silent.
    pub(super) fn reap_watcher(&mut self) {
        let Some(watcher) = self.watcher else { return };
        if fork::reap_unseen(watcher, Duration::ZERO) {
            self.watcher = None;
            self.watcher_ended = true;
            let message = "the watcher has ended before the command: the ports are not watched any more.";
            self.orders.voice.say(Level::Warn, message);
        }
    }

    /// Ends the watcher, which from then on does not count as one that ended by itself. One that wants to know how the
    /// command ended, or how it is about to end, because it tells that to the job's other nodes
    /// or has a command of its own, is told, and ends by itself. Otherwise, or after `patience`, kills it. When PID
    /// 1 exits, the kernel ends the watcher. Below another PID 1, which may not reap anything, this process reaps it.
    /// The watcher may hang in a driver, so the wait is short.
    pub(super) fn end_watcher(&mut self, ended: Option<Ended>, patience: Duration) {
        self.reap_watcher();
        let Some(watcher) = self.watcher.take() else { return };
        let awaits_end = self.preparation.note.as_deref().is_some_and(HandoffMemory::awaits_end);
        if let Some(ended) = ended.filter(|_| awaits_end)
            && farewell::tell(watcher, ended).is_ok()
            && fork::reap_unseen(watcher, patience)
        {
            return;
        }
        if self.reach == Reach::Descendants {
            // A command that root executes regains the capabilities that the watcher dropped, and the
            // kernel then clears its parent-death signal. A stopped watcher starts no more commands.
            let _ = signals::kill(watcher, SIGSTOP);
            kill_children_of(watcher);
        }
        let _ = signals::kill(watcher, SIGKILL);
        if self.reach == Reach::Descendants {
            fork::reap_unseen(watcher, SHORT_PATIENCE);
        }
    }
}
