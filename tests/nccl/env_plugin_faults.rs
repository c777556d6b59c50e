//! Makes each system call of our own env plugin fail, one in each process, with the errors that its manual page names.
//! The process goes on: it gets what was decided, or what it has in its environment.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;

use super::env_plugin_node::{Node, client};
use crate::support::DEADLINE;
use crate::support::faults::{Place, call_of, fail};
use crate::support::nccl::driver;
use crate::support::running::{Ended, filtered};

/// What the process has in its environment: a value of its own, and a copy of another node's.
const OWN: [&str; 2] = ["NCCL_SHM_DISABLE=1", "NCCL_IB_HCA==mlx5_7"];
/// The answers for all variables, and those without the plugin.
const DECIDED: [&str; 5] = [
    "NCCL_IB_HCA==mlx5_1",
    "NCCL_SOCKET_IFNAME==eth0",
    "NCCL_ALGO",
    "NCCL_SHM_DISABLE=1",
    "NCCL_IB_HCA==mlx5_1",
];
const OF_PROCESS: [&str; 5] =
    ["NCCL_IB_HCA==mlx5_7", "NCCL_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_SHM_DISABLE=1", "NCCL_IB_HCA==mlx5_7"];

/// Starts a process that asks the plugin, in its threads and in a child, too.
fn ask(node: &Node, fails: Option<(Place, i32)>) -> (Ended, Vec<Place>) {
    let mut command = client(node, &[], 1);
    command.args(OWN).stdin(Stdio::null());
    let (filter, seen) = fail(&driver().join("env-client"), fails);
    let mut running = filtered(command, false, filter);
    if !running.ends_within(DEADLINE) {
        running.kill(libc::SIGKILL);
    }
    (running.end(), seen.recv_timeout(DEADLINE).expect("no process has the filter any more"))
}

fn answers(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter(|line| !line.starts_with("log ")).take(DECIDED.len()).collect()
}

/// The plugin alone reads a directory. It begins after the loader has mapped it.
fn of_plugin(places: &[Place]) -> &[Place] {
    const CALLS: [libc::c_long; 6] = [
        libc::SYS_openat,
        libc::SYS_read,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_getdents64,
        libc::SYS_readlinkat,
    ];
    let is_other = |place: &Place| !CALLS.contains(&place.call);
    let read =
        places.iter().position(|place| place.call == libc::SYS_getdents64).expect("a directory is read");
    let (before, after) = places.split_at(read);
    let start = before.iter().rposition(is_other).map_or(0, |other| other + 1);
    let end = after.iter().position(is_other).map_or(places.len(), |other| read + other);
    &places[start..end]
}

#[test]
fn a_call_that_fails_leaves_the_process_its_environment() {
    let node = Node::new();
    let (ended, places) = ask(&node, None);
    assert_eq!(answers(&ended), DECIDED, "{ended:#?}");
    let places = of_plugin(&places);
    assert!(places.len() > 20, "{places:?}");
    let faults: Vec<(Place, i32)> =
        places.iter().flat_map(|place| call_of(*place).2.iter().map(|errno| (*place, *errno))).collect();
    let (next, without, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((place, errno)) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (ended, _) = ask(&node, Some((*place, *errno)));
                    let found = answers(&ended);
                    let either = DECIDED.iter().zip(OF_PROCESS);
                    let is_well = ended.status.success()
                        && ended.stderr.is_empty()
                        && found.len() == DECIDED.len()
                        && found
                            .iter()
                            .zip(either)
                            .all(|(found, (ours, own))| found == ours || *found == own);
                    if !is_well {
                        let (_, name, _) = call_of(*place);
                        let error = Errno::from_raw(*errno);
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{name} number {}: {error:?}: {ended:#?}", place.nth));
                    }
                    without.fetch_add(usize::from(found == OF_PROCESS), Ordering::Relaxed);
                }
            });
        }
    });
    let (wrong, without) = (wrong.into_inner().unwrap(), without.into_inner());
    println!(
        "{} calls, {} faults, {without} processes without the plugin's answers",
        places.len(),
        faults.len()
    );
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), faults.len(), wrong.join("\n"));
    assert!(without > 0, "no fault keeps the plugin from its decision");
}
