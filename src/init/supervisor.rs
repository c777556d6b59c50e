//! The state of a supervisor, and how it waits and reaps in every stage.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::SIGKILL;
use nix::unistd::Pid;

use super::execed::has_never_execed;
use super::forwarding::Forwarding;
use super::orders::{Orders, Refusal};
use super::preparing::Preparation;
use super::stopping::Stopping;
use super::survivors::Reach;
use crate::log::Level;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::signals;
use crate::sys::stdio::close_inherited;
use crate::text::visible;

/// Keeps what the watcher leaves.
pub(crate) type Leave<'a> = &'a dyn Fn(Left);

/// What the watcher leaves in the memory that it shares with its supervisor.
pub(crate) enum Left<'a> {
    /// When it looked, since the start of the command, and what it has seen if that is new.
    Looked(Duration, Option<&'a [u8]>),
    /// Whether it wants to know how the command ended.
    AwaitsEnd(bool),
}

/// Functions that higher modules pass down: what the supervisor's other child processes do, and what the
/// supervisor reports when it refuses. While PID 1 supervises, only its children call the first four.
#[derive(Clone, Copy)]
pub(crate) struct Tasks {
    /// Becomes the command with the decision. If that fails, reports it and returns the exit code.
    pub execute_decided: fn(&[u8], Vec<CString>, Option<Refusal>) -> i32,
    /// Becomes the command as it would have started without rdma-init.
    pub execute_untouched: fn(Vec<CString>) -> i32,
    /// Gives the account of the ports that this note names, at the end of the job. The note of a job without ports is
    /// empty.
    pub give_account: fn(&[u8], &AtEnd) -> AccountOutcome,
    /// Watches the ports that this note names until its process is killed. It gets how long ago the command was
    /// started, and leaves what it has seen for the account.
    pub watch: fn(&[u8], Duration, Leave),
    /// The sentence that says why the command is refused, with the exit code.
    pub refusing: fn(&str, i32) -> String,
    /// Writes the reason to where Kubernetes shows it, in a child. Returns the message to report if that
    /// fails.
    pub leave_reason: fn(&str) -> Option<String>,
}

/// What the account goes by, besides the note of the preparation.
pub(crate) struct AtEnd<'a> {
    /// Whether to look at the ports once more.
    pub looks: bool,
    /// When the watcher looked last, and what it has seen, if it has left that.
    pub seen: Option<(Duration, Vec<u8>)>,
    /// Whether the watcher ended before the command.
    pub watcher_ended: bool,
    /// From the start of the command to its end.
    pub ran: Duration,
    /// Whether the command failed, or got a signal to end before it did.
    pub is_cut_short: bool,
    /// Whether the kernel killed processes of the container because memory ran out.
    pub is_out_of_memory: bool,
    /// If the command has failed: returns how it ended, as a sentence, if the fabric broke or did not.
    pub failed: Option<&'a dyn Fn(AccountOutcome) -> String>,
}

/// What the supervisor learns of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccountOutcome {
    Sound,
    /// A link went down, a queue pair failed, or an HCA is gone or cannot be read.
    Broken,
}

/// What a supervisor knows in every stage. What belongs to one stage is in the module of that
/// stage.
pub(super) struct Supervisor {
    pub(super) command: Vec<CString>,
    pub(super) tasks: Tasks,
    pub(super) reach: Reach,
    /// The process that started this one.
    pub(super) parent: Pid,
    pub(super) orders: Orders,
    /// The main child. Its exit code becomes the exit code of this process.
    pub(super) child: Pid,
    /// Whether no child is left, including adopted ones.
    pub(super) childless: bool,
    pub(super) preparation: Preparation,
    pub(super) forwarding: Forwarding,
    pub(super) stopping: Stopping,
    pub(super) watcher: Option<Pid>,
    /// Whether the watcher ended before the command.
    pub(super) watcher_ended: bool,
}

