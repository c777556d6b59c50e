//! Posts requests to a queue pair.

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
pub(crate) struct Part<'a> {
    pub region: &'a Region<'a>,
    pub offset: usize,
    pub length: u32,
}

/// A place where one end may write into the memory of the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteAddress {
    pub address: u64,
    /// The other end's key for this place.
    pub key: u32,
}

impl RemoteAddress {
    pub(crate) fn beyond(self, bytes: usize) -> RemoteAddress {
        RemoteAddress { address: self.address.wrapping_add(bytes as u64), ..self }
    }
}

impl Part<'_> {
    /// Returns where the other end may write into this part.
    pub(crate) fn place(&self) -> RemoteAddress {
        let (_, remote) = self.region.keys();
        RemoteAddress { address: self.region.address(self.offset), key: remote }
    }

    /// Makes data in which no two packets look alike. Data with another salt looks different as well.
    fn data(&self, salt: u8) -> Vec<u8> {
        // 251 is a prime, so no packet's length is a multiple of it, and each packet starts at a
        // different place in the pattern.
        (0..self.length).map(|n| (n % 251) as u8 ^ salt).collect()
    }

    /// Fills this part with the data of this salt.
    ///
    /// # Errors
    /// EFAULT if the part is outside the region.
    pub(crate) fn fill(&self, salt: u8) -> Result<(), Failure> {
        self.region.put(self.offset, &self.data(salt))
    }

    /// Fills this part with zeros.
    ///
    /// # Errors
    /// EFAULT if the part is outside the region.
    pub(crate) fn clear(&self) -> Result<(), Failure> {
        self.region.put(self.offset, &vec![0; self.length as usize])
    }

    /// Compares this part with the data of this salt.
    ///
    /// # Errors
    /// [`Failure::OtherData`] if the part holds other data.
    pub(crate) fn verify(&self, salt: u8) -> Result<(), Failure> {
        match self.region.get(self.offset, self.length as usize)? == self.data(salt) {
            true => Ok(()),
            false => Err(Failure::OtherData),
        }
    }

    fn element(&self) -> ibv_sge {
        let (local, _) = self.region.keys();
        ibv_sge { addr: self.region.address(self.offset), length: self.length, lkey: local }
    }
}

/// A request to send. This end gets one completion for it.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// Sends a message to the memory that the other end has posted for receiving one.
    Send,
    /// Writes to this place in the other end's memory. If `told` is true, the other end gets a
    /// completion, and may then read the data.
    Write { to: RemoteAddress, told: bool },
}

/// Posts a request to receive a message into this part.
///
/// # Errors
/// ENOMEM when the queue is full, EINVAL in the wrong state (ibv_post_recv(3)).
pub(crate) fn receive(pair: &QueuePair, into: Part) -> Result<(), Failure> {
    let mut element = into.element();
    let mut bad = null_mut();
    let mut request = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: &mut element, num_sge: 1 };
    // SAFETY: the request and its element are complete, and read only during the call. The
    // device checks where they point to: a place outside of the region is an error.
    done(unsafe { ibv_post_recv(pair.raw(), &mut request, &mut bad) })
}

/// Posts a request to send.
///
/// # Errors
/// The errors of [`receive`] (ibv_post_send(3)).
pub(crate) fn send(pair: &QueuePair, from: Part, what: Request) -> Result<(), Failure> {
    let mut element = from.element();
    let mut bad = null_mut();
    // SAFETY: the request is plain data, for which all zeros are valid; the rest is as for
    // `receive`.
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
            request.wr.rdma = rdma_t { remote_addr: to.address, rkey: to.key };
        }
        ibv_post_send(pair.raw(), &mut request, &mut bad)
    })
}
