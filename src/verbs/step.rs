//! The steps of a probe.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A step: a call, or an exchange of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    ListDevices,
    OpenNode,
    OpenDevice,
    QueryDevice,
    QueryPort,
    AllocDomain,
    Map,
    Register,
    CreateQueue,
    CreatePair,
    QueryGid,
    ToInit,
    ToReceive,
    ToSend,
    PostReceive,
    SmallWrite,
    Send,
    Write,
    SendAndReceive,
    Latency,
    Bandwidth,
    /// This end waits for data from the other one. The step fails if the other end has failed.
    Wait,
    Verify,
    Release,
    /// The process has reported its result, and the kernel is closing the device.
    Close,
}

impl Step {
    /// Returns whether the call pins memory, so that RLIMIT_MEMLOCK is the cause of its ENOMEM.
    pub(crate) fn pins(self) -> bool {
        matches!(self, Step::Register | Step::CreateQueue | Step::CreatePair)
    }

    fn name(self) -> &'static str {
        match self {
            Step::ListDevices => "ibv_get_device_list",
            Step::OpenNode => "open",
            Step::OpenDevice => "ibv_open_device",
            Step::QueryDevice => "ibv_query_device",
            Step::QueryPort => "ibv_query_port",
            Step::AllocDomain => "ibv_alloc_pd",
            Step::Map => "mmap",
            Step::Register => "ibv_reg_mr",
            Step::CreateQueue => "ibv_create_cq",
            Step::CreatePair => "ibv_create_qp",
            Step::QueryGid => "ibv_query_gid",
            Step::ToInit => "ibv_modify_qp INIT",
            Step::ToReceive => "ibv_modify_qp RTR",
            Step::ToSend => "ibv_modify_qp RTS",
            Step::PostReceive => "ibv_post_recv",
            Step::SmallWrite => "small RDMA write",
            Step::Send => "send",
            Step::Write => "RDMA write",
            Step::SendAndReceive => "send and receive",
            Step::Latency => "latency",
            Step::Bandwidth => "bandwidth",
            Step::Wait => "wait for the other end",
            Step::Verify => "verify",
            Step::Release => "release",
            Step::Close => "close",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
