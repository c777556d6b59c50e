//! Shared memory, which NCCL moves data between the GPUs of a node through.

use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};

use super::reader::Reader;

/// `/dev/shm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shm {
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub available: u64,
}

pub fn read(reader: &Reader) -> Option<Shm> {
    let stat = statvfs(&reader.path("/dev/shm")).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    Some(Shm { size: bytes(stat.blocks()), available: bytes(stat.blocks_available()) })
}
