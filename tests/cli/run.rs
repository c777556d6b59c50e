//! Runs the program in place, and records how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::libc;

use crate::support::DEADLINE;
pub use crate::support::process::{from_scratch, program, rdma_init};

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("standard output is UTF-8")
    }

    /// Fails, showing everything that is known about the run, unless it ended with this code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks for one of the program's own errors: its message contains all of these parts, standard output
    /// is empty, and nothing panicked.
    #[track_caller]
    pub fn expect_error(self, parts: &[&str]) -> Ran {
        let ran = self.expect_code(125);
        for part in parts {
            assert!(ran.stderr.contains(part), "no {part:?} in {ran:#?}");
        }
        assert!(ran.stdout.is_empty(), "{ran:#?}");
        assert!(!ran.stderr.contains("panicked") && !ran.stderr.is_empty(), "{ran:#?}");
        ran
    }
}

/// Runs a command to its end. Fails if the command hangs.
#[track_caller]
pub fn run(command: Command) -> Ran {
    run_with_input(command, "")
}

#[track_caller]
pub fn run_with_input(command: Command, input: impl Into<Vec<u8>>) -> Ran {
    let shown = format!("{command:?}");
    let mut command = assert_cmd::Command::from_std(command);
    let output = command.timeout(DEADLINE).write_stdin(input).output();
    let output = output.unwrap_or_else(|error| panic!("{shown}: {error}"));
    let ran = Ran {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    let hung = ran.signal == Some(libc::SIGKILL);
    assert!(!hung, "did not end within {DEADLINE:?}: {shown}\n{ran:#?}");
    ran
}

/// Returns whether a mount namespace can be created here.
pub fn has_own_mounts() -> bool {
    let output = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    output.is_ok_and(|output| output.status.success())
}
