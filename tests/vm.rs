//! A real kernel with real RDMA devices: scripts that run in a virtual machine
//! with soft-RoCE. See tests/vm/run.sh.

mod support;

use std::path::Path;

use support::{binary, vm};

fn guest(script: &str, arguments: &[&Path]) {
    if let Some(said) = vm::guest(script, arguments) {
        println!("{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn the_harness_itself_works() {
    guest("smoke.sh", &[]);
}

#[test]
fn a_container_gets_the_slots_of_its_own_addresses() {
    guest("container.sh", &[&binary()]);
}

#[test]
fn a_self_test_finds_what_is_wrong_with_a_device() {
    guest("self_test.sh", &[&binary()]);
}

#[test]
fn a_self_test_keeps_a_job_from_a_fabric_that_is_not_fit() {
    guest("start.sh", &[&binary()]);
}
