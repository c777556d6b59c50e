//! What a supervisor knows, and how it waits and reaps in every stage.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc::SIGKILL;
use nix::unistd::Pid;

use super::end::Killed;
use super::execed::has_never_execed;
use super::link::Watch;
use super::note::Note;
use super::orders::Orders;
use super::sealed::Sealed;
use super::signal_set::SignalSet;
use super::spawn::Inheritance;
use super::survivors::Reach;
use super::tasks::Tasks;
use super::terminal;
use crate::log::Level;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::signals::{self};
use crate::sys::stdio::close_inherited;
use crate::text::visible;

/// What a supervisor knows. The stages are in modules of their own: `preparing`,
/// `forwarding`, `stopping`.
pub(super) struct Supervisor {
    pub(super) inheritance: Inheritance,
    pub(super) command: Vec<CString>,
    pub(super) tasks: Tasks,
    pub(super) reach: Reach,
    /// The process that started us.
    pub(super) parent: Pid,
    pub(super) started: Instant,
    pub(super) orders: Orders,
    /// The main child. Its exit code becomes ours.
    pub(super) child: Pid,
    /// The signals that were sent to the child so far.
    pub(super) forwarded: SignalSet,
    pub(super) last_forwarded: Option<(i32, Instant)>,
    /// The first signal that asks for the end, and when it was forwarded.
    pub(super) stop: Option<(i32, Instant)>,
    /// When the wait for other processes than the command began.
    pub(super) draining: Option<Instant>,
    /// The command could not be executed, and somebody has said so.
    pub(super) not_run: bool,
    /// The preparation still runs, so the main child may not be the command yet. A child that
    /// has ended is then looked at before it is reaped.
    pub(super) is_preparing: bool,
    /// The main child has ended, and certainly had never executed anything.
    pub(super) never_execed: bool,
    /// The process of a preparation that was given up.
    pub(super) replaced: Option<Pid>,
    /// Tells whether a command that was started without preparation could be executed.
    pub(super) untouched: Option<Watch>,
    /// The preparation's note for the end; `None` once it is known that there is none.
    pub(super) note: Option<Rc<Note>>,
    /// The state that the preparation has left for processes that enter, if it has left one.
    pub(super) left: Option<Rc<Sealed>>,
    /// When all remaining processes were killed, and why.
    pub(super) killed: Option<(Killed, Instant)>,
    /// There is no child left, adopted ones included.
    pub(super) childless: bool,
    /// The command has credentials that do not let us kill it.
    pub(super) may_not_kill: bool,
    pub(super) warned_of_kill: bool,
    pub(super) warned_of_value: bool,
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

    /// Forwards signals and reaps until the main child has ended. `None` when the child was
    /// killed, and does not go away.
    pub(super) fn until_child_ends(&mut self) -> Option<Ended> {
        loop {
            match signals::wait(self.wake_at()) {
                Ok(Some(received)) => {
                    if let Some(ended) = self.handle(&received) {
                        return Some(ended);
                    }
                }
                Ok(None) if self.killed.is_some() => return None,
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

    /// When the kernel lets nobody wait for signals, this at least notices the end of the
    /// child.
    fn only_reap(&mut self, error: Errno) -> Option<Ended> {
        let message = format!(
            "cannot wait for signals ({}, rt_sigtimedwait): none is forwarded from now on. Does a seccomp filter forbid it?",
            error.desc()
        );
        self.orders.voice.say(Level::Error, &message);
        loop {
            match fork::wait_and_reap() {
                Reaped::Ended(pid, ended) if pid == self.child => return Some(ended),
                Reaped::Childless => return None,
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
                    self.tell_of_orphan(pid, ended);
                }
                Reaped::Stopped(pid, signal) if pid == self.child => terminal::stop_along(self.child, signal),
                Reaped::Stopped(..) => {}
                Reaped::Running => break,
                Reaped::Childless => {
                    self.childless = true;
                    break;
                }
            }
        }
        // A parent that was being killed may have started children that the walk of the tree
        // did not see.
        if self.killed.is_some() && self.reach == Reach::Descendants && (orphans || main.is_some()) {
            self.reach.signal(SIGKILL);
        }
        main
    }

    fn reap_one(&mut self) -> Reaped {
        let stops = self.reach == Reach::Descendants;
        match self.is_preparing {
            false => fork::reap(stops),
            true => {
                fork::reap_after(stops, |pid| self.never_execed |= pid == self.child && has_never_execed(pid))
            }
        }
    }

    fn tell_of_orphan(&self, pid: Pid, ended: Ended) {
        if self.orders.supervision.warn_on_reap && self.replaced != Some(pid) {
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

    /// Closes everything that PID 1 has no use for: descriptors that the command may want
    /// closed some day, and the working folder, which it may want unmounted. Call this only
    /// once the command runs: until then PID 1 may have to start it.
    pub(super) fn leave_inherited_behind(&mut self) {
        self.note.take_if(|note| note.traffic().is_none());
        let own = self.untouched.as_ref().map(Watch::raw_fds).into_iter().flatten();
        self.left.take_if(|left| !left.is_sealed());
        let kept = self.note.as_deref().map(Note::raw_fd).into_iter();
        let kept = kept.chain(self.left.as_deref().map(Sealed::raw_fd));
        close_inherited(&mut own.chain(kept).collect::<Vec<i32>>());
        let _ = nix::unistd::chdir("/");
    }
}
