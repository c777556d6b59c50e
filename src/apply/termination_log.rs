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
    let path = configured.unwrap_or(Path::new(DEFAULT));
    let file = if configured.is_some() { FileKind::Users } else { of_kubelet };
    LastWords::new(path, file, cut(reason))
}

/// Returns what of a text Kubernetes shows, up to the end of a sentence if it has one.
fn cut(text: &str) -> &str {
    let Some(end) =
        (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).filter(|end| *end < text.len())
    else {
        return text;
    };
    let shown = &text[..end];
    shown.rfind(". ").map_or(shown, |end| &shown[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_with_a_sentence() {
        let sentences = "A rail is slow. ".repeat(400);
        assert!(cut(&sentences).ends_with("A rail is slow.") && cut(&sentences).len() > LONGEST - 16);
        let word = "é".repeat(LONGEST);
        assert_eq!(cut(&word).len(), LONGEST);
        assert_eq!(cut("One. Two.\n"), "One. Two.\n");
    }
}
