//! What the child that prepares leaves with its init: memory of both. The init only keeps it,
//! for processes that it forks later; what the bytes mean is not its business.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

pub struct Note(File);

/// One of the two things in a note: where its length is, where it begins, and how long it may
/// be, in bytes. A length of 0 is nothing; an empty one has 1.
struct Part {
    length_at: u64,
    start: u64,
    longest: usize,
}

/// Some 200 bytes for each port are far less.
const TRAFFIC: Part = Part { length_at: 0, start: 16, longest: 64 * 1024 };

/// The kernel takes less as an environment, and as JSON a text is hardly longer.
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

    /// Leaves what the end of the command needs to tell what has moved. Nothing is no note.
    pub fn leave_traffic(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put(&TRAFFIC, bytes);
        }
    }

    /// Leaves what was decided.
    pub fn leave_decision(&self, bytes: &[u8]) {
        self.put(&DECISION, bytes);
    }

    /// What the end of the command needs, if it was left.
    pub fn traffic(&self) -> Option<Vec<u8>> {
        self.get(&TRAFFIC)
    }

    /// What was decided, if it was.
    pub fn decision(&self) -> Option<Vec<u8>> {
        self.get(&DECISION)
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
    fn what_is_left_is_there_as_a_whole() {
        let note = Note::new().unwrap();
        assert_eq!((note.traffic(), note.decision()), (None, None));
        for decision in [&b""[..], b"short", b"longer than that"] {
            note.leave_decision(decision);
            assert_eq!((note.traffic(), note.decision().as_deref()), (None, Some(decision)));
        }
        for none in [Vec::new(), vec![b'x'; TRAFFIC.longest + 1]] {
            note.leave_traffic(&none);
            assert_eq!(note.traffic(), None);
        }
        for traffic in [b"mlx5_1".to_vec(), vec![b'x'; TRAFFIC.longest]] {
            note.leave_traffic(&traffic);
            // Until the exec the command may still have to be started with that.
            assert_eq!(
                (note.traffic(), note.decision().as_deref()),
                (Some(traffic), Some(&b"longer than that"[..]))
            );
        }
        // What is not there as a whole.
        note.0.set_len(DECISION.start).unwrap();
        assert_eq!(note.decision(), None);
    }
}
