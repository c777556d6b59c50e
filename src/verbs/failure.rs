//! Why a libibverbs call or an exchange of data failed. Each cause is a type, and only this file words
//! it.

use std::ptr::NonNull;

use nix::errno::Errno;
use rdma_sys::ibv_wc_status;
use serde::{Deserialize, Serialize};

use super::device::PortState;
use crate::facts::reader::describe;

/// Processes of one container and nodes of one job exchange this, so it is plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Failure {
    #[error("{}", describe(Errno::from_raw(*.0)))]
    Errno(i32),
    /// open(2) of the device's node failed.
    #[error("{path}: {}", describe(Errno::from_raw(*.errno)))]
    Node { path: String, errno: i32 },
    #[error("libibverbs has no provider for {0}, or the device is not there")]
    NoDevice(String),
    #[error("the port is {0}")]
    Port(PortState),
    #[error("entry {0} of the GID table is empty")]
    EmptySlot(u8),
    /// A request completed with an error. The text is libibverbs' own, such as `transport retry counter
    /// exceeded`.
    #[error("{text}")]
    Completion { status: u32, text: String },
    #[error("no completion came in time")]
    NoCompletion,
    #[error("the device was removed")]
    Removed,
    #[error("the data that arrived is not what was sent")]
    OtherData,
    /// A long message failed after a short one arrived.
    #[error("{0}, although 8 bytes arrived: packets of the path's MTU may be lost")]
    LongMessage(Box<Failure>),
}

impl Failure {
    /// Returns the errno of the call or of open(2).
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Failure::Errno(errno) | Failure::Node { errno, .. } => Some(Errno::from_raw(*errno)),
            _ => None,
        }
    }

    /// Returns whether packets, or the answers to them, did not arrive.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            Failure::Completion { status, .. } => {
                [ibv_wc_status::IBV_WC_RETRY_EXC_ERR, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR]
                    .contains(status)
            }
            Failure::NoCompletion => true,
            Failure::LongMessage(failure) => failure.is_loss(),
            _ => false,
        }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno as i32)
    }
}

/// Returns the result of a call that returns null and sets errno when it fails.
pub(super) fn made<T>(pointer: *mut T) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer).ok_or_else(|| Errno::last().into())
}

/// Returns the result of a call that returns the errno. Some providers return -1 and set errno
/// instead.
pub(super) fn done(result: i32) -> Result<(), Failure> {
    match result {
        0 => Ok(()),
        -1 => Err(Errno::last().into()),
        errno => Err(Failure::Errno(errno)),
    }
}
