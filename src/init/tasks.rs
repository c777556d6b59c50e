//! Functions of the modules above this one, which hand them down to it.

use std::ffi::CString;
use std::time::Duration;

use super::orders::Refusal;

/// What the processes that a supervisor forks besides the preparation do, and what the
/// supervisor says when it refuses. PID 1 itself calls none of the first three.
#[derive(Clone, Copy)]
pub(crate) struct Tasks {
    /// Becomes the command with what was decided. If that fails, says so and returns the code
    /// to exit with.
    pub execute_decided: fn(&[u8], Vec<CString>, Option<Refusal>) -> i32,
    /// Becomes the command as it would have started without rdma-init.
    pub execute_untouched: fn(Vec<CString>) -> i32,
    /// Tells what the job has moved since this note was made, and how long ago that was.
    pub tell_traffic: fn(&[u8], Duration),
    /// The sentence that says why the command is refused, with the exit code.
    pub refusing: fn(&str, i32) -> String,
    /// Writes the reason to where Kubernetes shows it; runs in a child. Returns what to say if
    /// that fails.
    pub leave_reason: fn(&str) -> Option<String>,
}
