//! Network namespaces of this machine, each kept alive by a process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::skip;

/// A process that keeps namespaces alive. They vanish when it ends.
pub struct Process(Child);

impl Process {
    /// Starts a process that prints "ready" once its namespaces are created, and stays until its input ends.
    pub fn start(command: &mut Command) -> Process {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{command:?} did not come up (see above)");
        Process(child)
    }

    /// Returns a network namespace without any link that is up.
    pub fn of_links() -> Process {
        Process::start(Command::new("unshare").args(["--net", "--", "sh", "-c", "echo ready; exec cat"]))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns a command that runs a program in this process's namespaces of these kinds.
    pub fn command(&self, kinds: &[&str], program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.pid().to_string()).args(kinds).arg("--").arg(program.as_ref());
        command
    }

    /// Runs ip(8) commands, one per line.
    #[track_caller]
    pub fn ip(&self, lines: &[String]) {
        assert!(self.passes("ip", &["-batch", "-"], &lines.join("\n")), "{lines:?}");
    }

    /// Runs tc(8) commands, one per line. Returns whether the kernel accepts all of them.
    #[must_use]
    pub fn tc(&self, lines: &[String]) -> bool {
        self.passes("tc", &["-batch", "-"], &lines.join("\n"))
    }

    /// Passes rules to nft(8).
    #[track_caller]
    pub fn nft(&self, rules: &str) {
        assert!(self.passes("nft", &["-f", "-"], rules), "{rules}");
    }

    /// Runs a program with this input in the network namespace, and returns whether it succeeds.
    fn passes(&self, program: &str, arguments: &[&str], input: &str) -> bool {
        let mut command = self.command(&["--net"], program);
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether this machine can create such namespaces, and prints a message if it cannot.
pub fn can_be_made() -> bool {
    let made = Command::new("unshare")
        .args(["--net", "--mount", "--", "ip", "link", "add", "probe", "type", "veth"])
        .output()
        .unwrap();
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr);
        skip(&format!("no network namespace with a veth link can be made, or not by this user: {why}"));
    }
    made.status.success()
}

/// Returns whether nft(8) can filter here, and prints a message if it cannot.
pub fn has_nft() -> bool {
    let made =
        Command::new("unshare").args(["--net", "--", "nft", "add", "table", "netdev", "probe"]).output();
    let is_there = made.is_ok_and(|made| made.status.success());
    if !is_there {
        skip("nft(8) is not installed, or this kernel does not know its rules");
    }
    is_there
}
