//! The loop of PID 1, or of a subreaper.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{SIGCHLD, SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpgrp, getpid, getppid};

use super::end::{End, Killed};
use super::link::{self, Link, News, Watch};
use super::orders::Orders;
use super::survivors::Reach;
use super::terminal;
use super::voice::Weight;
use crate::exit;
use crate::report::style::visible;
use crate::sys::exec::Image;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::memory;
use crate::sys::signals::{self, Disposition, Forwarded, Inherited, Received, Target};
use crate::sys::stdio::close_inherited;

/// What a process that was killed may take to go away. One that takes longer hangs
/// in the kernel, and waiting for it would hang the container, too.
const DYING: Duration = Duration::from_secs(5);

/// Runs `prepare` in a child, which becomes the command, and serves as its init.
/// Returns the code to exit with.
///
/// All signals must be blocked; `inherited` is what the command gets back.
/// `arguments` are the program's own: when the preparation does not come to an
/// end, the command after the first `--` is started as it is. `parent` is the one
/// that this process was started by. Elsewhere than in PID 1, the process becomes a
/// subreaper.
pub fn supervise(
    inherited: Inherited,
    arguments: Vec<CString>,
    orders: Orders,
    parent: Pid,
    prepare: impl FnOnce(&Link) -> i32,
) -> i32 {
    let started = Instant::now();
    let sigchld = signals::set_default(SIGCHLD);
    let reach = if std::process::id() == 1 { Reach::Namespace } else { Reach::Descendants };
    if reach == Reach::Descendants {
        // It fails only before Linux 3.4.
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }
    let (watch, link) = match link::pair() {
        Ok(pair) => pair,
        Err(error) => return cannot_start(&orders, "a pipe to the process that prepares the command", error),
    };
    // Asked now: in the child it may have been changed already.
    let group = getpgrp();
    let become_child = || {
        terminal::take_foreground(group);
        sigchld.restore();
        inherited.restore();
        prepare(&link)
    };
    let child = match fork::spawn(become_child) {
        Ok(child) => child,
        Err(error) => return cannot_start(&orders, "the process that prepares the command", error),
    };
    terminal::lead_group(child);
    drop(link);

    let mut supervisor = Supervisor {
        inherited,
        sigchld,
        arguments,
        reach,
        parent,
        started,
        orders,
        child,
        forwarded: SignalSet::default(),
        last_forwarded: None,
        stop: None,
        draining: None,
        not_run: false,
        replaced: None,
        untouched: None,
        killed: None,
        childless: false,
        may_not_kill: false,
        warned_of_kill: false,
        warned_of_value: false,
    };
    supervisor.follow(orders);
    let code = supervisor.until_the_end(watch);
    if reach == Reach::Descendants {
        // For whoever waits for us on this terminal.
        terminal::hand_over(supervisor.child, getpgrp());
    }
    code
}

fn cannot_start(orders: &Orders, what: &str, error: Errno) -> i32 {
    orders.voice.say(
        Weight::Error,
        &format!(
            "cannot create {what}: {error}. Is the container's limit of processes or open files too low?"
        ),
    );
    exit::FAILED
}

struct Supervisor {
    inherited: Inherited,
    sigchld: Disposition,
    arguments: Vec<CString>,
    reach: Reach,
    /// Our own, at the start.
    parent: Pid,
    started: Instant,
    orders: Orders,
    /// The main child: what it exits with, we exit with.
    child: Pid,
    /// What was sent to the child so far.
    forwarded: SignalSet,
    last_forwarded: Option<(i32, Instant)>,
    /// The first signal that asks for the end, and when it was forwarded.
    stop: Option<(i32, Instant)>,
    /// Since when others than the command are waited for.
    draining: Option<Instant>,
    /// The command could not be executed, as has been said.
    not_run: bool,
    /// The process of a preparation that was given up.
    replaced: Option<Pid>,
    /// Tells whether a command that was started without preparation could be executed.
    untouched: Option<Watch>,
    /// When everything that was left was killed, and why.
    killed: Option<(Killed, Instant)>,
    /// There is no child left, adopted ones included.
    childless: bool,
    /// The command has credentials that do not let us kill it.
    may_not_kill: bool,
    warned_of_kill: bool,
    warned_of_value: bool,
}

