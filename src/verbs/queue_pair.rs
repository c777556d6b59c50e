//! Queue pairs of reliable connections, and how they are connected.

use std::marker::PhantomData;
use std::mem::zeroed;
use std::net::Ipv6Addr;
use std::ptr::NonNull;

use rdma_sys::{
    ibv_access_flags, ibv_create_qp, ibv_destroy_qp, ibv_gid, ibv_modify_qp, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
};

use super::completions::Completions;
use super::device::PathMtu;
use super::failure::{Failure, done, made};
use super::memory::Domain;
use super::port_test::Marks;

/// The maximum number of outstanding requests in one direction.
pub(crate) const DEPTH: u32 = 16;

/// The device sends a packet again after 4.096 us * 2^14 = 67 ms, at most 6 times. The InfiniBand
/// specification allows a device up to four times as long, which is 2 s in all. On soft-RoCE, the
/// maximum number of retries, 7, means forever (drivers/infiniband/sw/rxe/rxe_comp.c).
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 6;

/// The number of retries if the receiver is not ready; 7 would mean forever.
const RECEIVER_NOT_READY: u8 = 6;

/// The wait before such a retry: 0.64 ms (`min_rnr_timer`, ibv_modify_qp(3)).
const NOT_READY_DELAY: u8 = 12;

pub(crate) struct QueuePair<'a> {
    pair: NonNull<ibv_qp>,
    _made_of: PhantomData<&'a Completions<'a>>,
}

/// How packets get to the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerPath {
    /// The port of this end, counted from 1.
    pub port_number: u8,
    pub path_mtu: PathMtu,
    /// The LID of the other end.
    pub lid: u16,
    /// This end's GID index and the other end's GID; always set on RoCE.
    pub gid: Option<(u8, Ipv6Addr)>,
    pub marks: Marks,
}

impl<'a> QueuePair<'a> {
    /// Makes a queue pair that is not connected yet (ibv_create_qp(3)).
    ///
    /// # Errors
    /// ENOMEM, which may also mean that the provider cannot pin the queues' memory
    /// (RLIMIT_MEMLOCK).
    pub(crate) fn new(domain: &'a Domain, completions: &'a Completions) -> Result<QueuePair<'a>, Failure> {
        // SAFETY: the attributes are plain data, for which all zeros are valid. By the
        // lifetime, domain and completion queue outlive the pair.
        let pair = made(unsafe {
            let mut wanted: ibv_qp_init_attr = zeroed();
            wanted.send_cq = completions.raw();
            wanted.recv_cq = completions.raw();
            wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
            wanted.cap.max_send_wr = DEPTH;
            wanted.cap.max_recv_wr = DEPTH;
            wanted.cap.max_send_sge = 1;
            wanted.cap.max_recv_sge = 1;
            ibv_create_qp(domain.raw(), &mut wanted)
        })?;
        Ok(QueuePair { pair, _made_of: PhantomData })
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.pair.as_ptr()
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `ibv_create_qp` has filled the structure, which is alive.
        unsafe { self.pair.as_ref().qp_num }
    }

    /// Changes the pair from RESET to INIT, and sets the port and what the other end may do.
    ///
    /// # Errors
    /// As for ibv_modify_qp(3).
    pub(crate) fn initialize(&self, port: u8, marks: Marks) -> Result<(), Failure> {
        let mut wanted = nothing();
        wanted.qp_state = ibv_qp_state::IBV_QPS_INIT;
        wanted.port_num = port;
        wanted.pkey_index = marks.pkey_index;
        wanted.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        self.modify(
            wanted,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
                | ibv_qp_attr_mask::IBV_QP_PORT
                | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
        )
    }

    /// Changes the pair to RTR, and sets the other end and the path to it. In this step, a RoCE device
    /// looks up the Ethernet address that belongs to the GID.
    ///
    /// # Errors
    /// EINVAL or ENODATA for a GID that does not exist, ENETUNREACH without a route to it, ETIMEDOUT if
    /// no host answers for it.
    pub(crate) fn receive_from(&self, other: u32, route: &PeerPath) -> Result<(), Failure> {
        let mut wanted = nothing();
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTR;
        wanted.path_mtu = route.path_mtu.0;
        wanted.dest_qp_num = other;
        wanted.max_dest_rd_atomic = 1;
        wanted.min_rnr_timer = NOT_READY_DELAY;
        wanted.ah_attr.port_num = route.port_number;
        // RoCE ignores the LID.
        wanted.ah_attr.dlid = route.lid;
        wanted.ah_attr.sl = route.marks.service_level;
        if let Some((index, gid)) = route.gid {
            wanted.ah_attr.is_global = 1;
            wanted.ah_attr.grh.sgid_index = index;
            wanted.ah_attr.grh.dgid = ibv_gid { raw: gid.octets() };
            // NCCL uses this value, which allows as many routers as possible.
            wanted.ah_attr.grh.hop_limit = 255;
            wanted.ah_attr.grh.traffic_class = route.marks.traffic_class;
        }
        self.modify(
            wanted,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_AV
                | ibv_qp_attr_mask::IBV_QP_PATH_MTU
                | ibv_qp_attr_mask::IBV_QP_DEST_QPN
                | ibv_qp_attr_mask::IBV_QP_RQ_PSN
                | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
        )
    }

    /// Changes the pair to RTS, the state in which it may send.
    ///
    /// # Errors
    /// As for ibv_modify_qp(3).
    pub(crate) fn allow_sending(&self) -> Result<(), Failure> {
        let mut wanted = nothing();
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTS;
        wanted.timeout = TIMEOUT;
        wanted.retry_cnt = RETRIES;
        wanted.rnr_retry = RECEIVER_NOT_READY;
        wanted.max_rd_atomic = 1;
        self.modify(
            wanted,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_TIMEOUT
                | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
                | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
                | ibv_qp_attr_mask::IBV_QP_SQ_PSN
                | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    fn modify(&self, mut wanted: ibv_qp_attr, what: ibv_qp_attr_mask) -> Result<(), Failure> {
        // SAFETY: the pair is alive, and the attributes are complete for this mask.
        done(unsafe { ibv_modify_qp(self.raw(), &mut wanted, what.0.cast_signed()) })
    }
}

fn nothing() -> ibv_qp_attr {
    // SAFETY: the attributes are plain data, for which all zeros are valid.
    unsafe { zeroed() }
}

impl Drop for QueuePair<'_> {
    fn drop(&mut self) {
        // SAFETY: the pair is destroyed only here.
        unsafe { ibv_destroy_qp(self.raw()) };
    }
}
