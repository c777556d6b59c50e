//! Starts programs without the state that the test process itself inherited.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use super::binary;

/// Returns the command for the program with these arguments. It sees neither the configuration nor the
/// variables of the machine that runs the test. It is started by its name, as if the PATH led to it.
pub fn rdma_init<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = program(binary(), arguments);
    command.arg0("rdma-init");
    command
}

/// Does the same as [`rdma_init`] for any program.
pub fn program<A: AsRef<OsStr>>(path: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(path);
    surroundings(&mut command);
    command.args(arguments);
    from_scratch(&mut command);
    command
}

/// Gives a command its own environment, in which the program neither reads nor writes files of this machine.
pub fn surroundings(command: &mut Command) -> &mut Command {
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    // The default would be too short for an emulated program on a busy machine.
    command.env("RDMA_INIT_PREPARE_TIMEOUT", "10m");
    command.env("RDMA_INIT_STATE_DIR", "").env("RDMA_INIT_WRITE_NCCL_CONF", "false")
}

/// Removes state that the test process may have inherited: open descriptors and ignored signals.
pub fn from_scratch(command: &mut Command) {
    // SAFETY: system calls with constants; both are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for signal in 1..=64 {
                let default = [0u64; 4];
                libc::syscall(libc::SYS_rt_sigaction, signal, &default, 0, 8);
            }
            Ok(())
        });
    }
}

/// Closes some of the standard descriptors before the program starts.
pub fn close(command: &mut Command, numbers: Vec<i32>) {
    // SAFETY: close is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for number in &numbers {
                libc::close(*number);
            }
            Ok(())
        });
    }
}
