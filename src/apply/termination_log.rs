//! The file in which Kubernetes looks for the reason why a container ended.

use std::path::Path;

use crate::sys::last_words::{FileKind, LastWords};

/// In bytes: how much of the file Kubernetes shows.
const LONGEST: usize = 4096;

/// The file that the kubelet mounts.
pub(crate) const DEFAULT: &str = "/dev/termination-log";

/// Returns the reason for the kubelet's file, which may be missing, or for another file
/// (`RDMA_INIT_TERMINATION_LOG`). The write creates the other file if it is missing, and never overwrites
/// content that is not one of rdma-init's reasons.
pub(crate) fn last_words(reason: &str, configured: Option<&Path>) -> LastWords {
    words(reason, configured, FileKind::Kubelets)
}

/// As [`last_words`], but the kubelet's file gets the text only if it is empty: the command itself may have written to
/// it.
pub(crate) fn account(text: &str, configured: Option<&Path>) -> LastWords {
    words(text, configured, FileKind::KubeletsIfEmpty)
}

fn words(reason: &str, configured: Option<&Path>, of_kubelet: FileKind) -> LastWords {
    let end = (0..=LONGEST.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    let path = configured.unwrap_or(Path::new(DEFAULT));
    let file = if configured.is_some() { FileKind::Users } else { of_kubelet };
    LastWords::new(path, file, &reason[..end.unwrap_or(0)])
}
