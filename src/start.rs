//! From `main` to the exec.

use std::cell::Cell;
use std::ffi::CString;
use std::panic::PanicHookInfo;

use nix::unistd::{Pid, getppid};

use crate::apply::environment;
use crate::cli::Action;
use crate::cli::foreseen;
use crate::cli::usage::{self, command_of};
use crate::commands;
use crate::config::{self, Config};
use crate::exit;
use crate::facts::environment::Environment;
use crate::facts::start::SupervisedBy;
use crate::init::{self, Alone, DEFAULT_PREPARE_TIMEOUT, FailureOrders, Link, Orders, Refusal, Tasks};
use crate::log::{Level, Log, say};
use crate::pipeline::{self, PartialPreparation, Prepared};
use crate::sys::environ;
use crate::sys::exec::PreparedExec;
use crate::sys::fork::{exit_now, wait_to_be_killed};
use crate::sys::signals::{self, Inherited, block_all, survive_limit_of_files};
use crate::sys::stdio::reserve_closed;
use crate::sys::take_over::{self, Cause, ForEach, Guarded, Reason, Refused};
use crate::sys::user;
use crate::text::sentence;

/// Runs the program; all signals must be blocked. Returns the exit code.
pub fn start(inherited: Inherited) -> i32 {
    // The default hook would block on a full pipe without a reader. The process is then killed by SIGABRT, and what
    // monitors the preparation starts the command, or refuses it, as after any other crash.
    std::panic::set_hook(Box::new(|panic| {
        report(panic);
        std::process::abort();
    }));
    let parent = getppid();
    reserve_closed();
    if user::has_lent_rights() {
        say(LENT);
        return exit::FAILED;
    }
    survive_limit_of_files();
    usage::name_program_in_texts();
    let arguments = environ::arguments();
    if std::process::id() == 1 {
        return supervised(inherited, arguments, Orders::default(), parent);
    }
    match in_place(inherited, &arguments, parent, None) {
        Done::Code(code) => code,
        Done::Supervise(orders) => {
            block_all();
            supervised(inherited, arguments, *orders, parent)
        }
    }
}

/// Does the work in this process. With `alone`, no child could be started, and this process starts the
/// command unprepared or refuses it.
fn in_place(inherited: Inherited, arguments: &[CString], parent: Pid, alone: Option<&Alone>) -> Done {
    inherited.restore();
    let guarded = command_of(arguments).map(|command| {
        let image = PreparedExec::new(command.to_vec(), environ::entries());
        Guarded::start(DEFAULT_PREPARE_TIMEOUT, image, inherited, ForEach::cause(untouched))
    });
    work(arguments, &Guard { alone, ..Guard::new(Watcher::InPlace(guarded.as_ref(), parent)) })
}

/// The message if the program's file is setuid, setgid, or has capabilities it must not have. A user
/// that starts such a program chooses with flags and variables what it reads and writes.
const LENT: &str = "refusing to run: this program's file gives the rights of another user to all users who start \
    it, and they could read and overwrite files with these rights. Remove them from the file, as root: chmod ug-s FILE; \
    setcap -r FILE. The one capability that it may have is cap_ipc_lock.";

/// Does the work in a child, under an init; in this process if it cannot start a child.
fn supervised(inherited: Inherited, arguments: Vec<CString>, orders: Orders, parent: Pid) -> i32 {
    let command = command_of(&arguments).unwrap_or_default().to_vec();
    // Determined before the fork: if the init is gone, its child gets another parent, which may be PID 1.
    let keeper = if std::process::id() == 1 { SupervisedBy::Pid1 } else { SupervisedBy::Subreaper };
    // The work asks for supervision only if there is no init yet.
    let code = |done| match done {
        Done::Code(code) => code,
        Done::Supervise(_) => exit::FAILED,
    };
    let supervised = init::supervise(inherited, command, orders, parent, TASKS, |link| {
        code(work(&arguments, &Guard::new(Watcher::Link(link, keeper))))
    });
    supervised.unwrap_or_else(|alone| code(in_place(inherited, &arguments, parent, Some(&alone))))
}

