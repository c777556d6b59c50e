//! Says why the command is not started, and writes the reason where Kubernetes shows it.

use std::path::Path;

use crate::apply::termination_log;
use crate::config::TERMINATION_LOG_VARIABLE;
use crate::facts::environment::Environment;
use crate::log::{is_json, say};
use crate::sys::environ;
use crate::sys::last_words::LastWords;

/// Says why the command is not started.
pub fn refuse(reason: &str, code: i32) {
    refuse_with_public_reason(reason, reason, code);
}

/// Does the same as [`refuse`], but writes `public` as the reason for others.
pub fn refuse_with_public_reason(reason: &str, public: &str, code: i32) {
    let message = refusing(reason, code);
    match is_json() {
        true => tracing::error!(event = "refusal", code, "{message}"),
        false => say(&message),
    }
    write_termination_log(&Environment::new(&environ::entries()), public);
}

/// Returns the sentence for a refusal.
pub fn refusing(reason: &str, code: i32) -> String {
    format!("refusing to start the command (exit code {code}): {reason}")
}

/// Writes the reason where Kubernetes shows it, and reports if that fails.
pub fn write_termination_log(known: &Environment, reason: &str) {
    if let Some(failed) = left_behind(known, reason) {
        say(&failed);
    }
}

/// Does the same as [`write_termination_log`] for a process that reports in another way: returns the message if the
/// write fails.
pub fn leave_reason(reason: &str) -> Option<String> {
    left_behind(&Environment::new(&environ::entries()), reason)
}

fn left_behind(known: &Environment, reason: &str) -> Option<String> {
    let (words, failed) = last_words(known, reason);
    words.leave().err().map(|why| format!("{failed}: {why}"))
}

/// Leaves where Kubernetes shows it how the command failed, unless the command itself has left a text there. Says
/// nothing if that fails: the same is on standard error.
pub(super) fn leave_account(text: &str) {
    let environment = Environment::new(&environ::entries());
    let _ = termination_log::account(&format!("rdma-init: {text}\n"), configured(&environment)).leave();
}

fn configured(known: &Environment) -> Option<&Path> {
    known.get(TERMINATION_LOG_VARIABLE).filter(|path| !path.is_empty()).map(Path::new)
}

/// Returns the text for Kubernetes' file, and what to say if it cannot be written.
pub fn last_words(known: &Environment, reason: &str) -> (LastWords, String) {
    let path = configured(known);
    let words = termination_log::last_words(&format!("rdma-init: {reason}\n"), path);
    let path = path.unwrap_or(Path::new(termination_log::DEFAULT));
    (words, format!("cannot write the reason to {}", path.display()))
}
