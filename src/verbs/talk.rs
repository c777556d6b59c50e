//! How a probe communicates with the process that started it.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::step::Step;

pub(crate) trait ProbeControl {
    /// Reports the step that comes next, so that the parent knows at which step a probe ended.
    fn step(&mut self, step: Step);

    /// Sends this end of a rail to the other node, and returns that node's end; `None` if that node has
    /// none.
    fn exchange(&mut self, own: End) -> Option<End>;

    /// Waits until both ends can receive; returns `false` if the other end never will.
    fn meet(&mut self) -> bool;
}

/// What the other end needs to know about this end to connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// The number of the queue pair.
    pub number: u32,
    /// The LID of the port; 0 on RoCE.
    pub lid: u16,
    /// The GID of the port; always set on RoCE.
    pub gid: Option<Ipv6Addr>,
    /// The MTU in bytes that the port uses.
    pub mtu: u32,
    /// The address at which the other end may write, and the key for it.
    pub address: u64,
    pub key: u32,
    /// The number of bytes that the other end may write there.
    pub size: u64,
}
