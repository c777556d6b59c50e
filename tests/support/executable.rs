//! Executable files that a test makes. A shell writes them: if the test process had the file open for writing, a program
//! that another test starts at that moment would inherit the descriptor, and the file could not be executed (ETXTBSY).

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::binary;

/// Writes an executable file with this text.
pub fn executable(path: &Path, text: &str) {
    copy_executable("/dev/stdin", path, text);
}

/// Copies an executable file, or writes `input` if `from` is /dev/stdin.
pub fn copy_executable(from: impl AsRef<OsStr>, to: &Path, input: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-ec", "cat \"$0\" >\"$1\"; chmod 755 \"$1\""]).arg(from).arg(to).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{} cannot be written", to.display());
}

/// Copies the program under test into a directory.
pub fn copy_of_binary(folder: &Path) -> PathBuf {
    let program = folder.join("rdma-init");
    copy_executable(binary(), &program, "");
    program
}
