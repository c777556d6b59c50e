//! Tests the tasks of SkyPilot and dstack in docs/adopting.md with the code of their packages that reads tasks.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::setup::{prepared, value};
use crate::support::repository;

/// Returns what the package refuses of a task.
fn refused(python: &str, package: &str, task: &str) -> String {
    let mut command = Command::new(python);
    command.arg(repository("tests/examples/tasks.py")).arg(package);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(task.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn skypilot_and_dstack_accept_their_tasks() {
    let Some(paths) = prepared("tasks") else { return };
    let python = value(&paths, "PYTHON");
    let page = fs::read_to_string(repository("docs/adopting.md")).unwrap();
    for (package, first_line) in [("sky", "# SkyPilot"), ("dstack", "# dstack")] {
        let task = page.split("```yaml\n").skip(1).find(|block| block.starts_with(first_line)).unwrap();
        let task = task.split("```").next().unwrap();
        assert!(task.contains("exec /rdma-init --supervise"), "{task}");
        assert_eq!(refused(&python, package, task), "", "{package}");
        // What is wrong is found.
        let wrong = task.replace("nodes: 2", "nodes: two");
        assert_ne!(refused(&python, package, &wrong), "", "{package}");
        let unknown = format!("{task}\nnodez: 2\n");
        assert_ne!(refused(&python, package, &unknown), "", "{package}");
    }
    let unset = "run: echo $SKYPILOT_NODEZ\n";
    assert!(refused(&python, "sky", unset).contains("SKYPILOT_NODEZ"));
}
