//! From `main` to the exec.

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;

use crate::cli::usage;
use crate::commands;
use crate::config::{self, DEFAULT_PREPARE_TIMEOUT, LogLevel};
use crate::exit;
use crate::facts::settings::Environment;
use crate::init::{self, Link, Terms};
use crate::report::log::{Log, say};
use crate::run::{self, Prepared};
use crate::sys::deadline::Deadline;
use crate::sys::environ;
use crate::sys::exec::Image;
use crate::sys::fork::{exit_now, wait_to_be_killed};
use crate::sys::signals::Inherited;
use crate::sys::stdio::reserve_closed;

/// Runs the program; all signals must be blocked. Returns the exit code.
pub fn start(inherited: Inherited) -> i32 {
    reserve_closed();
    let arguments = environ::arguments();
    if std::process::id() == 1 {
        let for_child = arguments.clone();
        init::supervise(inherited, arguments, |link| work(for_child, &Guard::new(Watcher::Link(link))))
    } else {
        inherited.restore();
        let deadline = command_of(&arguments).map(|command| {
            let image = Image::new(command.to_vec(), environ::entries());
            Deadline::arm(DEFAULT_PREPARE_TIMEOUT, image, inherited, timed_out())
        });
        let deadline = deadline.and_then(Result::ok);
        work(arguments, &Guard::new(Watcher::InPlace(deadline.as_ref())))
    }
}

fn timed_out() -> String {
    "rdma-init: the preparation did not finish in time (prepare-timeout). The command is started \
     as it would have been without rdma-init: no variable is filled in.\n"
        .to_owned()
}

/// Who watches over the preparation, and what holds if it does not come to its end.
struct Guard<'a> {
    watcher: Watcher<'a>,
    terms: Cell<Terms>,
}

/// What holds from the start, for both watchers.
const FIRST_TERMS: Terms = Terms { deadline: Some(DEFAULT_PREPARE_TIMEOUT), refuse: None };

enum Watcher<'a> {
    /// PID 1, its parent.
    Link(&'a Link),
    /// A timer of this process, where there is one.
    InPlace(Option<&'a Deadline>),
}

impl<'a> Guard<'a> {
    fn new(watcher: Watcher<'a>) -> Guard<'a> {
        Guard { watcher, terms: Cell::new(FIRST_TERMS) }
    }

    fn set(&self, terms: Terms) {
        // PID 1 need not wake up for what it knows.
        if self.terms.replace(terms) == terms {
            return;
        }
        match self.watcher {
            Watcher::Link(link) => link.set_terms(terms),
            Watcher::InPlace(Some(timer)) => {
                timer.refuse(terms.refuse);
                timer.set(terms.deadline);
            }
            Watcher::InPlace(None) => {}
        }
    }

    /// The preparation has come to its end. Returns only when this process may go
    /// on: the watcher may have decided otherwise in the meantime.
    fn leave(&self) {
        match self.watcher {
            Watcher::Link(link) if !link.claim_exec() => wait_to_be_killed(),
            Watcher::Link(_) => {}
            Watcher::InPlace(Some(timer)) => timer.cancel(),
            Watcher::InPlace(None) => {}
        }
    }
}

/// The command after the first `--`, if there is one.
fn command_of(arguments: &[CString]) -> Option<&[CString]> {
    let dashes = arguments.iter().position(|argument| argument.as_bytes() == b"--")?;
    arguments.get(dashes + 1..).filter(|command| !command.is_empty())
}

/// The child of PID 1, or the process itself in place: everything from the
/// arguments on. Returns only with an exit code.
fn work(arguments: Vec<CString>, guard: &Guard) -> i32 {
    // The default hook writes without regard to a pipe that nobody empties.
    std::panic::set_hook(Box::new(|panic| say(&panic.to_string())));
    let command = command_of(&arguments).unwrap_or_default();
    let result = catch_unwind(AssertUnwindSafe(|| prepare_or_print(&arguments, guard)));
    guard.leave();
    match result {
        Ok(Prepared::Command { image, filled }) => exec(image, filled, command),
        Ok(Prepared::Refused { reason, code }) => {
            run::refuse(&reason, code);
            code
        }
        Ok(Prepared::Exit(code)) => code,
        // A bug of ours must not keep the command from starting.
        Err(_) if command.is_empty() => exit::FAILED,
        Err(_) => match guard.terms.get().refuse {
            Some(code) => {
                run::refuse("a bug in rdma-init ended the preparation (please report it)", code);
                code
            }
            None => {
                say(
                    "a bug in rdma-init ended the preparation (please report it). The command is started as it would have been without rdma-init.",
                );
                exec(Image::new(command.to_vec(), environ::entries()), false, command)
            }
        },
    }
}

/// Becomes the command; returns the exit code when that cannot be.
fn exec(mut image: Image, filled: bool, command: &[CString]) -> i32 {
    let mut error = image.exec();
    if error == Errno::E2BIG && filled {
        say(
            "the environment has no room for the variables that were filled in; the command starts without them.",
        );
        error = Image::new(command.to_vec(), environ::entries()).exec();
    }
    let name = command.first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
    let (message, code) = run::exec_failed(name, error);
    say(&message);
    code
}

/// Understands the arguments and the configuration, then prepares the command or
/// runs one of our own.
fn prepare_or_print(arguments: &[CString], guard: &Guard) -> Prepared {
    let cli = match usage::parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return Prepared::Exit(code),
    };
    let inherited = environ::entries();
    let environment = Environment::new(&inherited);
    let failed = |error: &anyhow::Error| {
        say(&format!("{error:#}."));
        if cli.action.is_none() {
            run::leave_behind(&environment, &format!("{error:#}"));
        }
        Prepared::Exit(exit::FAILED)
    };
    let flags = cli.options.flags();
    let early = config::Early::new(&environment, &flags);
    match &cli.action {
        // A command of our own takes its time; whoever called it can stop it.
        Some(_) => guard.set(Terms { deadline: None, refuse: None }),
        // Reading the configuration may be what hangs.
        None => guard.set(early.terms()),
    }
    let config = match config::load(&environment, flags) {
        Ok(config) => config,
        Err(error) => {
            Log::start(early.log_format, LogLevel::default());
            return failed(&error.into());
        }
    };
    let log = Log::start(config.log_format, config.log_level);
    let Some(action) = &cli.action else {
        guard.set(config.terms());
        let command = command_of(arguments).unwrap_or_default().to_vec();
        return run::prepare(&config, &log, command, inherited.clone())
            .unwrap_or_else(|error| failed(&error));
    };
    match commands::run(action, &config, &environment) {
        Err(error) if !is_broken_pipe(&error) => failed(&error),
        _ => Prepared::Exit(0),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Ends the process with the code that [`start`] gave.
pub fn finish(code: i32) -> ! {
    exit_now(code)
}
