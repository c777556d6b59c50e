//! What the child that prepares leaves with its init: memory of both.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

pub struct Note(File);

/// What the command is to get, where the preparation has come so far, and not to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// The limit of pinned memory is to be raised.
    pub raises_memlock: bool,
    /// Names and values of the variables that are filled in.
    pub filled: Vec<(String, String)>,
}

impl Decided {
    pub fn filled(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filled.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Bytes; a line for each port is far less.
const LONGEST_TEXT: usize = 64 * 1024;

/// Bytes; the kernel takes less as an environment.
const LONGEST_DECISION: usize = 16 * 1024 * 1024;

const TEXT: u8 = 1;
const DECISION: u8 = 2;

impl Note {
    /// `None` before Linux 3.17: then nothing is told in the end, and a preparation that does
    /// not come to its end leaves nothing.
    pub fn new() -> Option<Note> {
        memfd_create(c"rdma-init", MFdFlags::MFD_CLOEXEC).ok().map(|memory| Note(memory.into()))
    }

    pub fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Leaves a text for the end of the command, in place of a decision. An empty one is none.
    pub fn leave(&self, text: &str) {
        let _ = self.0.set_len(0);
        if !text.is_empty() {
            self.put(TEXT, text.as_bytes());
        }
    }

    /// Leaves what was decided.
    pub fn decide(&self, decided: &Decided) {
        let mut bytes = vec![u8::from(decided.raises_memlock)];
        for (name, value) in decided.filled() {
            bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        self.put(DECISION, &bytes);
    }

    /// The text that was left, if one was.
    pub fn text(&self) -> Option<String> {
        String::from_utf8(self.get(TEXT, LONGEST_TEXT)?).ok()
    }

    /// What was decided, if it was, and no text was left since then.
    pub fn decided(&self) -> Option<Decided> {
        let bytes = self.get(DECISION, LONGEST_DECISION)?;
        let (raises_memlock, entries) = bytes.split_first()?;
        let entries = std::str::from_utf8(entries).ok()?.split_terminator('\0');
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Some(Decided {
            raises_memlock: *raises_memlock == 1,
            filled: entries.map(|entry| entry.split_once('=').map(owned)).collect::<Option<_>>()?,
        })
    }

    /// What it is comes last, so that what is there is there as a whole.
    fn put(&self, what: u8, bytes: &[u8]) {
        let written = self.0.write_all_at(bytes, 1).and_then(|()| self.0.write_all_at(&[what], 0));
        if written.is_err() {
            let _ = self.0.set_len(0);
        }
    }

    fn get(&self, what: u8, most: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(self.0.metadata().ok()?.len()).ok()?.checked_sub(1)?;
        // From the start, wherever the child has stopped: both have one place in it.
        let mut first = [0];
        self.0.read_exact_at(&mut first, 0).ok()?;
        if first != [what] || length > most {
            return None;
        }
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, 1).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_holds_until_a_text_is_left() {
        let note = Note::new().unwrap();
        assert_eq!((note.text(), note.decided()), (None, None));
        let pairs = [("NCCL_IB_HCA", "=mlx5_1"), ("EMPTY", ""), ("LINES", "a\nb")];
        let decided = Decided {
            raises_memlock: true,
            filled: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        for decided in [Decided::default(), decided] {
            note.decide(&decided);
            assert_eq!((note.text(), note.decided()), (None, Some(decided)));
        }
        note.leave("mlx5_1 1\n");
        assert_eq!((note.text().as_deref(), note.decided()), (Some("mlx5_1 1\n"), None));
        note.leave("");
        assert_eq!((note.text(), note.decided()), (None, None));
        note.leave(&"x".repeat(LONGEST_TEXT + 1));
        assert_eq!(note.text(), None);
    }
}
