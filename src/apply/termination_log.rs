//! The file in which Kubernetes looks for the reason of a container's end.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

/// Kubernetes shows this much of it.
const LONGEST: usize = 4096;

/// Writes the reason, if the file is there: the kubelet mounts it. The name can
/// be changed by `RDMA_INIT_TERMINATION_LOG`, and then the file is made.
///
/// # Errors
/// What open(2) or write(2) said; absence of the default file is no error.
pub fn write(reason: &str, configured: Option<&Path>) -> std::io::Result<()> {
    let path = configured.unwrap_or(Path::new("/dev/termination-log"));
    let file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .create(configured.is_some())
        // A FIFO without a reader must not hang the refusal.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .mode(0o644)
        .open(path);
    let mut file = match file {
        Err(error) if configured.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let end = (0..=LONGEST.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    file.write_all(&reason.as_bytes()[..end.unwrap_or(0)])
}
