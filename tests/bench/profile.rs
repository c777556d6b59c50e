//! Finds with callgrind what a start executes. `make order` derives a linker script from it.

use std::fs;
use std::io::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use super::image::Root;

/// A command that cannot be run: valgrind writes no profile of a process that becomes another program.
pub const NO_COMMAND: &[&str] = &["/nonexistent"];

/// A command that lasts, so that PID 1 waits for its end.
pub const COMMAND: &[&str] = &["/bin/sleep", "0.1"];

/// Starts rdma-init in this root as PID 1, and writes a profile of each of its processes into the
/// directory. The file names start with the given name. `environment` has entries of the form `NAME=VALUE`.
///
/// # Errors
/// A program cannot be started, or a file cannot be written.
pub fn write(
    root: &Root,
    folder: &Path,
    name: &str,
    environment: &[&str],
    options: &[&str],
    command: &[&str],
) -> Result<(), Error> {
    root.forget_starts();
    let inside = "/tmp/callgrind";
    let out = root.inside(inside);
    fs::create_dir_all(&out)?;
    Command::new("unshare")
        .args(["--fork", "--pid", "chroot"])
        // Variables from the environment of this process would change what the start does.
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(environment.iter().filter_map(|entry| entry.split_once('=')))
        .arg(root.inside("/"))
        .args(["valgrind", "--quiet", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={inside}/{name}.%p"))
        .arg("/added/rdma-init")
        .args(options)
        .arg("--")
        .args(command)
        .stdout(Stdio::null())
        // A pipe, as of a container engine.
        .stderr(Stdio::piped())
        .output()?;
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(&out)? {
        let file = entry?;
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    fs::remove_dir_all(out)
}
