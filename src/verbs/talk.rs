//! How a probe speaks with whoever started it.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

pub trait Talk {
    /// Tells what is done next, for whoever has to say where a process ended.
    fn step(&mut self, name: &str);

    /// Gives our end of a rail to the other node, for that of the other node; `None` when
    /// that has none.
    fn exchange(&mut self, own: End) -> Option<End>;

    /// Waits until both ends can receive; `false` when the other one never will.
    fn meet(&mut self) -> bool;
}

/// One end of a connection to be, as the other one has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Of the queue pair.
    pub number: u32,
    /// 0 on RoCE.
    pub lid: u16,
    /// Always on RoCE.
    pub gid: Option<Ipv6Addr>,
    /// Bytes: what the port works with.
    pub mtu: u32,
    /// Where the other end may write, and with which key.
    pub address: u64,
    pub key: u32,
    /// Bytes.
    pub size: u64,
}
