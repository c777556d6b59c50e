//! Runs scripts in a virtual machine whose kernel has soft-RoCE. See tests/vm/run.sh.

use std::env::{self, consts::ARCH};
use std::path::Path;
use std::process::Command;

use super::{repository, skip};

/// Returns the machine that tests/vm/machine.sh selects.
pub fn machine() -> String {
    env::var("RDMA_INIT_VM_MACHINE").unwrap_or_else(|_| ARCH.to_owned())
}

/// Runs a script of tests/vm/guest in a separate virtual machine, and returns its output; `None` if no such
/// machine can be set up here.
pub fn guest(script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    guest_of(&machine(), SECONDS, script, arguments)
}

/// Does the same as [`guest`], in this machine of tests/vm/machine.sh, which may take so many seconds.
pub fn guest_of(machine: &str, seconds: u64, script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    run(machine, seconds, Vec::new(), script, arguments)
}

/// This is longer than any script takes on a busy machine, but one that is asked to take longer.
pub const SECONDS: u64 = 600;

/// Does the same as [`guest`], with a NIC for each pair of UDP ports. A NIC is connected to a NIC of another
/// machine that has the same two ports in reverse order.
pub fn guest_with(links: &[(u16, u16)], script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    let links = links.iter().map(|(local, remote)| format!("-l{local}:{remote}"));
    run(&machine(), SECONDS, links.collect(), script, arguments)
}

/// Does the same as [`guest`], with a NIC on the network of each of these ports. The guest has this number
/// there.
pub fn guest_on(networks: &[u16], number: u8, script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    let networks = networks.iter().map(|port| format!("-b{port}:{number}"));
    run(&machine(), SECONDS, networks.collect(), script, arguments)
}

fn run(
    machine: &str,
    seconds: u64,
    cards: Vec<String>,
    script: &str,
    arguments: &[&Path],
) -> Option<Vec<u8>> {
    let program = |name| {
        let mut program = Command::new(repository(name));
        program.env("RDMA_INIT_VM_MACHINE", machine);
        program
    };
    let setup = program("tests/vm/setup.sh").status().unwrap();
    if !setup.success() {
        skip("the virtual machine cannot be set up (see above)");
        return None;
    }
    let output = program("tests/vm/run.sh")
        .args(cards)
        .arg(repository("tests/vm/guest").join(script))
        .args(arguments)
        .env("RDMA_INIT_VM_TIMEOUT", seconds.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{said}\n{problem}", output.status);
    Some(output.stdout)
}
