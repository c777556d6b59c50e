//! Exit codes, as docs/configuration.md documents them.

use nix::errno::Errno;

/// `rdma-init` itself failed: wrong usage, a wrong configuration, or a program file that is setuid, setgid,
/// or has capabilities it must not have.
pub(crate) const FAILED: i32 = 125;
/// The command exists but could not be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// The command was not found, as in a shell.
pub(crate) const NOT_FOUND: i32 = 127;
/// rdma-init refused to start the command (`require-rdma`, `memlock = "enforce"`, `self-test =
/// "enforce"`, `preflight = "enforce"`); `refuse-exit-code` changes this code.
pub(crate) const REFUSED: i32 = 121;

/// Returns the code of a command that a signal killed.
pub(crate) fn of_signal(signal: i32) -> i32 {
    128 + signal
}

/// Returns the code of a command that could not be executed.
pub(crate) fn of_exec_error(error: Errno) -> i32 {
    match error {
        Errno::ENOENT | Errno::ENOTDIR => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        assert_eq!(of_signal(15), 143);
        assert_eq!(of_exec_error(Errno::ENOENT), 127);
        assert_eq!(of_exec_error(Errno::EACCES), 126);
        assert_eq!(of_exec_error(Errno::ENOEXEC), 126);
    }
}