/// What the other children of an init do.
const TASKS: Tasks = Tasks {
    execute_decided: pipeline::execute_decided,
    execute_untouched: pipeline::execute_untouched,
    give_account: pipeline::give_account,
    watch: pipeline::watch,
    refusing: pipeline::refusing,
    leave_reason: pipeline::leave_reason,
};

/// The outcome of the work if the process did not become the command.
enum Done {
    Code(i32),
    /// This process must become the init of a child that does the work.
    Supervise(Box<Orders>),
}

/// Returns the message if, without an init, the preparation fails and the unprepared command takes its
/// place.
fn untouched(cause: Cause) -> String {
    format!(
        "rdma-init: {}. The command is started as it would have been without rdma-init: \
         no variable is filled in.\n",
        reason(cause)
    )
}

/// Returns why the preparation failed. It is called in advance, before the deadline is known.
fn reason(cause: Cause) -> String {
    match cause {
        Cause::Late => "the preparation did not finish in time (prepare-timeout)".to_owned(),
        Cause::Signal(signal) => format!("the preparation was killed by {}", signals::name(signal)),
    }
}

/// Returns what that process does if it refuses the command instead.
fn refused(refusal: Refusal) -> Refused {
    let environment = Environment::new(&environ::entries());
    let last_words = |cause| {
        let reason = refusal.because(&reason(cause));
        let (words, failed) = pipeline::last_words(&environment, &reason);
        (format!("rdma-init: {}\n", pipeline::refusing(&reason, refusal.code)), words, failed)
    };
    Refused {
        code: refusal.code,
        failed: format!("rdma-init: {}\n", last_words(Cause::Late).2),
        reasons: ForEach::cause(|cause| {
            let (message, words, _) = last_words(cause);
            Reason { message, words }
        }),
    }
}

/// Monitors the preparation, and knows what to do if the preparation does not finish.
struct Guard<'a> {
    watcher: Watcher<'a>,
    orders: Cell<Orders>,
    /// Set if no child can be started, so nothing is prepared.
    alone: Option<&'a Alone>,
}

