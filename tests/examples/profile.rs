//! Tests the example of a user's own profile, with the commands that its README shows.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{binary, repository};

/// Returns the lines of the shell blocks in a text.
fn commands(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn each_command_of_the_readme_uses_the_profile() {
    let readme = fs::read_to_string(repository("examples/profile/README.md")).unwrap();
    let commands = commands(&readme);
    assert!(commands.len() >= 2, "{commands:?}");
    let folder = tempfile::tempdir().unwrap();
    symlink(binary(), folder.path().join("rdma-init")).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for command in commands {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).current_dir(repository("")).env_clear();
        shell.env("PATH", &path).env("RDMA_INIT_CONFIG", "/dev/null");
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("NCCL_IB_TC") && said.contains("106"), "{command}: {said}");
        if command.contains(" plan ") {
            // The list also contains a device for TCP.
            let list = "mlx5_7:1,mlx5_8:1,eth0 ";
            let is_ucx = |line: &str| line.contains(" UCX_NET_DEVICES ") && line.contains(list);
            assert!(said.lines().any(is_ucx), "{command}: {said}");
        }
    }
}
