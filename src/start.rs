//! From `main` to the exec.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{ACTIONS, Cli};
use crate::commands;
use crate::config::{self, DEFAULT_PREPARE_TIMEOUT};
use crate::exit;
use crate::facts::settings::Environment;
use crate::init::{self, Link};
use crate::run::{self, Prepared};
use crate::sys::deadline::Deadline;
use crate::sys::environ;
use crate::sys::exec::Image;
use crate::sys::fork::{exit_now, wait_to_be_killed};
use crate::sys::signals::Inherited;
use crate::sys::stdio::{Stderr, reserve_closed};

/// Runs the program; all signals must be blocked. Returns the exit code.
pub fn start(inherited: Inherited) -> i32 {
    let arguments = environ::arguments();
    if std::process::id() == 1 {
        let for_child = arguments.clone();
        init::supervise(inherited, arguments, |link| work(for_child, Guard::Link(link)))
    } else {
        inherited.restore();
        let deadline = command_of(&arguments).map(|command| {
            let image = Image::new(command.to_vec(), environ::entries());
            Deadline::arm(DEFAULT_PREPARE_TIMEOUT, image, inherited, timed_out())
        });
        let deadline = deadline.and_then(Result::ok);
        work(arguments, Guard::InPlace(deadline.as_ref()))
    }
}

fn timed_out() -> String {
    "rdma-init: the preparation did not finish in time (prepare-timeout). The command is started \
     as it would have been without rdma-init: no variable is filled in.\n"
        .to_owned()
}

/// Who watches over the preparation.
enum Guard<'a> {
    /// PID 1, its parent.
    Link(&'a Link),
    /// A timer of this process, where there is one.
    InPlace(Option<&'a Deadline>),
}

impl Guard<'_> {
    fn set_deadline(&self, deadline: Option<std::time::Duration>) {
        match self {
            Guard::Link(link) => link.set_deadline(deadline),
            Guard::InPlace(Some(timer)) => timer.set(deadline),
            Guard::InPlace(None) => {}
        }
    }

    /// The exec comes now. Returns only when this process may go on.
    fn before_exec(&self) {
        match self {
            Guard::Link(link) if !link.claim_exec() => wait_to_be_killed(),
            Guard::Link(_) => {}
            Guard::InPlace(Some(timer)) => timer.cancel(),
            Guard::InPlace(None) => {}
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
fn work(arguments: Vec<CString>, guard: Guard) -> i32 {
    reserve_closed();
    // The default hook writes without regard to a pipe that nobody empties.
    std::panic::set_hook(Box::new(|panic| say(&panic.to_string())));
    let result = catch_unwind(AssertUnwindSafe(|| prepare_or_print(&arguments, &guard)));
    let image = match result {
        Ok(Prepared::Exit(code)) => return code,
        Ok(Prepared::Command(image)) => image,
        // A bug of ours must not keep the command from starting.
        Err(_) => match command_of(&arguments) {
            None => return exit::FAILED,
            Some(command) => {
                say(
                    "a bug in rdma-init ended the preparation (please report it). The command is started as it would have been without rdma-init.",
                );
                Image::new(command.to_vec(), environ::entries())
            }
        },
    };
    exec(image, &arguments, &guard)
}

fn exec(mut image: Image, arguments: &[CString], guard: &Guard) -> i32 {
    guard.before_exec();
    let error = image.exec();
    let command = command_of(arguments).and_then(<[CString]>::first);
    let name = command.map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
    let (message, code) = run::exec_failed(name, error);
    say(&message);
    code
}

/// Understands the arguments and the configuration, then prepares the command or
/// runs one of our own.
fn prepare_or_print(arguments: &[CString], guard: &Guard) -> Prepared {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return Prepared::Exit(code),
    };
    let inherited = environ::entries();
    let environment = Environment::new(&inherited);
    let config = match config::load(&environment, cli.options.into_flags()) {
        Ok(config) => config,
        Err(error) => return failed(&format!("{error}.")),
    };
    if let Some(action) = cli.action {
        guard.set_deadline(None);
        return match commands::run(action, &config, &environment) {
            Ok(()) => Prepared::Exit(0),
            Err(error) if is_broken_pipe(&error) => Prepared::Exit(0),
            Err(error) => failed(&format!("{error:#}.")),
        };
    }
    guard.set_deadline(Some(config.prepare_timeout));
    let command = command_of(arguments).unwrap_or_default().to_vec();
    match run::prepare(&config, command, inherited) {
        Ok(prepared) => prepared,
        Err(error) => failed(&format!("{error:#}.")),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn failed(message: &str) -> Prepared {
    say(message);
    Prepared::Exit(exit::FAILED)
}

fn say(message: &str) {
    Stderr::with_patience(std::time::Duration::from_millis(500))
        .put(format!("rdma-init: {message}\n").as_bytes());
}

fn parse(arguments: &[CString]) -> Result<Cli, i32> {
    let texts = || arguments.iter().map(|a| OsStr::from_bytes(a.as_bytes()).to_owned());
    if let Some(advice) = missing_dashes(arguments) {
        say(&advice);
        return Err(exit::FAILED);
    }
    let cli = Cli::try_parse_from(texts()).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // To standard output; a reader that went away is no error.
            let _ = error.print();
            0
        }
        _ => {
            Stderr::with_patience(std::time::Duration::from_millis(500))
                .put(error.render().to_string().as_bytes());
            exit::FAILED
        }
    })?;
    if cli.action.is_none() && cli.command.is_empty() {
        say(
            "there is nothing to run. Usage: rdma-init [OPTIONS] -- COMMAND [ARG]..., or see rdma-init --help.",
        );
        return Err(exit::FAILED);
    }
    Ok(cli)
}

/// `rdma-init ls -la`: the user forgot the dashes.
fn missing_dashes(arguments: &[CString]) -> Option<String> {
    let first = arguments.get(1)?.to_str().ok()?;
    if first.starts_with('-') || ACTIONS.contains(&first) || first == "verbs-probe" {
        return None;
    }
    if command_of(arguments).is_some() {
        return None;
    }
    let rest: Vec<OsString> =
        arguments.iter().skip(1).map(|a| OsStr::from_bytes(a.as_bytes()).to_owned()).collect();
    let line: Vec<_> = rest.iter().map(|a| a.to_string_lossy()).collect();
    Some(format!(
        "{first:?} is not a command of rdma-init. To run it, put -- before it: rdma-init -- {}",
        line.join(" ")
    ))
}

/// Ends the process with the code that [`start`] gave.
pub fn finish(code: i32) -> ! {
    exit_now(code)
}
