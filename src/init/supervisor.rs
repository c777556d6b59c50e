//! The loop of PID 1, or of a subreaper.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc::{SIGCHLD, SIGKILL};
use nix::unistd::{Pid, getpgrp};

use super::end::{End, Killed};
use super::execed::has_never_execed;
use super::forwarding::SignalSet;
use super::link::{self, Link, News, Watch};
use super::note::Note;
use super::orders::Orders;
use super::preparing::Prepared;
use super::sealed::Sealed;
use super::survivors::Reach;
use super::tasks::Tasks;
use super::terminal;
use super::voice::Weight;
use crate::exit;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::memory;
use crate::sys::signals::{self, Disposition, Inherited};
use crate::sys::stdio::close_inherited;
use crate::text::visible;

/// Runs `prepare` in a child, which becomes the command, and serves as its init.
/// Returns the code to exit with.
///
/// All signals must be blocked; `inherited` is what the command gets back.
/// `command` is what is started as it is where the preparation does not come to an
/// end; it may be empty. `parent` is the one that this process was started by.
/// Elsewhere than in PID 1, the process becomes a subreaper.
pub fn supervise(
    inherited: Inherited,
    command: Vec<CString>,
    orders: Orders,
    parent: Pid,
    tasks: Tasks,
    prepare: impl FnOnce(&Link) -> i32,
) -> i32 {
    let started = Instant::now();
    let sigchld = signals::set_default(SIGCHLD);
    let reach = if std::process::id() == 1 { Reach::Namespace } else { Reach::Descendants };
    if reach == Reach::Descendants {
        // It fails only before Linux 3.4.
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }
    let (mut watch, link) = match link::pair() {
        Ok(pair) => pair,
        Err(error) => return cannot_start(&orders, "a pipe to the process that prepares the command", error),
    };
    let state = State { inherited, sigchld };
    let child = match spawn(&state, getpgrp(), || prepare(&link)) {
        Ok(child) => child,
        Err(error) => return cannot_start(&orders, "the process that prepares the command", error),
    };
    drop(link);

    let mut supervisor = Supervisor {
        state,
        command,
        tasks,
        reach,
        parent,
        started,
        orders: Orders::default(),
        child,
        forwarded: SignalSet::default(),
        last_forwarded: None,
        stop: None,
        draining: None,
        not_run: false,
        is_preparing: true,
        never_execed: false,
        replaced: None,
        untouched: None,
        note: watch.take_note(),
        left: watch.take_state(),
        killed: None,
        childless: false,
        may_not_kill: false,
        warned_of_kill: false,
        warned_of_value: false,
    };
    supervisor.follow(orders);
    supervisor.until_the_end(watch)
}

/// What the command gets back before it is executed.
#[derive(Clone, Copy)]
pub(super) struct State {
    inherited: Inherited,
    sigchld: Disposition,
}

/// Starts a child in the state that was inherited, in a process group of its own, and
/// in the foreground of the terminal if the group `from` has it.
pub(super) fn spawn(state: &State, from: Pid, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    let child = fork::spawn(|| {
        terminal::take_foreground(from);
        state.sigchld.restore();
        state.inherited.restore();
        child()
    })?;
    terminal::lead_group(child);
    Ok(child)
}

pub(super) fn cannot_start(orders: &Orders, what: &str, error: Errno) -> i32 {
    orders.voice.say(
        Weight::Error,
        &format!(
            "cannot create {what}: {error}. Is the container's limit of processes or open files too low?"
        ),
    );
    exit::FAILED
}

/// What a supervisor knows. The stages are in modules of their own: `preparing`,
/// `forwarding`, `stopping`.
pub(super) struct Supervisor {
    pub(super) state: State,
    pub(super) command: Vec<CString>,
    pub(super) tasks: Tasks,
    pub(super) reach: Reach,
    /// Our own, at the start.
    pub(super) parent: Pid,
    pub(super) started: Instant,
    pub(super) orders: Orders,
    /// The main child: what it exits with, we exit with.
    pub(super) child: Pid,
    /// What was sent to the child so far.
    pub(super) forwarded: SignalSet,
    pub(super) last_forwarded: Option<(i32, Instant)>,
    /// The first signal that asks for the end, and when it was forwarded.
    pub(super) stop: Option<(i32, Instant)>,
    /// Since when others than the command are waited for.
    pub(super) draining: Option<Instant>,
    /// The command could not be executed, as has been said.
    pub(super) not_run: bool,
    /// What is reaped is looked at first: the main child may not be the command yet.
    pub(super) is_preparing: bool,
    /// The main child has ended, and had never executed anything: for certain.
    pub(super) never_execed: bool,
    /// The process of a preparation that was given up.
    pub(super) replaced: Option<Pid>,
    /// Tells whether a command that was started without preparation could be executed.
    pub(super) untouched: Option<Watch>,
    /// What the preparation has left for the end, until it turns out that it left nothing.
    pub(super) note: Option<Rc<Note>>,
    /// What the preparation has left for those who enter, where it has left something.
    pub(super) left: Option<Rc<Sealed>>,
    /// When everything that was left was killed, and why.
    pub(super) killed: Option<(Killed, Instant)>,
    /// There is no child left, adopted ones included.
    pub(super) childless: bool,
    /// The command has credentials that do not let us kill it.
    pub(super) may_not_kill: bool,
    pub(super) warned_of_kill: bool,
    pub(super) warned_of_value: bool,
}

