//! Tests the limit of pinned memory on a host without RDMA devices, which therefore needs no pinned memory.

use std::process::Command;

use super::run::run;
use crate::support::binary;
use crate::support::process::surroundings;

/// Starts the program with a soft limit of 64 KiB and a hard limit of 128 KiB, and without the capability to
/// raise the hard one. Returns the command's `ulimit -l`, in KiB.
fn limit_after(flags: &[&str]) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-sys_resource", "prlimit", "--memlock=65536:131072"]);
    command.arg(binary()).args(flags).args(["--", "sh", "-c", "ulimit -l"]);
    surroundings(&mut command);
    run(command).expect_code(0).text().trim().to_owned()
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one_unless_told_not_to() {
    assert_eq!(limit_after(&[]), "128");
    assert_eq!(limit_after(&["--memlock", "enforce"]), "128");
    assert_eq!(limit_after(&["--memlock", "off"]), "64");
}