enum Watcher<'a> {
    /// An init of rdma-init monitors the preparation; the second field says which kind.
    Link(&'a Link, SupervisedBy),
    /// No other process monitors the preparation. If there is a command, signal handlers of this process
    /// do. The second field is the parent of this process.
    InPlace(Option<&'a Guarded>, Pid),
}

impl<'a> Guard<'a> {
    fn new(watcher: Watcher<'a>) -> Guard<'a> {
        Guard { watcher, orders: Cell::default(), alone: None }
    }

    fn set(&self, orders: &Orders) {
        // PID 1 is not woken for orders that it already has.
        if self.orders.replace(*orders) == *orders {
            return;
        }
        match self.watcher {
            Watcher::Link(link, _) => link.give(orders),
            Watcher::InPlace(Some(guarded), _) => {
                guarded.refuse(orders.terms.refuse.map(refused));
                guarded.set(orders.terms.deadline);
            }
            Watcher::InPlace(None, _) => {}
        }
    }

    /// Saves the decision. Call this once nothing forbids the command's start any more: this is what the
    /// command gets if the preparation does not finish.
    fn decide(&self, decided: &PartialPreparation, command: &[CString], inherited: &[CString]) {
        match self.watcher {
            Watcher::Link(link, _) => link.leave_decision(&decided.to_bytes()),
            Watcher::InPlace(Some(guarded), _) => guarded.decide(take_over::Decided {
                image: PreparedExec::new(
                    command.to_vec(),
                    environment::with(inherited.to_vec(), decided.filled()),
                ),
                messages: ForEach::cause(|cause| {
                    format!("rdma-init: {}. {}\n", reason(cause), init::WITH_WHAT_WAS_DECIDED)
                }),
            }),
            Watcher::InPlace(None, _) => {}
        }
    }

    /// Returns the process that started this one, if no process supervises the command.
    fn alone_under(&self) -> Option<Pid> {
        match self.watcher {
            Watcher::InPlace(_, parent) => Some(parent),
            Watcher::Link(..) => None,
        }
    }

    /// Returns what supervises the command. If PID 1 does, every process here belongs to this container.
    fn keeper(&self) -> SupervisedBy {
        match self.watcher {
            Watcher::Link(_, keeper) => keeper,
            Watcher::InPlace(..) => SupervisedBy::NoProcess,
        }
    }

    /// Saves the note that is needed when the command has exited.
    fn leave_note(&self, note: &[u8]) {
        if let Watcher::Link(link, _) = self.watcher {
            link.leave_ports(note);
        }
    }

    /// Saves the state in memory that PID 1 keeps. Returns the link that can seal it, if there is such
    /// memory.
    fn leave_state(&self, state: &[u8]) -> Option<&'a Link> {
        match self.watcher {
            Watcher::Link(link, _) if link.leave_state(state) => Some(link),
            _ => None,
        }
    }

    /// Tells the init that the command could not be executed, and that this was reported.
    fn not_run(&self) {
        if let Watcher::Link(link, _) = self.watcher {
            link.not_run();
        }
    }

    /// Ends the monitoring of the preparation. Returns only if this process may continue: the init may have
    /// given up on it in the meantime.
    fn leave(&self) {
        match self.watcher {
            Watcher::Link(link, _) if !link.claim_exec() => wait_to_be_killed(),
            Watcher::Link(..) => {}
            Watcher::InPlace(Some(guarded), _) => guarded.cancel(),
            Watcher::InPlace(None, _) => {}
        }
    }
}

/// Does everything from reading the arguments on, in the child of an init, or in this process if there is
/// no init. Returns only if the process did not become the command.
fn work(arguments: &[CString], guard: &Guard) -> Done {
    let command = command_of(arguments).unwrap_or_default();
    if command.is_empty() {
        std::panic::set_hook(Box::new(|panic| {
            report(panic);
            exit_now(exit::FAILED);
        }));
    }
    let result = prepare_or_print(arguments, guard);
    let mut vouches = None;
    if let Prepared::Command { state, .. } = &result {
        vouches = guard.leave_state(state);
    }
    guard.leave();
    // The note is left late, because PID 1 gives no account of a command that it starts itself.
    if let Prepared::Command { note, .. } = &result {
        guard.leave_note(note);
    }
    // The state is sealed late, because only now is it certain that the command gets these values.
    if let Some(link) = vouches {
        link.seal_state();
    }
    let refusal = guard.orders.get().terms.refuse;
    let code = match result {
        Prepared::Command { image, filled, under_way, .. } => {
            // From now on, a process that enters finds the state.
            drop(under_way);
            let code = match filled {
                true => pipeline::execute_filled(image, command, refusal),
                false => pipeline::execute(image, command),
            };
            guard.not_run();
            code
        }
        Prepared::Supervise(orders) => return Done::Supervise(orders),
        Prepared::Refused { reason, public, code } => {
            pipeline::refuse_with_public_reason(&reason, &public, code);
            guard.not_run();
            code
        }
        Prepared::Exit(code) => {
            guard.not_run();
            code
        }
    };
    Done::Code(code)
}

fn report(panic: &PanicHookInfo) {
    say(&format!("this is a bug in rdma-init (please report it): {panic}"));
}

/// Reads the arguments and the configuration, then prepares the command or runs a command of rdma-init.
fn prepare_or_print(arguments: &[CString], guard: &Guard) -> Prepared {
    let inherited = environ::entries();
    let environment = Environment::new(&inherited);
    let foreseen = foreseen::flags(arguments).map(|flags| config::early(&environment, &flags).orders());
    if let Some(orders) = foreseen.filter(|orders| orders.terms.refuse.is_some()) {
        // Set before the arguments are parsed, because parsing may crash.
        guard.set(&orders);
    }
    let cli = match usage::parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return Prepared::Exit(code),
    };
    let failed = |error: &anyhow::Error| {
        say(&sentence(&format!("{error:#}")));
        if cli.action.is_none() {
            pipeline::write_termination_log(&environment, &format!("{error:#}"));
        }
        Prepared::Exit(exit::FAILED)
    };
    let flags = cli.flags;
    let early = config::early(&environment, &flags);
    match &cli.action {
        // A command of rdma-init may take its time: the caller can stop it.
        Some(_) => {
            guard.set(&Orders { terms: FailureOrders { deadline: None, refuse: None }, ..Orders::default() });
        }
        // Set before the configuration is read, because reading may hang.
        None => guard.set(&early.orders()),
    }
    let config = match config::load(&environment, flags) {
        Ok(config) => config,
        Err(error) => {
            Log::start(early.log_format, Level::default(), Log::patient());
            return failed(&error.into());
        }
    };
    let log = Log::start(config.log_format, config.log_level, Log::patient());
    // Probes and users run these commands repeatedly, and the start has already warned.
    if !matches!(cli.action, Some(Action::Status { .. } | Action::Exec { .. })) {
        config::unknown_variables(&environment).iter().for_each(|warning| log.warn(warning));
    }
    let Some(action) = &cli.action else {
        guard.set(&config.orders());
        if let Some(alone) = guard.alone {
            return unprepared(alone, &config, command_of(arguments).unwrap_or_default());
        }
        if let Some(parent) = guard.alone_under() {
            if config.supervise {
                return Prepared::Supervise(Box::new(config.orders()));
            }
            pipeline::without_init(&config, &log, parent);
        }
        let command = command_of(arguments).unwrap_or_default().to_vec();
        let decided = |decided: &PartialPreparation| guard.decide(decided, &command, &inherited);
        return pipeline::prepare(&config, &log, command.clone(), inherited.clone(), guard.keeper(), decided)
            .unwrap_or_else(|error| failed(&error));
    };
    if let Action::Exec { wait, .. } = action {
        let command = command_of(arguments).unwrap_or_default().to_vec();
        return pipeline::enter(&config, &log, command, inherited.clone(), *wait)
            .unwrap_or_else(|error| failed(&error));
    }
    match commands::run(action, &config, &environment) {
        Ok(code) => Prepared::Exit(code),
        Err(error) if !is_broken_pipe(&error) => failed(&of_output(error)),
        Err(_) => Prepared::Exit(0),
    }
}

/// Returns the command as it would have been without rdma-init, for a container in which no process can be
/// started; or the refusal, if the configuration asks for it.
fn unprepared(alone: &Alone, config: &Config, command: &[CString]) -> Prepared {
    if let Some(refusal) = config.orders().terms.refuse {
        let reason = refusal.because(&alone.why);
        return Prepared::Refused { public: reason.clone(), reason, code: refusal.code };
    }
    say(&format!(
        "{}. The command is started as it would have been without rdma-init: no variable is filled in. {}",
        alone.why,
        init::IN_PLACE
    ));
    let image = PreparedExec::new(command.to_vec(), environ::entries());
    Prepared::Command { image, filled: false, note: Vec::new(), state: Vec::new(), under_way: None }
}

/// Says what an error without a context is about: only writing the output of a command gives such a one.
fn of_output(error: anyhow::Error) -> anyhow::Error {
    match error.chain().count() == 1 && error.is::<std::io::Error>() {
        true => error.context("cannot write to standard output"),
        false => error,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Ends the process with the code that [`start`] returned.
pub fn finish(code: i32) -> ! {
    exit_now(code)
}
