//! From the arguments to what was asked for, or a message that helps.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use clap::error::ErrorKind;

use super::{ACTIONS, Cli, ConfigFlags};
use crate::exit;
use crate::report::log::say;

/// Parses the arguments. What is not to be run has been printed already.
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
            // To standard output; a reader that went away is no error.
            let _ = error.print();
            0
        }
        _ => {
            let text = error.render().to_string();
            say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
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

/// `rdma-init -- COMMAND`, as nearly every container has it: after the dashes
/// nothing is ours, so there is nothing for clap to parse.
fn command_alone(arguments: &[CString]) -> Option<Cli> {
    let [_, dashes, command @ ..] = arguments else { return None };
    if dashes.as_bytes() != b"--" || command.is_empty() {
        return None;
    }
    let command = command.iter().map(|a| OsStr::from_bytes(a.as_bytes()).to_owned()).collect();
    Some(Cli { options: ConfigFlags::default(), action: None, command })
}

/// `rdma-init ls -la`: the user forgot the dashes.
fn missing_dashes(arguments: &[CString]) -> Option<String> {
    let first = arguments.get(1)?.to_str().ok()?;
    if first.starts_with('-') || ACTIONS.contains(&first) || first == "verbs-probe" {
        return None;
    }
    // With the dashes somewhere, clap's own message is the better one.
    if arguments.iter().any(|argument| argument.as_bytes() == b"--") {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_alone_is_what_clap_makes_of_it() {
        let lines: [&[&[u8]]; 7] = [
            &[b"rdma-init", b"--", b"true"],
            &[b"rdma-init", b"--", b"sh", b"-c", b"exit 3", b"--", b"--help"],
            &[b"rdma-init", b"--", b"--version"],
            &[b"rdma-init", b"--", b"--"],
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
    fn everything_else_is_for_clap() {
        for line in ["rdma-init", "rdma-init --", "rdma-init plan", "rdma-init --memlock off -- true"] {
            let line: Vec<CString> = line.split(' ').map(|text| CString::new(text).unwrap()).collect();
            assert!(command_alone(&line).is_none(), "{line:?}");
        }
    }
}
