//! What the child that prepares leaves for its init, in memory that both share. The init only
//! keeps it for processes that it forks later, and does not look at what the bytes mean.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::MFdFlags;

use crate::sys::memfd;

pub(super) struct HandoffMemory(File);

/// The place of one of the two texts in a note. All figures are bytes.
struct TextPlace {
    /// Where the length of the text plus 1 is written; 0 means that there is no text.
    length_at: u64,
    /// Where the text begins.
    start: u64,
    /// How long the text may be.
    longest: usize,
}

/// The decided environment as JSON. The kernel accepts no environment of this length. Every start
/// leaves a decision, which is usually short, so it shares the first page with the lengths.
const DECISION: TextPlace = TextPlace { length_at: 8, start: 16, longest: 16 * 1024 * 1024 };

/// The first look at the ports, in less than 1 KiB for each port.
const TRAFFIC: TextPlace = TextPlace { length_at: 0, start: 16 + 16 * 1024 * 1024, longest: 64 * 1024 };

impl HandoffMemory {
    /// `None` before Linux 3.17, which has no memfd_create(2). Then no process reports the traffic when
    /// the command has ended, and PID 1 does not know what a preparation that failed had decided.
    pub(super) fn new() -> Option<HandoffMemory> {
        memfd::create(c"rdma-init", MFdFlags::empty()).ok().map(|memory| HandoffMemory(memory.into()))
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Saves the counters that the traffic report needs when the command has ended. Empty
    /// bytes leave nothing.
    pub(super) fn leave_traffic(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put(&TRAFFIC, bytes);
        }
    }

    /// Leaves the decision, with which PID 1 can start the command itself.
    pub(super) fn leave_decision(&self, bytes: &[u8]) {
        self.put(&DECISION, bytes);
    }

    /// Returns the counters, if they were left.
    pub(super) fn traffic(&self) -> Option<Vec<u8>> {
        self.get(&TRAFFIC)
    }

    /// Returns the decision, if it was left.
    pub(super) fn decision(&self) -> Option<Vec<u8>> {
        self.get(&DECISION)
    }

    /// Writes the length last, so that no process reads half a text.
    fn put(&self, part: &TextPlace, bytes: &[u8]) {
        if bytes.len() <= part.longest && self.0.write_all_at(bytes, part.start).is_ok() {
            let length = bytes.len() as u64 + 1;
            let _ = self.0.write_all_at(&length.to_le_bytes(), part.length_at);
        }
    }

    fn get(&self, part: &TextPlace) -> Option<Vec<u8>> {
        // Both processes share one file position, so this reads at explicit offsets.
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
        let note = HandoffMemory::new().unwrap();
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
            // The decision stays: until the exec, PID 1 may still have to use it.
            assert_eq!(
                (note.traffic(), note.decision().as_deref()),
                (Some(traffic), Some(&b"longer than that"[..]))
            );
        }
        // A file that was cut has no whole text.
        note.0.set_len(DECISION.start).unwrap();
        assert_eq!(note.decision(), None);
    }
}
