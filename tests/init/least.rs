//! Tests a start with few privileges, and which privileges its own processes keep.

use super::container;
use crate::support::running::{as_pid_1, children, descriptors, has_descriptors, status};
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

#[test]
fn the_watcher_has_no_capability_and_the_command_nothing_of_it() {
    let root = container::root();
    let words = ["--", "/opt/sh", "-c", "echo ready; exec busybox sleep 1000"];
    let mut running = as_pid_1(container::command(root.path(), true, "chroot", &words));
    running.wait_for("ready");
    let command = running.command();
    let watcher = poll_until("the watcher has given up its capabilities", || {
        let named = |pid: &i32| status(*pid).starts_with("Name:\trdma-init-watch\n");
        let watcher = children(running.pid).into_iter().find(named)?;
        let status = status(watcher);
        let has_none = |set| status_field(&status, set).is_some_and(|held| held == "0000000000000000");
        ["CapInh", "CapPrm", "CapEff", "CapAmb"].into_iter().all(has_none).then_some(watcher)
    });
    assert_ne!(status_field(&status(command), "CapEff"), Some("0000000000000000"));
    has_descriptors(command, &[0, 1, 2]).unwrap();
    let is_ours = |(number, what): &(i32, String)| *number < 3 || what.starts_with("/memfd:rdma-init");
    assert!(descriptors(watcher).iter().all(is_ours), "{:?}", descriptors(watcher));
}