/// A set of signals: bit n-1 for signal n.
#[derive(Clone, Copy, Default)]
struct SignalSet(u64);

impl SignalSet {
    fn add(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }

    fn signals(self) -> impl Iterator<Item = i32> {
        (1..=signals::LARGEST).filter(move |signal| self.has(*signal))
    }
}

/// What the wait of the preparing stage ended with.
enum Event {
    Signal(Received),
    News(News),
    TimeUp,
    /// The kernel does not let us take signals.
    Deaf,
}

/// How the preparing stage ended.
enum Prepared {
    /// The command runs.
    Running,
    /// The main child is gone: the command, or what was to become it.
    Ended { ended: Ended, was_command: bool },
    /// All there is to say has been said: exit with this.
    Exit(i32),
}

impl Supervisor {
    fn until_the_end(&mut self, watch: Watch) -> i32 {
        let (ended, was_command) = match self.preparing(watch) {
            Prepared::Exit(code) => return code,
            Prepared::Ended { ended, was_command } => (ended, was_command),
            Prepared::Running => {
                self.leave_inherited_behind();
                // By now it is little, and the loop for the rest needs still less.
                memory::forget_own_code();
                let Some(ended) = self.until_child_ends() else { return self.gave_up() };
                if self.not_run || self.untouched.as_ref().is_some_and(|watch| watch.read() == News::NotRun) {
                    return ended.code();
                }
                (ended, true)
            }
        };
        let at = Instant::now();
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
        end.report(self.orders.voice);
        end.code
    }

    /// From the fork until the child has become the command, or is gone.
    fn preparing(&mut self, watch: Watch) -> Prepared {
        let Ok(pending) = signals::pending_fd() else {
            // Without it there is no deadline, but the container works.
            return Prepared::Running;
        };
        // While the child has the work; what the loop needs is read again.
        memory::forget_own_code();
        loop {
            match wait(&pending, &watch, self.preparing_wakes_at()) {
                Event::Signal(received) => {
                    // The orders that it is to be handled by may have come just before.
                    self.hear(&watch);
                    if let Some(ended) = self.handle(&received) {
                        return self.ended_early(ended, &watch);
                    }
                }
                Event::News(News::Orders(orders)) => self.follow(*orders),
                // Seen again, and said, where the end is waited for.
                Event::Deaf => return Prepared::Running,
                Event::News(News::NotRun) => self.not_run = true,
                Event::News(News::Nothing) => {}
                // By the exec; or, where the child never set out to exec, by its end.
                Event::News(News::Closed) => {
                    if !watch.claim_start() {
                        return Prepared::Running;
                    }
                    return match self.until_child_ends() {
                        Some(ended) => self.ended_unprepared(ended),
                        None => Prepared::Exit(self.gave_up()),
                    };
                }
                Event::TimeUp if self.killed.is_some() => return Prepared::Exit(self.gave_up()),
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
                Event::TimeUp => return Prepared::Running,
            }
        }
    }

    /// Reads what the child said and has not been read yet.
    fn hear(&mut self, watch: &Watch) {
        loop {
            match watch.read() {
                News::Orders(orders) => self.follow(*orders),
                News::NotRun => self.not_run = true,
                News::Nothing | News::Closed => return,
            }
        }
    }

    /// The child ended before the exec was seen.
    fn ended_early(&mut self, ended: Ended, watch: &Watch) -> Prepared {
        self.hear(watch);
        if watch.claim_start() {
            return self.ended_unprepared(ended);
        }
        match ended {
            // Not a program of this name that ends with 126 or 127.
            Ended::Exited(code) if self.not_run => Prepared::Exit(code),
            ended => Prepared::Ended { ended, was_command: !self.not_run },
        }
    }

    /// The child ended without having set out to exec.
    fn ended_unprepared(&mut self, ended: Ended) -> Prepared {
        match ended {
            // By no signal that came through us: our own program failed.
            Ended::Killed(signal) if !self.forwarded.has(signal) && self.killed.is_none() => {
                self.start_untouched(&format!("the preparation was killed by {}", signals::name(signal)))
            }
            Ended::Killed(_) => Prepared::Ended { ended, was_command: false },
            // It said why.
            Ended::Exited(code) => Prepared::Exit(code),
        }
    }

