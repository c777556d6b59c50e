//! Tests how much memory the watcher holds while it waits: what it needs for a look does not count as its memory then.

use std::fs;

use super::{looks, watcher};
use crate::support::one_hca::{Host, stop};
use crate::support::poll_until;

/// Returns a figure of /proc/PID/status, in kB.
fn kilobytes(watcher: i32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{watcher}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap().trim();
    line.trim_end_matches(" kB").parse().unwrap()
}

/// Expects that a watcher with a look each 100 ms holds less than a megabyte, and does not grow.
pub fn holds_little(watcher: i32) {
    looks(watcher, 20);
    poll_until("it waits and holds little", || (kilobytes(watcher, "VmRSS:") < 1024).then_some(()));
    let before = kilobytes(watcher, "RssAnon:");
    looks(watcher, 80);
    // A page here and there, as the allocator likes; more in the middle of a look.
    poll_until("it has not grown", || (kilobytes(watcher, "RssAnon:") <= before + 32).then_some(()));
    poll_until("it still holds little", || (kilobytes(watcher, "VmRSS:") < 1024).then_some(()));
}

#[test]
fn it_holds_less_than_a_megabyte() {
    let host = Host::with_infiniband();
    let running = host.job(&["--watch-metrics", "/dev/shm/rdma.prom"]);
    holds_little(watcher(running.pid));
    stop(running);
}
