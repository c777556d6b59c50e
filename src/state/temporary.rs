//! The names of files that are being written, and of entries that are moved out of their way.

use std::time::{SystemTime, UNIX_EPOCH};

use super::FILES;

/// In nanoseconds: one minute. A start writes each file in one go, even if its preparation takes longer.
const LONGEST_WRITE: u64 = 60_000_000_000;

/// Returns a temporary name for a new file, or for an entry that is moved out of its way. The process ID
/// alone is not sufficient: in another container that shares the directory, a process may have the same one.
pub(super) fn beside(name: &str) -> String {
    format!(".{name}.{}.{}", std::process::id(), nanoseconds())
}

/// Returns the time since 1970 in nanoseconds.
pub(super) fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Returns whether this is a temporary name for one of these files that is too old for a start to be still
/// writing the file.
pub(super) fn is_left(name: &[u8], files: &[&str], now: u64) -> bool {
    let made = |file: &&str| {
        let name = std::str::from_utf8(name).ok()?.strip_prefix('.')?.strip_prefix(file)?;
        let (process, made) = name.strip_prefix('.')?.split_once('.')?;
        process.parse::<u32>().ok()?;
        made.parse::<u64>().ok()
    };
    files.iter().filter_map(made).any(|made| now.saturating_sub(made) > LONGEST_WRITE)
}

/// Returns whether this is the name of one of rdma-init's files, or a temporary name for it.
pub(super) fn is_ours(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b".");
    FILES
        .iter()
        .any(|file| name == file.as_bytes() || rest.is_some_and(|rest| rest.starts_with(file.as_bytes())))
}