impl Supervisor {
    fn until_the_end(&mut self, watch: Watch) -> i32 {
        let ended = self.until_command_ends(watch);
        let at = Instant::now();
        if self.reach == Reach::Descendants {
            // For whoever waits for us on this terminal.
            terminal::hand_over(self.child, getpgrp());
        }
        let (ended, was_command) = match ended {
            Ok(ended) => ended,
            Err(code) => return code,
        };
        // What comes during the drain is not behind the end.
        let signal = self.signal_behind(ended);
        self.drain();
        let end = End {
            command: was_command.then(|| self.command_name()),
            ended,
            code: self.orders.supervision.remap.of(ended.code()),
            ran: at - self.started,
            signal: signal.map(|(signal, when)| (signal, at.saturating_duration_since(when))),
            killed: self.killed.map(|(why, _)| why),
        };
        if was_command {
            self.account(end.ran);
        }
        end.report(self.orders.voice);
        end.code
    }

    /// How the main child ended, and whether it was the command by then; or the code to
    /// exit with, where all has been said.
    fn until_command_ends(&mut self, watch: Watch) -> Result<(Ended, bool), i32> {
        match self.preparing(watch) {
            Prepared::Exit(code) => Err(code),
            Prepared::Ended { ended, was_command } => Ok((ended, was_command)),
            Prepared::Running => {
                self.is_preparing = false;
                self.leave_inherited_behind();
                // By now it is little, and the loop for the rest needs still less.
                memory::forget_own_code();
                let Some(ended) = self.until_child_ends() else { return Err(self.gave_up()) };
                let not_run = |watch: &Watch| watch.read() == News::NotRun;
                if self.not_run || self.untouched.as_ref().is_some_and(not_run) {
                    return Err(ended.code());
                }
                Ok((ended, true))
            }
        }
    }

    /// Goes by these from now on.
    pub(super) fn follow(&mut self, orders: Orders) {
        let before = std::mem::replace(&mut self.orders, orders).supervision.parent_death_signal;
        if let Some(signal) = orders.supervision.parent_death_signal
            && before != Some(signal)
        {
            signals::on_parent_death(signal, self.parent);
        }
    }

    /// Forwards and reaps until the main child has ended. `None` when it was killed,
    /// and does not go away.
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
                    // It may have ended at the last moment.
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

    /// Where the kernel lets nobody wait for signals, at least the end is seen.
    fn only_reap(&mut self, error: Errno) -> Option<Ended> {
        let message = format!(
            "cannot wait for signals ({}, rt_sigtimedwait): none is forwarded from now on. Does a seccomp filter forbid it?",
            error.desc()
        );
        self.orders.voice.say(Weight::Error, &message);
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
        // What a parent had no time to start when the tree was walked.
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
            self.orders.voice.say(Weight::Warning, &message);
        }
    }

    fn command_name(&self) -> String {
        let name = self.command.first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
        visible(&Path::new(name).file_name().unwrap_or(name).to_string_lossy())
    }

    /// Lets go of everything that PID 1 has no use for: descriptors that the
    /// command may want closed some day, and the folder it may want unmounted.
    /// Not before the command runs: PID 1 may have to start it.
    fn leave_inherited_behind(&mut self) {
        self.note.take_if(|note| note.text().is_none());
        let own = self.untouched.as_ref().map(Watch::raw_fds).into_iter().flatten();
        self.left.take_if(|left| !left.is_sealed());
        let kept = self.note.as_deref().map(Note::raw_fd).into_iter();
        let kept = kept.chain(self.left.as_deref().map(Sealed::raw_fd));
        close_inherited(&mut own.chain(kept).collect::<Vec<i32>>());
        let _ = nix::unistd::chdir("/");
    }
}
