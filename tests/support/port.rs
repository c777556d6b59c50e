//! Ports for servers that start later.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the first of so many consecutive free ports. Until a server listens on them, no other test of this process
/// gets one of them, and no connection: the kernel gives those ports from 32768 on.
pub fn free_ports(count: u32) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const PORTS: u32 = 12_000;
    let used = used();
    let next = || 20_000 + (std::process::id() * 97 + NEXT.fetch_add(count, Ordering::Relaxed)) % PORTS;
    let are_free = |first: &u32| (*first..first + count).all(|port| !used.contains(&port));
    std::iter::repeat_with(next).find(are_free).unwrap() as u16
}

pub fn free_port() -> u16 {
    free_ports(1)
}

/// Returns the ports of all sockets of this network. It is not asked by binding one: a process that another test forks
/// meanwhile would have the socket, too, and keep the port until it starts its program.
fn used() -> Vec<u32> {
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")));
    let tables = tables.map(Result::unwrap_or_default);
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let port = |line: &str| u32::from_str_radix(line.split_whitespace().nth(1)?.rsplit(':').next()?, 16).ok();
    lines.filter_map(port).collect()
}
