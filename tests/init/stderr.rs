//! Tests a standard error that is a pipe of another user, as behind su, gosu, and setpriv: the program
//! cannot reopen it, so it must write without waiting in another way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;

use crate::support::crowd;
use crate::support::executable::copy_of_binary;
use crate::support::refused_call::refuse;
use crate::support::running::{filtered, from_scratch, rdma_init};

/// Makes a command of another user, whose standard error is this test's pipe.
fn by_other(program: &Path, ours: &Command) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1234", "--regid", "1234", "--clear-groups"]).arg(program).args(ours.get_args());
    command.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    from_scratch(&mut command);
    command
}

/// Another writer fills the pipe between the check and the write, and no process reads from it.
#[test]
fn a_pipe_that_another_writer_has_filled_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = copy_of_binary(folder.path());
    // These flags select the first writer: the preparation with its report, or PID 1 with the end line.
    let report = ["--prepare-timeout", "1h"];
    let end = ["--log-level", "warn"];
    // Before Linux 6.4, a pipe does not support the simplest way to write.
    let kernels: [&[libc::c_long]; 2] = [&[], &[libc::SYS_pwritev2]];
    for (is_pid_1, flags) in [(true, report), (true, end), (false, report)] {
        for unknown in kernels {
            let (_reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
            let install = crowd::before_each_write(&writer);
            let ours = rdma_init([&flags[..], &["--", "sh", "-c", "echo ran; exit 7"]].concat());
            let mut command = by_other(&program, &ours);
            command.stderr(writer);
            refuse(&mut command, unknown, libc::EOPNOTSUPP);
            let ended = filtered(command, is_pid_1, install).end().expect_code(7);
            assert_eq!(ended.stdout, "ran\n", "{flags:?}: {ended:#?}");
        }
    }
}
