//! Checks the shell scripts with the shell and with shellcheck.

use std::path::Path;
use std::process::Command;

use super::covered::files;
use crate::support::{repository, skip};

#[test]
fn no_shell_script_has_a_known_mistake() {
    let scripts = files(&[".sh", ".sbatch"]);
    assert!(scripts.len() >= 4, "{scripts:?}");
    for script in &scripts {
        let text = std::fs::read_to_string(repository(script)).unwrap();
        let shell = text.lines().next().unwrap().strip_prefix("#!").unwrap();
        let read = Command::new(shell).arg("-n").arg(repository(script)).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    }
    if !Path::new("/usr/bin/shellcheck").exists() {
        skip("there is no shellcheck (Debian's package of this name)");
        return;
    }
    let checked = Command::new("shellcheck").args(scripts.iter().map(repository)).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