    /// Starts the command as it would have started without us, unless it must not
    /// start without the checks.
    fn start_untouched(&mut self, why: &str) -> Prepared {
        let voice = self.orders.voice;
        if let Some(code) = self.orders.terms.refuse {
            let message = format!(
                "{why}. Refusing to start the command (exit code {code}), as require-rdma or memlock = \"enforce\" asks."
            );
            voice.say(Weight::Error, &message);
            return Prepared::Exit(code);
        }
        let command = self.command().to_vec();
        if command.is_empty() {
            voice.say(Weight::Error, &format!("{why}."));
            return Prepared::Exit(exit::FAILED);
        }
        let message = format!(
            "{why}. The command is started as it would have been without rdma-init: \
             no variable is filled in and no limit is raised."
        );
        voice.say(Weight::Error, &message);
        let (inherited, sigchld) = (self.inherited, self.sigchld);
        let (watch, link) = match link::pair() {
            Ok((watch, link)) => (Some(watch), Some(link)),
            // The command is worth more than a better message.
            Err(_) => (None, None),
        };
        let before = self.child;
        let started = fork::spawn(|| {
            terminal::take_foreground(before);
            sigchld.restore();
            inherited.restore();
            let name = command.first().cloned().unwrap_or_default();
            let error = Image::new(command, crate::sys::environ::entries()).exec();
            let (message, code) = crate::run::exec_failed(OsStr::from_bytes(name.as_bytes()), error);
            voice.say(Weight::Error, &message);
            if let Some(link) = link {
                link.not_run();
            }
            code
        });
        match started {
            Ok(child) => {
                self.replaced = Some(before);
                self.untouched = watch;
                terminal::lead_group(child);
                self.child = child;
                // It starts with every signal blocked, so each of these counts as if
                // it had been sent at the start: a stop is still a stop, and what the
                // command inherits as ignored is still ignored.
                for signal in self.forwarded.signals() {
                    let _ = signals::kill(child, signal);
                }
                Prepared::Running
            }
            Err(error) => Prepared::Exit(cannot_start(&self.orders, "the command's process", error)),
        }
    }

    /// Goes by these from now on.
    fn follow(&mut self, orders: Orders) {
        self.orders = orders;
        if let Some(signal) = orders.supervision.parent_death_signal {
            signals::on_parent_death(signal);
            // It may have ended before.
            let parent = getppid();
            if std::mem::replace(&mut self.parent, parent) != parent {
                let _ = signals::kill(getpid(), signal);
            }
        }
    }

