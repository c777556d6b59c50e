//! The watcher of the job's ports: a process beside the command. PID 1 starts it, and kills it at the end.

use nix::libc::SIGKILL;
use nix::unistd::Pid;

use super::note::HandoffMemory;
use super::supervisor::Supervisor;
use crate::log::Level;
use crate::sys::fork;
use crate::sys::signals;

impl Supervisor {
    /// Starts the watcher, if the orders ask for it and the preparation has left ports to watch. Its end changes
    /// nothing: no wait for children sees it, and it leaves no signal.
    pub(super) fn start_watcher(&mut self) {
        if !self.orders.supervision.watch {
            return;
        }
        let Some(note) = self.preparation.note.clone() else { return };
        let (watch, supervisor) = (self.tasks.watch, Pid::this());
        let started = fork::spawn_unseen(|| {
            // A supervisor that is killed cannot kill the watcher.
            signals::on_parent_death(SIGKILL, supervisor);
            if let Some(note) = HandoffMemory::traffic(&note) {
                watch(&note);
            }
            0
        });
        match started {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                let message =
                    format!("cannot start the watcher ({}): the ports are not watched.", error.desc());
                self.orders.voice.say(Level::Warn, &message);
            }
        }
    }

    /// Kills the watcher, and does not wait for it: it may hang in a driver.
    pub(super) fn end_watcher(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            let _ = signals::kill(watcher, SIGKILL);
        }
    }
}
