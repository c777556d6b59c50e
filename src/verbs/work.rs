//! Handing requests to a queue pair.

use std::mem::zeroed;
use std::ptr::null_mut;

use rdma_sys::{
    ibv_post_recv, ibv_post_send, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t,
};

use super::failure::{Failure, done};
use super::memory::Region;
use super::queue_pair::QueuePair;

/// A part of a region.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub region: &'a Region<'a>,
    pub offset: usize,
    pub length: u32,
}

impl Part<'_> {
    fn element(&self) -> ibv_sge {
        let (local, _) = self.region.keys();
        ibv_sge { addr: self.region.address(self.offset), length: self.length, lkey: local }
    }
}

/// What is sent, each with one completion at this end.
#[derive(Clone, Copy)]
pub enum Request<'a> {
    /// Into what the other end has asked to receive into.
    Send,
    /// To this place of the other end, which gets a completion if it is to be `told`:
    /// that is when it may look at the data.
    Write { to: Part<'a>, told: bool },
}

/// # Errors
/// ENOMEM when the queue is full, EINVAL in the wrong state (ibv_post_recv(3)).
pub fn receive(pair: &QueuePair, into: Part) -> Result<(), Failure> {
    let mut element = into.element();
    let mut bad = null_mut();
    let mut request = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: &mut element, num_sge: 1 };
    // SAFETY: the request and its element are complete, and read during the call only.
    // Where they point to is up to the device: a place outside of the region is an error.
    done(unsafe { ibv_post_recv(pair.raw(), &mut request, &mut bad) })
}

/// # Errors
/// As for [`receive`] (ibv_post_send(3)).
pub fn send(pair: &QueuePair, from: Part, what: Request) -> Result<(), Failure> {
    let mut element = from.element();
    let mut bad = null_mut();
    // SAFETY: plain data, all zeros are valid; the rest as for `receive`.
    done(unsafe {
        let mut request: ibv_send_wr = zeroed();
        request.sg_list = &mut element;
        request.num_sge = 1;
        request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.opcode = match what {
            Request::Send => ibv_wr_opcode::IBV_WR_SEND,
            Request::Write { told: true, .. } => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            Request::Write { told: false, .. } => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        };
        if let Request::Write { to, .. } = what {
            let (_, remote) = to.region.keys();
            request.wr.rdma = rdma_t { remote_addr: to.region.address(to.offset), rkey: remote };
        }
        ibv_post_send(pair.raw(), &mut request, &mut bad)
    })
}