impl Supervisor {
    /// Follows these orders from now on.
    pub(super) fn follow(&mut self, orders: Orders) {
        let before = std::mem::replace(&mut self.orders, orders).supervision.parent_death_signal;
        if let Some(signal) = orders.supervision.parent_death_signal
            && before != Some(signal)
        {
            signals::on_parent_death(signal, self.parent);
        }
    }

    /// Forwards signals and reaps until the main child has ended. `None` if the child was killed but does
    /// not disappear.
    pub(super) fn until_child_ends(&mut self) -> Option<Ended> {
        loop {
            match signals::wait(self.wake_at()) {
                Ok(Some(received)) => {
                    if let Some(ended) = self.handle(&received) {
                        return Some(ended);
                    }
                }
                Ok(None) if self.stopping.has_killed() => return None,
                Ok(None) => {
                    // The child may have ended at the last moment.
                    if let Some(ended) = self.reap() {
                        return Some(ended);
                    }
                    self.kill_all();
                    self.kill_command();
                }
                Err(error) => return self.only_reap(error),
            }
        }
    }

    /// Waits for the end of the child if the kernel does not let this process wait for signals.
    fn only_reap(&mut self, error: Errno) -> Option<Ended> {
        let message = format!(
            "cannot wait for signals ({}, rt_sigtimedwait): none is forwarded from now on. Check whether a seccomp filter forbids it.",
            error.desc()
        );
        self.orders.voice.say(Level::Error, &message);
        loop {
            match fork::wait_and_reap() {
                Reaped::Ended(pid, ended) if pid == self.child => return Some(ended),
                Reaped::NoSuchChild => return None,
                _ => {}
            }
        }
    }

    /// Reaps every process that has ended, orphans included.
    pub(super) fn reap(&mut self) -> Option<Ended> {
        let mut main = None;
        let mut orphans = false;
        loop {
            match self.reap_one() {
                Reaped::Ended(pid, ended) if pid == self.child => main = Some(ended),
                Reaped::Ended(pid, ended) => {
                    orphans = true;
                    self.report_orphan(pid, ended);
                }
                Reaped::Stopped(pid, signal) if pid == self.child => {
                    self.forwarding.child_stopped(pid, signal);
                }
                Reaped::Stopped(..) => {}
                Reaped::Running => break,
                Reaped::NoSuchChild => {
                    self.childless = true;
                    break;
                }
            }
        }
        self.reap_watcher();
        // While a parent was being killed, it may have started children that the walk through the process
        // tree missed.
        if self.stopping.has_killed() && self.reach == Reach::Descendants && (orphans || main.is_some()) {
            self.reach.signal(SIGKILL);
        }
        main
    }

    fn reap_one(&mut self) -> Reaped {
        match self.preparation.is_running {
            false => fork::reap(),
            true => fork::reap_after(|pid| {
                self.preparation.never_execed |= pid == self.child && has_never_execed(pid);
            }),
        }
    }

    fn report_orphan(&self, pid: Pid, ended: Ended) {
        if self.orders.supervision.warn_on_reap && self.preparation.replaced != Some(pid) {
            let how = match ended {
                Ended::Exited(code) => format!("exit code {code}"),
                Ended::Killed(signal) => signals::name(signal),
            };
            let message = format!("reaped process {pid} ({how}), which is not the command.");
            self.orders.voice.say(Level::Warn, &message);
        }
    }

    pub(super) fn command_name(&self) -> String {
        let name = self.command.first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
        visible(&Path::new(name).file_name().unwrap_or(name).to_string_lossy())
    }

    /// Closes everything that PID 1 does not need: descriptors that the command may later want closed, and
    /// the working directory, which it may want unmounted. Call this only once the command is running:
    /// until then, PID 1 may have to start it.
    pub(super) fn release_inherited(&mut self) {
        let mut kept = self.preparation.descriptors_for_later();
        close_inherited(&mut kept);
        let _ = nix::unistd::chdir("/");
    }
}
