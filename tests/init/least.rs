//! Tests a start with few privileges, and which privileges its own processes keep.

use std::path::Path;

use super::container;
use crate::support::running::{Running, as_pid_1, children, descriptors, has_descriptors, status};
use crate::support::{poll_until, status_field};

/// Commands that drop privileges and enter the container.
const RESTRICTIONS: [&str; 6] = [
    "chroot",
    "setpriv --bounding-set=-all,+sys_chroot --inh-caps=-all chroot",
    "setpriv --no-new-privs chroot",
    "chroot --userspec=1000:1000",
    // As in a restricted Pod.
    "setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid chroot --userspec=1000:1000",
    "unshare --user --map-root-user chroot",
];

#[test]
fn whatever_rights_are_missing_the_command_gets_the_same() {
    let script = "echo started; busybox env | busybox grep ^NCCL_ | busybox grep -v ^NCCL_RDMA_INIT=";
    let outputs = RESTRICTIONS.map(|chroot| {
        let root = container::root();
        let command = container::command(root.path(), true, chroot, &["--", "/opt/sh", "-c", script]);
        let ended = as_pid_1(command).end().expect_code(0);
        assert!(ended.stdout.contains("NCCL_IB_HCA==mlx5_0\n"), "{chroot}: {ended:#?}");
        (chroot, ended.stdout)
    });
    for (chroot, output) in &outputs {
        assert_eq!(output, &outputs[0].1, "{chroot}");
    }
}

/// Starts a job with a watcher.
fn watched(root: &Path, options: &[&str]) -> Running {
    let words = ["--", "/opt/sh", "-c", "echo ready; exec busybox sleep 1000"];
    let words = [&["--watch", "warn"], options, &words].concat();
    let mut running = as_pid_1(container::command(root, true, "chroot", &words));
    running.wait_for("ready");
    running
}

/// Waits for the watcher of this job until these fields of its status have these values.
fn watcher(running: &Running, fields: &[(&str, &str)]) -> i32 {
    poll_until("the watcher has given up its rights", || {
        let named = |pid: &i32| status(*pid).starts_with("Name:\trdma-init-watch\n");
        let watcher = children(running.pid).into_iter().find(named)?;
        let status = status(watcher);
        let has = |(field, value): &(&str, &str)| status_field(&status, field) == Some(*value);
        fields.iter().all(has).then_some(watcher)
    })
}

const NONE: &str = "0000000000000000";

#[test]
fn the_watcher_has_no_capability_and_the_command_nothing_of_it() {
    let root = container::root();
    let running = watched(root.path(), &[]);
    let command = running.command();
    let watcher = watcher(&running, &["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| (set, NONE)));
    assert_ne!(status_field(&status(command), "CapEff"), Some(NONE));
    has_descriptors(command, &[0, 1, 2]).unwrap();
    // The kernel's events come on a socket of its own, and signals on a descriptor while it waits.
    let own = ["/memfd:rdma-init", "socket:", "anon_inode:[signalfd]"];
    let is_ours = |(number, what): &(i32, String)| *number < 3 || own.iter().any(|own| what.starts_with(own));
    assert!(descriptors(watcher).iter().all(is_ours), "{:?}", descriptors(watcher));
}

#[test]
fn the_watcher_can_execute_a_program_only_for_the_command_of_findings() {
    let (root, own) = (container::root(), status(std::process::id().cast_signed()));
    let own = ["Seccomp", "NoNewPrivs"].map(|field| (field, status_field(&own, field).unwrap()));
    let running = watched(root.path(), &[]);
    watcher(&running, &[("Seccomp", "2"), ("NoNewPrivs", "1")]);
    let command = status(running.command());
    assert_eq!(own.map(|(field, _)| (field, status_field(&command, field).unwrap())), own);
    // It looks at the ports once it has its name and no capability.
    let running = watched(root.path(), &["--on-finding", "/opt/sh"]);
    watcher(&running, &[own[0], own[1], ("CapEff", NONE)]);
}
