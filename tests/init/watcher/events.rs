//! Tests what the watcher does when the kernel reports an event.

use std::fs;
use std::process::Command;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::{looks, watcher};
use crate::support::one_hca::{Host, stop};
use crate::support::poll_until;

/// An address of an interface of the job changes, and the next look would be in an hour.
#[test]
fn an_event_of_an_interface_of_the_job_brings_a_look() {
    let host = Host::new();
    host.write("class/net/lo/ifindex", "1");
    let mut running = host.job(&["--watch-interval", "1h"]);
    let watcher = watcher(running.pid);
    poll_until("it waits for events", || {
        let links = fs::read_dir(format!("/proc/{watcher}/fd")).unwrap().flatten();
        let sockets = links.filter_map(|fd| fs::read_link(fd.path()).ok());
        let sockets = sockets.filter(|target| target.to_string_lossy().starts_with("socket:")).count();
        (sockets >= 2).then_some(())
    });
    host.port("state", "1: DOWN");
    let changed = Command::new("nsenter")
        .args([
            "--target",
            &running.pid.to_string(),
            "--net",
            "ip",
            "addr",
            "add",
            "10.9.0.7/32",
            "dev",
            "lo",
        ])
        .status();
    assert!(changed.unwrap().success());
    running.wait_for_error("mlx5_0 is no longer active.");
    stop(running);
}

/// As a driver that is loaded again: no look sees the device gone.
#[test]
fn a_device_that_comes_back_between_two_looks_is_told_and_breaks_the_fabric() {
    let host = Host::with_infiniband();
    let mut running = host.job(&["--watch-interval", "300ms"]);
    looks(watcher(running.pid), 2);
    let class = host.folder.path().join("sys/class/infiniband");
    let copied =
        Command::new("cp").arg("-r").arg(class.join("mlx5_0")).arg(host.folder.path().join("new")).status();
    assert!(copied.unwrap().success());
    // In one step, as far as a look can tell.
    let (old, new) = (class.join("mlx5_0"), host.folder.path().join("new"));
    renameat2(AT_FDCWD, &old, AT_FDCWD, &new, RenameFlags::RENAME_EXCHANGE).unwrap();
    running.wait_for_error("mlx5_0 was gone since the last look, and is back. ");
    let said = stop(running);
    assert!(said.contains(": its device was gone 1 time.\n"), "{said}");
}
