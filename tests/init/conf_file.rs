//! Tests a start whose environment names the conf file that the start itself writes.

use super::container;
use crate::support::running::{Ended, as_pid_1};

fn start(root: &std::path::Path, file: &str) -> Ended {
    let mut command = container::command(root, true, "chroot", &["--", "/opt/sh", "-c", "exit 0"]);
    command.env("NCCL_CONF_FILE", file);
    as_pid_1(command).end().expect_code(0)
}

/// The advice of an earlier start has the name of the file that each start writes.
#[test]
fn a_conf_file_that_this_start_writes_is_not_missed() {
    for (file, is_missed) in [("/run/rdma-init/nccl.conf", false), ("/run/other/nccl.conf", true)] {
        let root = container::root();
        let ended = start(root.path(), file);
        assert_eq!(ended.stderr.contains("cannot read this file"), is_missed, "{ended:#?}");
    }
    // This start cannot write the file after all.
    let root = container::root();
    std::fs::write(root.path().join("run/rdma-init"), "").unwrap();
    let ended = start(root.path(), "/run/rdma-init/nccl.conf");
    assert!(ended.stderr.contains("cannot read this file"), "{ended:#?}");
}