    /// Forwards and reaps until the main child has ended. `None` when it was killed,
    /// and does not go away.
    fn until_child_ends(&mut self) -> Option<Ended> {
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

    /// With the command gone, asks the others to end, once, and waits for them.
    /// Processes that came in from outside (`docker exec`) are asked as well, but
    /// nobody can wait for another's children.
    fn drain(&mut self) {
        if self.orders.supervision.drain_timeout.is_none() && self.killed.is_none() {
            return;
        }
        // More may have ended by now, without a signal of their own.
        self.reap();
        if self.childless {
            return;
        }
        if self.reach == Reach::Descendants {
            // For whoever waits for us on this terminal.
            terminal::hand_over(self.child, getpgrp());
        }
        if !self.reach.can_see() {
            let message = "cannot see which processes are left: /proc is not that of this PID namespace. They are not waited for.";
            self.orders.voice.say(Weight::Error, message);
            return;
        }
        if self.killed.is_none() {
            self.draining = Some(Instant::now());
            self.reach.signal(SIGTERM);
            // One that is stopped would never hear of it.
            self.reach.signal(SIGCONT);
        }
        while !self.childless {
            match signals::wait(self.wake_at()) {
                Ok(Some(received)) if received.signal() == SIGCHLD => {
                    self.reap();
                }
                // The command is gone, and its number may be another's by now.
                Ok(Some(received)) => {
                    if let Some(signal) = self.orders.supervision.rewrite.of(received.signal()) {
                        self.note_stop(received.signal(), signal);
                    }
                }
                Ok(None) if self.killed.is_some() => return,
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

    /// When the next thing is due that no signal tells of.
    fn wake_at(&self) -> Option<Instant> {
        match self.killed {
            Some((_, at)) if self.may_not_kill => Some(at),
            Some((_, at)) => at.checked_add(DYING),
            None => self.kill_due().map(|(_, at)| at),
        }
    }

    /// The same while the command is prepared, which has a deadline, too.
    fn preparing_wakes_at(&self) -> Option<Instant> {
        let deadline = self.orders.terms.deadline.and_then(|after| self.started.checked_add(after));
        deadline.filter(|_| self.killed.is_none()).into_iter().chain(self.wake_at()).min()
    }

    /// When everything that is left is to be killed, and why.
    fn kill_due(&self) -> Option<(Killed, Instant)> {
        let supervision = &self.orders.supervision;
        let of_stop = self
            .stop
            .zip(supervision.stop_timeout)
            .and_then(|((_, at), time)| Some((Killed::StopTimeout(time), at.checked_add(time)?)));
        let of_drain = self
            .draining
            .zip(supervision.drain_timeout)
            .and_then(|(at, time)| Some((Killed::DrainTimeout(time), at.checked_add(time)?)));
        [of_stop, of_drain].into_iter().flatten().min_by_key(|(_, at)| *at)
    }

    fn kill_all(&mut self) {
        if let Some((why, _)) = self.kill_due() {
            self.killed = Some((why, Instant::now()));
            self.reach.signal(SIGKILL);
        }
    }

    /// The command by itself, whose number is known even where no other process can be
    /// seen; and whether it may be killed at all.
    fn kill_command(&mut self) {
        self.may_not_kill = signals::kill(self.child, SIGKILL) == Err(Errno::EPERM);
    }

    /// A process that cannot even be killed hangs in the kernel, mostly in a driver.
    fn gave_up(&self) -> i32 {
        if self.may_not_kill {
            let message = format!(
                "process {} may not be killed: it has changed its user, and rdma-init has no capability KILL. Ending without it.",
                self.child
            );
            self.orders.voice.say(Weight::Error, &message);
            return self.orders.supervision.remap.of(exit::of_signal(SIGKILL));
        }
        let message = format!(
            "process {} does not end {DYING:?} after SIGKILL: it hangs in the kernel (a driver or a file system). Not waiting for it any longer.",
            self.child
        );
        self.orders.voice.say(Weight::Error, &message);
        self.orders.supervision.remap.of(exit::of_signal(SIGKILL))
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

    /// Forwards a signal, or reaps; returns how the main child ended.
    fn handle(&mut self, received: &Received) -> Option<Ended> {
        if received.signal() == SIGCHLD {
            return self.reap();
        }
        let signal = self.orders.supervision.rewrite.of(received.signal())?;
        if signal == SIGCONT && self.reach == Reach::Descendants {
            // After a shell's `fg`.
            terminal::hand_over(getpgrp(), self.child);
        }
        let target = match self.orders.supervision.kill_group {
            true => Target::Group(self.child),
            false => Target::Process(self.child),
        };
        match received.forward(target, signal) {
            Ok(how) => {
                self.forwarded.add(signal);
                self.last_forwarded = Some((signal, Instant::now()));
                self.warn_of_value(signal, how);
            }
            // It has ended; its SIGCHLD is on the way.
            Err(Errno::ESRCH) => {}
            Err(error) => self.warn_of_kill(signal, error),
        }
        // Also where it reached nobody: the container is asked to end.
        self.note_stop(received.signal(), signal);
        None
    }

    fn note_stop(&mut self, received: i32, forwarded: i32) {
        if self.stop.is_none() && (is_stop(received) || is_stop(forwarded)) {
            self.stop = Some((forwarded, Instant::now()));
        }
    }

    /// Once: a child that changed its user can get no signal from an init
    /// without CAP_KILL, and that is no reason to end.
    fn warn_of_kill(&mut self, signal: i32, error: Errno) {
        if std::mem::replace(&mut self.warned_of_kill, true) {
            return;
        }
        let message = format!(
            "cannot forward {} to process {}: {}. If it changed its user, \
             start the container as that user or with the capability KILL.",
            signals::name(signal),
            self.child,
            error.desc()
        );
        self.orders.voice.say(Weight::Error, &message);
    }

    fn warn_of_value(&mut self, signal: i32, how: Forwarded) {
        if how == Forwarded::Whole || std::mem::replace(&mut self.warned_of_value, true) {
            return;
        }
        let message = format!(
            "the value that came with {} was not forwarded: for a process group (kill-group) that takes Linux 6.9.",
            signals::name(signal)
        );
        self.orders.voice.say(Weight::Warning, &message);
    }

    /// Reaps every process that has ended, orphans included.
    fn reap(&mut self) -> Option<Ended> {
        let mut main = None;
        let mut orphans = false;
        loop {
            match fork::reap(self.reach == Reach::Descendants) {
                Reaped::Ended(pid, ended) if pid == self.child => main = Some(ended),
                Reaped::Ended(pid, ended) => {
                    orphans = true;
                    self.tell_of_orphan(pid, ended);
                }
                Reaped::Stopped(pid, signal) if pid == self.child => self.stop_along(signal),
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

    /// Job control, in front of a shell. Where ^Z stopped the command, the shell waits
    /// for the rest of the job to stop as well. Where the command was stopped because
    /// it wants the terminal, and `fg` has put us in front, it gets it.
    fn stop_along(&self, signal: i32) {
        let own = getpgrp();
        let wants_terminal = [SIGTTIN, SIGTTOU].contains(&signal);
        if wants_terminal && terminal::hand_over(own, self.child) {
            let _ = signals::kill(self.child, SIGCONT);
        } else if terminal::is_job()
            && (terminal::hand_over(self.child, own) || wants_terminal || signal == SIGTSTP)
        {
            // The others of a pipeline, too.
            let _ = signals::kill(Pid::from_raw(0), SIGSTOP);
        }
    }

    /// The signal that is to be named with the end: what asked for it, or what it was
    /// killed by, if that came through us.
    fn signal_behind(&self, ended: Ended) -> Option<(i32, Instant)> {
        let killer = self.last_forwarded.filter(|(signal, _)| ended == Ended::Killed(*signal));
        self.stop.filter(|(signal, _)| self.forwarded.has(*signal)).or(killer)
    }

    /// The command after the first `--`, with its arguments.
    fn command(&self) -> &[CString] {
        let dashes = self.arguments.iter().position(|argument| argument.as_bytes() == b"--");
        dashes.and_then(|dashes| self.arguments.get(dashes + 1..)).unwrap_or_default()
    }

    fn command_name(&self) -> String {
        let name = self.command().first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
        visible(&Path::new(name).file_name().unwrap_or(name).to_string_lossy())
    }

    /// Lets go of everything that PID 1 has no use for: descriptors that the
    /// command may want closed some day, and the folder it may want unmounted.
    /// Not before the command runs: PID 1 may have to start it.
    fn leave_inherited_behind(&self) {
        let own = self.untouched.as_ref().map(Watch::raw_fds);
        close_inherited(&mut own.into_iter().flatten().collect::<Vec<i32>>());
        let _ = nix::unistd::chdir("/");
    }
}

/// Signals by which container engines, schedulers and people ask for the end.
fn is_stop(signal: i32) -> bool {
    [SIGTERM, SIGINT, SIGQUIT].contains(&signal)
}

fn wait(pending: &OwnedFd, watch: &Watch, until: Option<Instant>) -> Event {
    loop {
        // A signal first: when the child has ended, it also explains the closed pipe.
        match signals::take() {
            Ok(Some(received)) => return Event::Signal(received),
            Ok(None) => {}
            Err(_) => return Event::Deaf,
        }
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Event::TimeUp;
                }
                // Rounded up, so that the wait does not end just before the time.
                PollTimeout::try_from(left.saturating_add(Duration::from_millis(1)))
                    .unwrap_or(PollTimeout::MAX)
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
