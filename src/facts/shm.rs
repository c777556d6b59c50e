//! Shared memory, which NCCL uses to move data between the GPUs of a node.

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use super::reader::Reader;

/// The file system at `/dev/shm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shm {
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub available: u64,
    /// Whether this user may create files there; `None` if that was not examined.
    #[serde(default)]
    pub writable: Option<bool>,
}

pub(crate) fn read(reader: &Reader) -> Option<Shm> {
    let path = reader.path("/dev/shm");
    let stat = statvfs(&path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    let writable = access(&path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
    Some(Shm {
        size: bytes(stat.blocks()),
        available: bytes(stat.blocks_available()),
        writable: Some(writable),
    })
}
