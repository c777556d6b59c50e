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

/// One of the two things in a note: where its length is, where it begins, and how long it may
/// be, in bytes. A length of 0 is nothing; an empty one has 1.
struct Part {
    length_at: u64,
    start: u64,
    longest: usize,
}

/// A line for each port is far less.
const TEXT: Part = Part { length_at: 0, start: 16, longest: 64 * 1024 };

/// The kernel takes less as an environment.
const DECISION: Part = Part { length_at: 8, start: 16 + 64 * 1024, longest: 16 * 1024 * 1024 };

impl Note {
    /// `None` before Linux 3.17: then nothing is told in the end, and a preparation that does
    /// not come to its end leaves nothing.
    pub fn new() -> Option<Note> {
        memfd_create(c"rdma-init", MFdFlags::MFD_CLOEXEC).ok().map(|memory| Note(memory.into()))
    }

    pub fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Leaves a text for the end of the command. An empty one is none.
    pub fn leave(&self, text: &str) {
        if !text.is_empty() {
            self.put(&TEXT, text.as_bytes());
        }
    }

    /// Leaves what was decided.
    pub fn decide(&self, decided: &Decided) {
        let mut bytes = vec![u8::from(decided.raises_memlock)];
        for (name, value) in decided.filled() {
            bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        self.put(&DECISION, &bytes);
    }

    /// The text that was left, if one was.
    pub fn text(&self) -> Option<String> {
        String::from_utf8(self.get(&TEXT)?).ok()
    }

    /// What was decided, if it was.
    pub fn decided(&self) -> Option<Decided> {
        let bytes = self.get(&DECISION)?;
        let (raises_memlock, entries) = bytes.split_first()?;
        let entries = std::str::from_utf8(entries).ok()?.split_terminator('\0');
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Some(Decided {
            raises_memlock: *raises_memlock == 1,
            filled: entries.map(|entry| entry.split_once('=').map(owned)).collect::<Option<_>>()?,
        })
    }

    /// The length comes last, so that what is there is there as a whole.
    fn put(&self, part: &Part, bytes: &[u8]) {
        if bytes.len() <= part.longest && self.0.write_all_at(bytes, part.start).is_ok() {
            let length = bytes.len() as u64 + 1;
            let _ = self.0.write_all_at(&length.to_le_bytes(), part.length_at);
        }
    }

    fn get(&self, part: &Part) -> Option<Vec<u8>> {
        // From the start, wherever the child has stopped: both have one place in it.
        let mut length = [0; 8];
        self.0.read_exact_at(&mut length, part.length_at).ok()?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok()?.checked_sub(1)?;
        if length > part.longest {
            return None;
        }
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, part.start).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_and_a_decision_are_there_once_they_are_left() {
        let note = Note::new().unwrap();
        assert_eq!((note.text(), note.decided()), (None, None));
        let pairs = [("NCCL_IB_HCA", "=mlx5_1"), ("EMPTY", ""), ("LINES", "a\nb")];
        let decided = Decided {
            raises_memlock: true,
            filled: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        for decided in [Decided::default(), decided.clone()] {
            note.decide(&decided);
            assert_eq!((note.text(), note.decided()), (None, Some(decided)));
        }
        for none in [String::new(), "x".repeat(TEXT.longest + 1)] {
            note.leave(&none);
            assert_eq!(note.text(), None);
        }
        for text in ["mlx5_1 1\n".to_owned(), "x".repeat(TEXT.longest)] {
            note.leave(&text);
            // Until the exec the command may still have to be started with that.
            assert_eq!((note.text(), note.decided()), (Some(text), Some(decided.clone())));
        }
        // What is not there as a whole.
        note.0.set_len(DECISION.start).unwrap();
        assert_eq!(note.decided(), None);
    }
}
