//! Replaces this process with the command.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::{exec_failed, refuse};
use crate::apply::{environment, memlock};
use crate::facts::{Reader, limits, process};
use crate::init::Refusal;
use crate::json;
use crate::log::say;
use crate::sys::environ;
use crate::sys::exec::PreparedExec;

/// Executes the command. If that fails, reports it and returns the exit code.
pub fn execute(mut image: PreparedExec, command: &[CString]) -> i32 {
    let error = image.exec();
    failed(error, command, &image)
}

/// Does the same as [`execute`], with the command as it would have started without rdma-init.
pub fn execute_untouched(command: Vec<CString>) -> i32 {
    execute(PreparedExec::new(command.clone(), environ::entries()), &command)
}

/// Does the same as [`execute`], with the filled variables, for which the kernel may lack room. In that case,
/// starts the command without them, or not at all if there is a `refusal`.
pub fn execute_filled(mut image: PreparedExec, command: &[CString], refusal: Option<Refusal>) -> i32 {
    let error = image.exec();
    if error != Errno::E2BIG {
        return failed(error, command, &image);
    }
    unfilled("the environment has no room for the variables that were filled in", command, refusal)
}

/// Executes the command without those variables for this reason; refuses if there is a `refusal`.
fn unfilled(what: &str, command: &[CString], refusal: Option<Refusal>) -> i32 {
    if let Some(refusal) = refusal {
        refuse(&refusal.because(what), refusal.code);
        return refusal.code;
    }
    say(&format!("{what}; the command starts without them."));
    execute(PreparedExec::new(command.to_vec(), environ::entries()), command)
}

/// What the command gets if the preparation reached this point but did not finish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialPreparation {
    /// Whether to raise the limit on pinned memory.
    pub raises_memlock: bool,
    /// The names and values of the filled variables.
    pub filled: Vec<(String, String)>,
}

impl PartialPreparation {
    pub fn filled(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filled.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the bytes that the command's init keeps and [`execute_decided`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::line(self)
    }
}

/// Executes the command with the decision, in a process that has not prepared anything itself.
pub fn execute_decided(decision: &[u8], command: Vec<CString>, refusal: Option<Refusal>) -> i32 {
    let Ok(decided) = json::read::<PartialPreparation>(decision) else {
        return unfilled("the variables that were filled in cannot be read", &command, refusal);
    };
    if decided.raises_memlock {
        raise_memlock();
    }
    let image = PreparedExec::new(command.clone(), environment::with(environ::entries(), decided.filled()));
    execute_filled(image, &command, refusal)
}

/// Raises this process's limit on pinned memory without a message.
pub(super) fn raise_memlock() {
    if let Some(before) = limits::read().memlock {
        memlock::raise(before, &process::read(&Reader::new(Path::new("/"))));
    }
}

fn failed(error: Errno, command: &[CString], image: &PreparedExec) -> i32 {
    let name = command.first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
    let (message, code) = exec_failed(name, error, image);
    say(&message);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_read_as_it_was_left() {
        let pairs = [("NCCL_IB_HCA", "=mlx5_1"), ("EMPTY", ""), ("LINES", "a\nb"), ("QUOTES", "\"\\\u{1}")];
        let decided = PartialPreparation {
            raises_memlock: true,
            filled: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        for decided in [PartialPreparation { raises_memlock: false, filled: Vec::new() }, decided] {
            assert_eq!(json::read::<PartialPreparation>(&decided.to_bytes()).unwrap(), decided);
        }
    }
}
