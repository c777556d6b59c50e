//! Whether signals to the container reach the command.

use crate::facts::Facts;
use crate::finding::{Finding, Id};

const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// The finding, if PID 1 is a shell that runs us. The kernel gives PID 1 no signal that it
/// has no handler for, and a shell has one only if a script sets a trap.
pub(super) fn finding(facts: &Facts) -> Option<Finding> {
    let shell = facts.parent.as_ref().filter(|parent| {
        SHELLS.contains(&parent.program.as_str()) && parent.has_operand && !parent.catches_term
    })?;
    let message = format!(
        "PID 1 of this container is a shell ({}), and rdma-init is its child. The shell does not forward signals: the command does not notice when the container is stopped, and is killed at the end of the grace period.",
        shell.program
    );
    Some(Finding::info(Id::ShellIsPid1, message).with_fix(
        "Start rdma-init in place of the shell, with exec: sh -c \"exec /rdma-init -- ...\". Or without a shell, in JSON form: ENTRYPOINT [\"/rdma-init\", \"--\"].",
    ))
}
