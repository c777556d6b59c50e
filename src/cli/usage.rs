//! Makes of the arguments what the user asked for, or a message that helps.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{ACTIONS, Action, Cli, ConfigFlags};
use crate::exit;
use crate::log::say;
use crate::text::visible;

/// Parses the arguments. If nothing is to be run, the answer has been printed already.
///
/// # Errors
/// The code to exit with: 0 after help and version, 125 after a usage error.
pub fn parse(arguments: &[CString]) -> Result<Cli, i32> {
    let texts = || arguments.iter().map(|a| OsStr::from_bytes(a.as_bytes()).to_owned());
    if let Some(advice) = missing_dashes(arguments) {
        say(&advice);
        return Err(exit::FAILED);
    }
    if let Some(cli) = command_alone(arguments) {
        return Ok(cli);
    }
    let cli = Cli::try_parse_from(texts()).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help goes to standard output; a reader that went away is no error.
            let _ = error.print();
            0
        }
        _ => {
            let text = unknown(&error, arguments).unwrap_or_else(|| error.render().to_string());
            say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            exit::FAILED
        }
    })?;
    let runs_a_command = matches!(cli.action, None | Some(Action::Exec { .. }));
    if runs_a_command && command_of(arguments).is_none() {
        say(&nothing_to_run(arguments));
        return Err(exit::FAILED);
    }
    Ok(cli)
}

/// The command after the first `--`, if there is one. Two `--` in a row are both left out:
/// Python's argparse, with which torchrun reads its own arguments, removes the first one, and
/// launchers that do not remove it should have the same effect.
pub fn command_of(arguments: &[CString]) -> Option<&[CString]> {
    let is_dashes = |argument: &CString| argument.as_bytes() == b"--";
    let command = arguments.get(arguments.iter().position(is_dashes)? + 1..)?;
    match command {
        [second, command @ ..] if is_dashes(second) => Some(command),
        command => Some(command),
    }
    .filter(|command| !command.is_empty())
}

fn nothing_to_run(arguments: &[CString]) -> String {
    let has_dashes = arguments.iter().any(|argument| argument.as_bytes() == b"--");
    let of_image = if has_dashes {
        " In a Dockerfile, ENTRYPOINT takes away the CMD of the base image: write a CMD of your own below it."
    } else {
        ""
    };
    format!(
        "there is nothing to run. Usage: rdma-init [OPTIONS] -- COMMAND [ARG]..., or see rdma-init --help.{of_image}"
    )
}

/// `rdma-init -- COMMAND`, as nearly every container calls it: after the dashes nothing is
/// meant for rdma-init, so clap has nothing to parse.
fn command_alone(arguments: &[CString]) -> Option<Cli> {
    if arguments.get(1)?.as_bytes() != b"--" {
        return None;
    }
    let command = command_of(arguments)?;
    let command = command.iter().map(|a| OsStr::from_bytes(a.as_bytes()).to_owned()).collect();
    Some(Cli { options: ConfigFlags::default(), action: None, command })
}

/// `rdma-init ls -la`: the user forgot the dashes, or a launcher took them away.
fn missing_dashes(arguments: &[CString]) -> Option<String> {
    let first = arguments.get(1)?.to_str().ok()?;
    if first.starts_with('-') || ACTIONS.contains(&first) || first == "verbs-probe" {
        return None;
    }
    // If the dashes are somewhere, clap's own message is the better one.
    if arguments.iter().any(|argument| argument.as_bytes() == b"--") {
        return None;
    }
    let rest: Vec<OsString> =
        arguments.iter().skip(1).map(|a| OsStr::from_bytes(a.as_bytes()).to_owned()).collect();
    let line: Vec<_> = rest.iter().map(|a| a.to_string_lossy()).collect();
    let line = line.join(" ");
    let meant = meant(first).map(|meant| format!("; did you mean rdma-init {meant}?")).unwrap_or_default();
    let stop = if meant.is_empty() { "." } else { "" };
    Some(format!(
        "{first:?} is not a command of rdma-init{meant}{stop} To run it, put -- before it: rdma-init -- {line}. \
         If you wrote --, the launcher took it away, as torchrun --no-python does: write it twice: rdma-init -- -- {line}"
    ))
}

/// Our own word that this word may be meant for.
fn meant(word: &str) -> Option<&'static str> {
    if word == "help" {
        return Some("--help");
    }
    let distance = |known: &&&str| strsim::damerau_levenshtein(known, word);
    let nearest = ACTIONS.iter().min_by_key(distance)?;
    (word.len() > 3 && distance(&nearest) <= 2).then_some(*nearest)
}

/// The advice if the image had an ENTRYPOINT, and these are the words of its CMD.
pub const OLD_ENTRYPOINT: &str = "If it is meant for the ENTRYPOINT that the image had before, write that one after the dashes: \
     ENTRYPOINT [\"/rdma-init\", \"--\", \"OLD\", \"ENTRYPOINT\"].";

/// The message for an option or a word that none of our commands accepts; `None` for any other
/// error.
fn unknown(error: &clap::Error, arguments: &[CString]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let word = match error.kind() {
        ErrorKind::UnknownArgument => context(ContextKind::InvalidArg)?,
        ErrorKind::InvalidSubcommand => context(ContextKind::InvalidSubcommand)?,
        _ => return None,
    };
    let shown = visible(word);
    let words = || arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    let action = words().take_while(|word| word != "--").find(|word| ACTIONS.contains(&word.as_ref()));
    let whole =
        action.as_ref().map_or_else(|| "rdma-init".to_owned(), |action| format!("rdma-init {action}"));
    let help = format!("see {whole} --help");
    if !word.starts_with('-') {
        return Some(match action.as_deref() {
            Some("exec") => format!(
                "{shown:?} is not an option of {whole}. To run it, put -- before it: {whole} -- {shown} ..."
            ),
            Some(action) => format!("{action} does not take {shown:?}; {help}."),
            None => format!(
                "{shown:?} is not a command of rdma-init. To run it, put -- before it: rdma-init [OPTIONS] -- {shown} ..."
            ),
        });
    }
    let unknown = match &action {
        Some(action) => format!("{action} has no option {shown}"),
        None => format!("there is no option {shown}"),
    };
    if let Some(known) = context(ContextKind::SuggestedArg) {
        return Some(format!("{unknown}; did you mean {known}? To see all options: {whole} --help."));
    }
    let has_dashes = words().any(|word| word == "--");
    Some(match action {
        Some(_) => format!("{unknown}; {help}."),
        None if has_dashes => {
            format!(
                "{unknown}; {help}. An option of the command belongs behind the command, after the dashes."
            )
        }
        None => format!(
            "{unknown}; {help}. An option of the command belongs behind the command, after two dashes: \
             rdma-init -- COMMAND {shown}. {OLD_ENTRYPOINT}"
        ),
    })
}

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
            let parsed = Cli::try_parse_from(texts).unwrap();
            let alone = command_alone(&line).unwrap();
            assert_eq!(format!("{alone:?}"), format!("{parsed:?}"));
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
        // The words after the dashes belong to the command.
        assert_eq!(command("rdma-init -- -- -- env"), words("-- env"));
        assert_eq!(command("rdma-init -- env -- x"), words("env -- x"));
        for none in ["rdma-init", "rdma-init plan", "rdma-init --", "rdma-init -- --"] {
            assert_eq!(command(none), None);
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
            assert!(command_alone(&line).is_none(), "{line:?}");
        }
    }
}
