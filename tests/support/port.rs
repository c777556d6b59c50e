//! Ports for servers that start later.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the first of so many consecutive free ports. Until a server listens on them, no other test of this process
/// gets one of them, and no connection: the kernel gives those ports from 32768 on.
pub fn free_ports(count: u32) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const PORTS: u32 = 12_000;
    let is_free = |port: u32| TcpListener::bind(("0.0.0.0", port as u16)).is_ok();
    let next = || 20_000 + (std::process::id() * 97 + NEXT.fetch_add(count, Ordering::Relaxed)) % PORTS;
    let are_free = |first: &u32| (*first..first + count).all(is_free);
    std::iter::repeat_with(next).find(are_free).unwrap() as u16
}

pub fn free_port() -> u16 {
    free_ports(1)
}
