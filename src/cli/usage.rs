//! Turns the arguments into the user's request, or into a helpful message.

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use super::{ACTIONS, Action, Cli, messages, options};
use crate::config::Flag;
use crate::exit;
use crate::log::say;
use crate::nearest::nearest;
use crate::text::{set_program, visible};

/// The user's request. [`command_of`] returns the command to run from the arguments.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The options that are keys of the configuration.
    pub flags: Vec<Flag>,
    /// The rdma-init command to run, if any.
    pub action: Option<Action>,
}

/// Parses the arguments. If there is nothing to run, the answer has already been printed.
///
/// # Errors
/// Returns the exit code: 0 after help and version, 125 after a usage error.
pub(crate) fn parse(arguments: &[CString]) -> Result<Asked, i32> {
    let failed = |text: &str| {
        say(text);
        exit::FAILED
    };
    if let Some(advice) = missing_dashes(arguments) {
        return Err(failed(&advice));
    }
    if is_command_alone(arguments) {
        return Ok(Asked::default());
    }
    if let Some(flags) = flags_of_start(arguments) {
        return Ok(Asked { flags, action: None });
    }
    let mut cli = super::command();
    let matches = match cli.try_get_matches_from_mut(words(arguments)) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // Help goes to standard output; if its reader has exited, that is not an error.
            let _ = error.print();
            return Err(0);
        }
        Err(error) => return Err(failed(&messages::of(&error, &cli, arguments))),
    };
    let action = Cli::from_arg_matches(&matches).map_err(|error| failed(&error.to_string()))?.action;
    let mut flags = options::given(&cli, &matches);
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = cli.find_subcommand(name)
    {
        if let Some(flag) = flags.iter().find(|flag| !messages::takes(command, &flag.option)) {
            return Err(failed(&messages::not_taken(&cli, Some(name), &format!("--{}", flag.option))));
        }
        flags.extend(options::given(command, matches));
    }
    if let Some(Action::Help { command }) = &action {
        return Err(help(&mut cli, command.as_deref()));
    }
    let runs_a_command = matches!(action, None | Some(Action::Exec { .. }));
    if runs_a_command && command_of(arguments).is_none() {
        return Err(failed(&nothing_to_run(arguments)));
    }
    Ok(Asked { flags, action })
}

/// Prints the help of a command or of the program. Returns the exit code.
fn help(cli: &mut clap::Command, name: Option<&str>) -> i32 {
    // After this, each command knows its full name.
    cli.build();
    let text = match name.and_then(|name| cli.find_subcommand_mut(name)) {
        Some(command) => command.render_help(),
        None => cli.render_help(),
    };
    // If the reader has exited, that is not an error.
    let _ = write!(std::io::stdout(), "{text}");
    0
}

fn words(arguments: &[CString]) -> impl Iterator<Item = OsString> {
    arguments.iter().map(|argument| OsStr::from_bytes(argument.as_bytes()).to_owned())
}

/// Returns the command after the first `--`, if there is one. If two `--` follow each other, skips both:
/// Python's argparse, with which torchrun reads its own arguments, removes the first one, and the effect
/// should be the same with launchers that do not remove it.
pub(crate) fn command_of(arguments: &[CString]) -> Option<&[CString]> {
    let is_dashes = |argument: &CString| argument.as_bytes() == b"--";
    let command = arguments.get(arguments.iter().position(is_dashes)? + 1..)?;
    match command {
        [second, command @ ..] if is_dashes(second) => Some(command),
        command => Some(command),
    }
    .filter(|command| !command.is_empty())
}

/// Returns whether rdma-init with these arguments starts a command and does nothing else.
pub(crate) fn is_start(arguments: &[CString]) -> bool {
    let parsed = || super::command().try_get_matches_from(words(arguments));
    command_of(arguments).is_some()
        && (is_command_alone(arguments)
            || flags_of_start(arguments).is_some()
            || parsed().is_ok_and(|matches| matches.subcommand().is_none()))
}

/// Returns the flags of a line that starts a command and names none of rdma-init's own. Returns `None` if it
/// is or may be another line, or if it is wrong: then the full command line must parse it.
fn flags_of_start(arguments: &[CString]) -> Option<Vec<Flag>> {
    command_of(arguments)?;
    let mut ours = arguments.iter().skip(1).take_while(|word| word.as_bytes() != b"--");
    let is_command = |word: &CString| super::is_command(word.as_bytes());
    if ours.any(is_command) {
        return None;
    }
    let mut start = super::start();
    let matches = start.try_get_matches_from_mut(words(arguments)).ok()?;
    let flags = options::given(&start, &matches);
    // The process ends soon or becomes the command, and either frees all of this faster.
    std::mem::forget((start, matches));
    Some(flags)
}

