//! A real kernel with real RDMA devices: scripts that run in a virtual machine
//! with soft-RoCE. See tests/vm/run.sh.

mod support;

use std::process::Command;

use support::{binary, repository, skip};

/// Runs a script of tests/vm/guest in a machine of its own.
fn guest(script: &str, arguments: &[&str]) {
    let setup = Command::new(repository("tests/vm/setup.sh")).status().unwrap();
    if !setup.success() {
        return skip("the virtual machine cannot be set up (see above)");
    }
    let output = Command::new(repository("tests/vm/run.sh"))
        .arg(repository("tests/vm/guest").join(script))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{script}: {}\n{said}\n{problem}", output.status);
}

#[test]
fn the_harness_itself_works() {
    guest("smoke.sh", &[]);
}

#[test]
fn a_container_gets_the_slots_of_its_own_addresses() {
    guest("container.sh", &[binary().to_str().unwrap()]);
}
