//! The file in which Kubernetes looks for the reason of a container's end.

use std::path::Path;

use crate::sys::last_words::{FileKind, LastWords};

/// In bytes: Kubernetes shows this much of the file.
const LONGEST: usize = 4096;

/// The file that the kubelet mounts.
pub(crate) const DEFAULT: &str = "/dev/termination-log";

/// Returns the reason for the kubelet's file, which is not needed if it is not there; or for another
/// file (`RDMA_INIT_TERMINATION_LOG`). That file is created if it is not there, and a content that
/// is not a reason of ours is never overwritten.
pub(crate) fn last_words(reason: &str, configured: Option<&Path>) -> LastWords {
    words(reason, configured, FileKind::OfKubelet)
}

/// As [`last_words`], but the kubelet's file gets the text only if it is empty: the command itself may have written to
/// it.
pub(crate) fn account(text: &str, configured: Option<&Path>) -> LastWords {
    words(text, configured, FileKind::OfKubeletIfEmpty)
}

fn words(reason: &str, configured: Option<&Path>, of_kubelet: FileKind) -> LastWords {
    let end = (0..=LONGEST.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    let path = configured.unwrap_or(Path::new(DEFAULT));
    let file = if configured.is_some() { FileKind::OfUser } else { of_kubelet };
    LastWords::new(path, file, &reason[..end.unwrap_or(0)])
}