fn nothing_to_run(arguments: &[CString]) -> String {
    let has_dashes = arguments.iter().any(|argument| argument.as_bytes() == b"--");
    let program = arguments.first().map_or(OsStr::new(""), |program| OsStr::from_bytes(program.as_bytes()));
    let own = name_of(program);
    let of_image = match (engine_of_init(program), has_dashes) {
        (Some(engine), _) => {
            format!(" The image has no command: write one after its name: {engine} run --init IMAGE COMMAND.")
        }
        (None, true) => {
            " In a Dockerfile, ENTRYPOINT resets the base image's CMD: add your own CMD below it.".to_owned()
        }
        (None, false) => String::new(),
    };
    format!(
        "there is nothing to run. Usage: {own} [OPTIONS] -- COMMAND [ARG]..., or see {own} --help.{of_image}"
    )
}

/// Returns whether the line is `rdma-init -- COMMAND`, as for nearly every container: no argument after the
/// dashes is for rdma-init, so clap has nothing to parse.
fn is_command_alone(arguments: &[CString]) -> bool {
    arguments.get(1).is_some_and(|first| first.as_bytes() == b"--") && command_of(arguments).is_some()
}

/// Returns the advice for `rdma-init ls -la`: the user forgot the dashes, or a launcher removed them.
fn missing_dashes(arguments: &[CString]) -> Option<String> {
    let first = arguments.get(1)?.to_str().ok()?;
    if first.starts_with('-') || super::is_command(first.as_bytes()) {
        return None;
    }
    // If there are dashes somewhere, clap's own message is better.
    if arguments.iter().any(|argument| argument.as_bytes() == b"--") {
        return None;
    }
    let rest: Vec<OsString> = words(arguments).skip(1).collect();
    let line: Vec<_> = rest.iter().map(|a| a.to_string_lossy()).collect();
    let line = line.join(" ");
    let own = name_of(&words(arguments).next().unwrap_or_default());
    let meant = meant(first).map(|meant| format!("; did you mean {own} {meant}?")).unwrap_or_default();
    let stop = if meant.is_empty() { "." } else { "" };
    Some(format!(
        "{first:?} is not a command of rdma-init{meant}{stop} To run it, put -- before it: {own} -- {line}. \
         If you wrote --, the launcher took it away, as torchrun --no-python does: write it twice: {own} -- -- {line}"
    ))
}

/// Returns the rdma-init command that the user may have meant by this word.
fn meant(word: &str) -> Option<&'static str> {
    (word.len() > 3).then(|| nearest(ACTIONS.iter().copied(), word, 2)).flatten()
}

/// Makes all texts name this program by its path if the PATH does not lead to it, or an engine has put it there because
/// the image does not have it.
pub(crate) fn name_program_in_texts() {
    let program = std::env::args_os().next().unwrap_or_default();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let program = Path::new(&program);
    let is_found = |folder: &Path| std::env::split_paths(&folders).any(|one| one == folder);
    let path = match program.parent() {
        Some(folder) if folder.is_absolute() => (!is_found(folder)).then(|| program.to_owned()),
        // Started by a relative path, such as ./rdma-init.
        Some(folder) if !folder.as_os_str().is_empty() => std::env::current_exe().ok(),
        _ => None,
    };
    if let Some(path) = path.or_else(|| engine_of_init(program.as_os_str()).map(|_| program.to_owned())) {
        set_program(visible(&path.to_string_lossy()), ACTIONS);
    }
}

/// Returns the path at which an engine has put this program as its init; `None` if it was started in another way.
pub(crate) fn path_of_engine() -> Option<String> {
    let program = std::env::args_os().next()?;
    engine_of_init(&program).map(|_| program.to_string_lossy().into_owned())
}

fn name_of(program: &OsStr) -> String {
    let is_of_engine = engine_of_init(program).is_some();
    if is_of_engine { program.to_string_lossy().into_owned() } else { "rdma-init".to_owned() }
}

