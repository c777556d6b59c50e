//! What is above this module, and what it is handed therefore.

use std::ffi::CString;
use std::time::Duration;

use super::orders::Refusal;

/// What the processes do that a supervisor forks beside the preparation, and what it says when
/// it refuses. PID 1 calls none of the first three itself.
#[derive(Clone, Copy)]
pub struct Tasks {
    /// Becomes the command with what was decided, as the preparation has left it. Returns the
    /// code to exit with where that cannot be, when it has been said.
    pub execute_decided: fn(&[u8], Vec<CString>, Option<Refusal>) -> i32,
    /// The same as it would have been without rdma-init.
    pub execute_untouched: fn(Vec<CString>) -> i32,
    /// Tells what the job has moved since this note was made, so long ago.
    pub tell_traffic: fn(&[u8], Duration),
    /// The sentence that says why, with the exit code.
    pub refusing: fn(&str, i32) -> String,
    /// Has a process of its own leave the reason where Kubernetes shows it. Returns what to say
    /// where that cannot be.
    pub leave_reason: fn(&str) -> Option<String>,
}
