//! Saying why the command is not started, also where Kubernetes shows it.

use std::path::Path;

use crate::apply::termination_log;
use crate::config::TERMINATION_LOG_VARIABLE;
use crate::facts::environment::Environment;
use crate::log::say;
use crate::sys::environ;
use crate::sys::last_words::LastWords;

/// Says why the command is not started.
pub fn refuse(reason: &str, code: i32) {
    refuse_and_tell(reason, reason, code);
}

/// The same where others are told less.
pub fn refuse_and_tell(reason: &str, public: &str, code: i32) {
    say(&refusing(reason, code));
    leave_behind(&Environment::new(&environ::entries()), public);
}

/// What to say of it.
pub fn refusing(reason: &str, code: i32) -> String {
    format!("refusing to start the command (exit code {code}): {reason}")
}

/// Where Kubernetes shows why the command did not start.
pub fn leave_behind(known: &Environment, reason: &str) {
    if let Some(failed) = left_behind(known, reason) {
        say(&failed);
    }
}

/// The same in a process that speaks in another way: returns what to say where it cannot be
/// written.
pub fn leave_reason(reason: &str) -> Option<String> {
    left_behind(&Environment::new(&environ::entries()), reason)
}

fn left_behind(known: &Environment, reason: &str) -> Option<String> {
    let (words, failed) = last_words(known, reason);
    words.leave().err().map(|why| format!("{failed}: {why}"))
}

/// The reason for that file, and what to say where it cannot be written.
pub fn last_words(known: &Environment, reason: &str) -> (LastWords, String) {
    let path = known.get(TERMINATION_LOG_VARIABLE).filter(|path| !path.is_empty()).map(Path::new);
    let words = termination_log::last_words(&format!("rdma-init: {reason}\n"), path);
    let path = path.unwrap_or(Path::new(termination_log::DEFAULT));
    (words, format!("cannot write the reason to {}", path.display()))
}
