//! The messages about unusable arguments. Each message is one line that names the command, the option and its
//! value, and says what is expected.

use std::error::Error;
use std::ffi::CString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::ACTIONS;
use super::options::PREFLIGHT;
use super::usage::OLD_ENTRYPOINT;
use crate::text::{shortened, visible};

/// Renamed options: command, old name, new name.
const RENAMED: &[(Option<&str>, &str, &str)] = &[
    (None, "preflight-json", "--preflight-json-file"),
    (Some("preflight"), "no-bisection", "--bisection=false"),
    (Some("preflight"), "format", "--exclude-format"),
];

/// Returns the message for a clap error.
pub(super) fn of(error: &clap::Error, cli: &Command, arguments: &[CString]) -> String {
    let words = || arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    let action = words().take_while(|word| word != "--").find(|word| ACTIONS.contains(&word.as_ref()));
    let action = action.as_deref();
    let text = match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, cli, action, arguments),
        ErrorKind::InvalidSubcommand => {
            context(error, ContextKind::InvalidSubcommand).map(|word| not_a_word(action, word))
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error, action),
        ErrorKind::TooManyValues => context(error, ContextKind::InvalidArg).map(|option| {
            format!("the option {} takes no value; see {} --help.", visible(name(option)), whole(action))
        }),
        _ => None,
    };
    text.unwrap_or_else(|| first_paragraph(error, action))
}

/// Returns clap's other messages, such as which options exclude each other.
fn first_paragraph(error: &clap::Error, action: Option<&str>) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let words: Vec<&str> = text.split("\n\n").next().unwrap_or(text).split_whitespace().collect();
    let text = shortened(&visible(&words.join(" "))).replace('\'', "");
    format!("{}{text}; see {} --help.", of_action(action), whole(action))
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// Returns the whole name of a command, such as `rdma-init plan`.
fn whole(action: Option<&str>) -> String {
    action.map_or_else(|| "rdma-init".to_owned(), |action| format!("rdma-init {action}"))
}

/// Returns the prefix of a command's messages, such as `plan: `.
fn of_action(action: Option<&str>) -> String {
    action.map_or_else(String::new, |action| format!("{action}: "))
}

/// Returns an argument's name: `--watch` for `--watch [<TIME>]`; `SHELL` for `<SHELL>` and `[SHELL]`.
fn name(argument: &str) -> &str {
    match argument.starts_with('-') {
        true => argument.split([' ', '=', '[']).next().unwrap_or(argument),
        false => argument.trim_matches(['<', '>', '[', ']', '.']),
    }
}

/// Returns the message for a value that its option does not accept: clap knows the possible values, or a
/// parser says what it expects.
fn bad_value(error: &clap::Error, action: Option<&str>) -> Option<String> {
    let argument = name(context(error, ContextKind::InvalidArg)?);
    let what = if argument.starts_with('-') { format!("the option {argument}") } else { argument.to_owned() };
    let expected = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => {
            format!("expected one of {}", values.join(", "))
        }
        _ => error.source().map(|why| why.to_string()).unwrap_or_default(),
    };
    let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
    let has = match (value, expected.is_empty()) {
        ("", true) => {
            return Some(format!("{}{what} needs a value; see {} --help.", of_action(action), whole(action)));
        }
        ("", false) if error.kind() == ErrorKind::InvalidValue => "needs a value".to_owned(),
        (value, _) => format!("has the value {:?}", shortened(&visible(value))),
    };
    Some(format!("{}{what} {has}: {expected}.", of_action(action)))
}

/// Returns whether a command has this option.
pub(super) fn takes(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(option))
}

/// Returns the message for an option that a command does not accept, with its new name or the commands that
/// accept it.
pub(super) fn not_taken(cli: &Command, action: Option<&str>, option: &str) -> String {
    let help = format!("see {} --help.", whole(action));
    match elsewhere(cli, action, option) {
        Some(advice) => format!("{}; {advice}; {help}", has_no(action, option)),
        None => format!("{}; {help}", has_no(action, option)),
    }
}

fn has_no(action: Option<&str>, option: &str) -> String {
    match action {
        Some(action) => format!("{action} has no option {}", visible(option)),
        None => format!("there is no option {}", visible(option)),
    }
}

fn elsewhere(cli: &Command, action: Option<&str>, option: &str) -> Option<String> {
    let option = option.strip_prefix("--")?;
    let renamed = RENAMED.iter().find(|(of, old, _)| *of == action && *old == option).map(|(.., new)| *new);
    let of_preflight = option.strip_prefix(PREFLIGHT).filter(|_| action == Some("preflight"));
    if let Some(new) = renamed {
        return Some(format!("it is called {new}"));
    }
    if let Some(new) = of_preflight {
        return Some(format!("it is called --{new}"));
    }
    let commands = cli.get_subcommands().filter(|command| takes(command, option));
    let mut takers: Vec<String> = commands.map(|command| whole(Some(command.get_name()))).collect();
    if takes(cli, option) {
        takers.insert(0, "rdma-init -- COMMAND".to_owned());
    }
    let last = takers.pop()?;
    Some(match takers.is_empty() {
        true => format!("{last} takes it"),
        false => format!("{} and {last} take it", takers.join(", ")),
    })
}

/// Returns the message for a word where the command expects none.
fn not_a_word(action: Option<&str>, word: &str) -> String {
    let (shown, whole) = (visible(word), whole(action));
    match action {
        Some("exec") => format!(
            "{shown:?} is not an option of {whole}. To run it, put -- before it: {whole} -- {shown} ..."
        ),
        Some(action) => format!("{action} does not take {shown:?}; see {whole} --help."),
        None => format!(
            "{shown:?} is not a command of rdma-init. To run it, put -- before it: rdma-init [OPTIONS] -- {shown} ..."
        ),
    }
}

/// Returns the message for an option or a word that the command does not accept.
fn unknown(
    error: &clap::Error,
    cli: &Command,
    action: Option<&str>,
    arguments: &[CString],
) -> Option<String> {
    let word = context(error, ContextKind::InvalidArg)?;
    if !word.starts_with('-') {
        return Some(not_a_word(action, word));
    }
    if elsewhere(cli, action, word).is_some() {
        return Some(not_taken(cli, action, word));
    }
    let whole = whole(action);
    if let Some(known) = context(error, ContextKind::SuggestedArg) {
        let unknown = has_no(action, word);
        return Some(format!("{unknown}; did you mean {known}? To see all options: {whole} --help."));
    }
    let unknown = not_taken(cli, action, word);
    let has_dashes = arguments.iter().any(|argument| argument.as_bytes() == b"--");
    Some(match action {
        Some(_) => unknown,
        None if has_dashes => {
            format!("{unknown} Put the command's own options after the command, after the dashes.")
        }
        None => format!(
            "{unknown} Put the command's own options after the command, after two dashes: \
             rdma-init -- COMMAND {}. {OLD_ENTRYPOINT}",
            visible(word)
        ),
    })
}
