//! How a probe speaks with the process that started it.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

pub trait Talk {
    /// Tells which step comes next, so that the parent knows where a probe ended.
    fn step(&mut self, name: &str);

    /// Gives our end of a rail to the other node, and returns that node's end; `None` if it has
    /// none.
    fn exchange(&mut self, own: End) -> Option<End>;

    /// Waits until both ends can receive; `false` if the other end never will.
    fn meet(&mut self) -> bool;
}

/// One end of a future connection, as the other end has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of the queue pair.
    pub number: u32,
    /// 0 on RoCE.
    pub lid: u16,
    /// Always set on RoCE.
    pub gid: Option<Ipv6Addr>,
    /// The MTU in bytes that the port works with.
    pub mtu: u32,
    /// Where the other end may write, and with which key.
    pub address: u64,
    pub key: u32,
    /// In bytes.
    pub size: u64,
}