/// Returns the container engine that started this program as its init, based on the program's own name.
fn engine_of_init(program: &OsStr) -> Option<&'static str> {
    match Path::new(program).file_name()?.to_str()? {
        "docker-init" => Some("docker"),
        "podman-init" => Some("podman"),
        _ => None,
    }
}

/// Returns the advice for a command that does not exist, if its name shows what was meant: an option or a command of this
/// program behind the dashes of an ENTRYPOINT, or a whole line as one word. An engine that starts this program as its init
/// keeps the image's ENTRYPOINT, so a Dockerfile is not the cause of a name that is an option.
pub(crate) fn advise_on_command(name: &str, program: &OsStr) -> Option<String> {
    let engine = engine_of_init(program);
    let path = std::env::current_exe().unwrap_or_else(|_| "/rdma-init".into());
    let (run, path) = match engine {
        Some(engine) => (format!("{engine} run --init"), program.to_string_lossy()),
        None => ("docker run".to_owned(), path.to_string_lossy()),
    };
    let path = visible(&path);
    if ACTIONS.contains(&name) || ["--help", "-h", "--version"].contains(&name) {
        return Some(format!(
            "If you mean that of rdma-init: {run} --entrypoint {path} IMAGE {name}. {AFTER_DASHES}"
        ));
    }
    if let Some(option) = name.strip_prefix("--").and_then(|text| text.split('=').next())
        && options::is_of_start(option)
    {
        let variable = format!("RDMA_INIT_{}", option.replace('-', "_").to_uppercase());
        return Some(format!(
            "It is an option of rdma-init. {AFTER_DASHES} Set {variable} instead ({run} -e), or use {run} --entrypoint {path} IMAGE {name} -- COMMAND."
        ));
    }
    if name.starts_with('-') {
        return Some(match engine {
            Some(_) => format!(
                "The image has no ENTRYPOINT that would take it: write the command before its options: {run} IMAGE COMMAND [ARG]..."
            ),
            None => OLD_ENTRYPOINT.to_owned(),
        });
    }
    let words: Vec<&str> = name.split_whitespace().collect();
    let is_for_shell = name.contains(|c: char| "'\"\\`&|;$<>(){}*?~#".contains(c));
    let array = if is_for_shell { format!("[\"sh\", \"-c\", {name:?}]") } else { format!("{words:?}") };
    let shown = if name.len() > 200 { String::new() } else { format!(": {array}") };
    (words.len() > 1).then(|| {
        format!("The whole line is one word here. In JSON form, each word is a string of its own{shown}.")
    })
}

const AFTER_DASHES: &str = "After the -- of an ENTRYPOINT, all words are the command to start.";

