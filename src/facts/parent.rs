//! PID 1 of the container, if it has started this process.

use nix::libc::SIGTERM;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::reader::{Reader, of_kernel};
use super::start::SupervisedBy;

/// The part of PID 1's command line that rdma-init keeps. The rest may contain secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParentProcess {
    /// The name in PID 1's command line, without the directory: `sh`.
    pub program: String,
    /// Whether the command line contains more than options: a script or commands. An interactive shell's does
    /// not.
    pub has_operand: bool,
    /// Whether it has a handler for SIGTERM.
    pub catches_term: bool,
}

/// Reads PID 1. Returns `None` if PID 1 is rdma-init, if another program started this process, on the machine
/// itself, or if /proc hides PID 1. If rdma-init runs as a subreaper in between, PID 1 must have started the
/// subreaper.
pub(crate) fn read(reader: &Reader, keeper: SupervisedBy) -> Option<ParentProcess> {
    let parent = getppid().as_raw();
    let starter = match keeper {
        SupervisedBy::NoProcess => parent,
        SupervisedBy::Pid1 => return None,
        SupervisedBy::Subreaper => parent_of(reader, parent)?,
    };
    if starter != 1 || !Identity::own().is_container() {
        return None;
    }
    // The command line of another user's process may be hidden (hidepid, proc(5)).
    let line = of_kernel(reader.path("/proc/1/cmdline"))?;
    let status = reader.text_if_readable("/proc/1/status")?;
    parse(&line, &status)
}

fn parent_of(reader: &Reader, pid: i32) -> Option<i32> {
    let status = reader.text_if_readable(format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn parse(line: &str, status: &str) -> Option<ParentProcess> {
    let mut words = line.split('\0').filter(|word| !word.is_empty()).map(without_folder).peekable();
    let mut program = words.next()?;
    // busybox is one program with many names, and the next word is the name.
    if program == "busybox" {
        program = words.next().unwrap_or(program);
    }
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    Some(ParentProcess {
        // The name of a login shell begins with a hyphen.
        program: program.trim_start_matches('-').to_owned(),
        has_operand: words.any(|word| !word.starts_with('-')),
        catches_term: caught & (1 << (SIGTERM - 1)) != 0,
    })
}

fn without_folder(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kind_of_the_command_line_is_kept() {
        let of = |line: &str, caught: &str| {
            let parent = parse(line, &format!("Name:\tsh\nSigCgt:\t{caught}\n")).unwrap();
            (parent.program, parent.has_operand, parent.catches_term)
        };
        let sh = |program: &str, has_operand, catches_term| (program.to_owned(), has_operand, catches_term);
        // The signals that shells catch by default, CHLD and INT; then the same with TERM, for a script with
        // a trap.
        let (plain, trap) = ("0000000000010002", "0000000000014002");
        assert_eq!(of("/bin/sh\0-c\0TOKEN=x /rdma-init -- y\0", plain), sh("sh", true, false));
        assert_eq!(of("/bin/bash\0/entrypoint.sh\0--x\0", trap), sh("bash", true, true));
        assert_eq!(of("busybox\0sh\0-c\0x\0", plain), sh("sh", true, false));
        assert_eq!(of("-bash\0", plain), sh("bash", false, false));
        assert_eq!(of("bash\0-i\0", plain), sh("bash", false, false));
        assert_eq!(of("/usr/lib/systemd/systemd\0--system\0", plain), sh("systemd", false, false));
        // A kernel thread has no command line; neither has a process that erased its own.
        assert_eq!(parse("", "SigCgt:\t0\n"), None);
    }
}