/// The advice if the image had an ENTRYPOINT and these are the words of its CMD.
pub(super) const OLD_ENTRYPOINT: &str = "If it is meant for the ENTRYPOINT that the image had before, write that one after the dashes: \
     ENTRYPOINT [\"/rdma-init\", \"--\", \"OLD\", \"ENTRYPOINT\"].";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_alone_is_what_clap_makes_of_it() {
        let lines: [&[&[u8]]; 6] = [
            &[b"rdma-init", b"--", b"true"],
            &[b"rdma-init", b"--", b"sh", b"-c", b"exit 3", b"--", b"--help"],
            &[b"rdma-init", b"--", b"--version"],
            &[b"rdma-init", b"--", b""],
            &[b"rdma-init", b"--", b"plan"],
            &[b"rdma-init", b"--", b"\xff\xfe", b"\xc3"],
        ];
        for line in lines {
            let line: Vec<CString> = line.iter().map(|text| CString::new(*text).unwrap()).collect();
            let texts = line.iter().map(|text| OsStr::from_bytes(text.as_bytes()).to_owned());
            let parsed = Cli::from_arg_matches(&super::super::command().get_matches_from(texts)).unwrap();
            let wanted: Vec<OsString> = words(&line).skip(2).collect();
            assert!(is_command_alone(&line) && parsed.action.is_none(), "{line:?}");
            assert_eq!(parsed.command, wanted);
        }
    }

    /// The fast parser returns the same result as the full command line, and accepts only starts.
    #[test]
    fn a_start_is_parsed_as_by_the_whole_command_line() {
        let flags = |line: &str| {
            let line: Vec<CString> = line.split(' ').map(|text| CString::new(text).unwrap()).collect();
            let mut cli = super::super::command();
            let whole = cli.try_get_matches_from_mut(words(&line)).ok();
            let whole = whole.filter(|matches| matches.subcommand().is_none());
            (flags_of_start(&line), whole.map(|matches| options::given(&cli, &matches)))
        };
        for line in [
            "--kill-group --set A=b --set=C=d,e --keep X -- true",
            "--libraries gloo,ucx --libraries nccl --preflight-bisection --profile= -- sh -c x",
            "--preflight-bisection=false --memlock off --remap-exit 143:1 -- -- --help",
        ] {
            let (short, whole) = flags(&format!("rdma-init {line}"));
            assert!(short.is_some(), "{line}");
            assert_eq!(short, whole, "{line}");
        }
        for line in [
            "exec -- true",
            "verbs-probe -- true",
            "--help -- true",
            "-V -- true",
            "--memloc off -- true",
            "--memlock off --memlock warn -- true",
            "--kill-group=yes -- true",
            "--profile -- true",
            "true -- true",
            "--profile none",
            "--profile none --",
        ] {
            assert_eq!(flags(&format!("rdma-init {line}")).0, None, "{line}");
        }
    }

    #[test]
    fn dashes_count_once_where_they_are_twice() {
        let command = |line: &str| {
            let line: Vec<CString> = line.split(' ').map(|text| CString::new(text).unwrap()).collect();
            command_of(&line)
                .map(|words| words.iter().map(|w| w.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        let words = |line: &str| Some(line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(command("rdma-init -- python3 job.py"), words("python3 job.py"));
        assert_eq!(command("rdma-init -- -- python3 job.py"), words("python3 job.py"));
        assert_eq!(command("rdma-init exec -- -- env"), words("env"));
        // All words after the dashes belong to the command.
        assert_eq!(command("rdma-init -- -- -- env"), words("-- env"));
        assert_eq!(command("rdma-init -- env -- x"), words("env -- x"));
        for none in ["rdma-init", "rdma-init plan", "rdma-init --", "rdma-init -- --"] {
            assert_eq!(command(none), None);
        }
    }

    #[test]
    fn the_advice_is_for_the_engine_whose_init_this_is() {
        for (program, advice) in [
            ("/sbin/docker-init", "docker run --init IMAGE COMMAND"),
            ("/run/podman-init", "podman run --init IMAGE COMMAND"),
            ("/rdma-init", "ENTRYPOINT [\"/rdma-init\""),
            ("", "ENTRYPOINT [\"/rdma-init\""),
        ] {
            let advised = advise_on_command("--port", OsStr::new(program)).unwrap();
            assert!(advised.contains(advice), "{program}");
        }
        assert_eq!(name_of(OsStr::new("/sbin/docker-init")), "/sbin/docker-init");
        assert_eq!(name_of(OsStr::new("/opt/rdma-init")), "rdma-init");
        let forgotten = ["/sbin/docker-init", "ls"].map(|word| CString::new(word).unwrap());
        let said = missing_dashes(&forgotten).unwrap();
        assert!(said.contains("put -- before it: /sbin/docker-init -- ls."), "{said}");
        let nothing =
            |program: &str| nothing_to_run(&[program, "--"].map(|word| CString::new(word).unwrap()));
        assert!(nothing("/sbin/docker-init").contains("docker run --init IMAGE COMMAND"));
        assert!(nothing("/rdma-init").contains("add your own CMD below it"));
    }

    #[test]
    fn a_start_is_known_by_its_arguments() {
        let is_start = |line: &str| {
            is_start(&line.split(' ').map(|text| CString::new(text).unwrap()).collect::<Vec<_>>())
        };
        for line in ["-- true", "--profile plan -- true", "--preflight=warn -- rdma-init exec -- true"] {
            assert!(is_start(&format!("rdma-init {line}")), "{line}");
        }
        for line in
            ["exec -- true", "exec --wait 3s -- true", "plan", "--profile none plan", "--", "--no-such -- x"]
        {
            assert!(!is_start(&format!("rdma-init {line}")), "{line}");
        }
    }

    #[test]
    fn everything_else_is_for_clap() {
        for line in [
            "rdma-init",
            "rdma-init --",
            "rdma-init plan",
            "rdma-init --memlock off -- true",
            "rdma-init -- --",
        ] {
            let line: Vec<CString> = line.split(' ').map(|text| CString::new(text).unwrap()).collect();
            assert!(!is_command_alone(&line), "{line:?}");
        }
    }
}
