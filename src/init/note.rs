//! What the child that prepares hands over to its init, in memory that both share. The init only keeps it
//! for processes that it forks later, and does not interpret the bytes.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use nix::sys::memfd::MFdFlags;

use super::survivors::parent;
use crate::state::pid1::{is_memory, runs_this_program};
use crate::sys::memfd;

/// The name of the memory, which /proc shows.
const NAME: &str = "rdma-init";

pub(crate) struct HandoffMemory(File);

/// The place of one of the texts in a note. All figures are bytes.
struct TextPlace {
    /// Where the length of the text plus 1 is stored; 0 means that there is no text.
    length_at: u64,
    /// Where the text starts.
    start: u64,
    /// The longest possible text.
    longest: usize,
}

/// The decided environment as JSON. The kernel accepts no environment of this length. Every start
/// leaves a decision, which is usually short, so it shares the first page with the lengths.
const DECISION: TextPlace = TextPlace { length_at: 8, start: 64, longest: 16 * 1024 * 1024 };

/// The first look at the ports, in less than 1 KiB for each port.
const PORTS: TextPlace = TextPlace { length_at: 0, start: END_OF_DECISION, longest: LONGEST_PORTS };

/// What the watcher has seen, in less than 2 KiB for each port: the text before, and the text now, of which one is
/// whole whenever the watcher is killed.
const SEEN: [TextPlace; 2] = [
    TextPlace { length_at: 16, start: END_OF_PORTS, longest: LONGEST_SEEN },
    TextPlace { length_at: 24, start: END_OF_PORTS + LONGEST_SEEN as u64, longest: LONGEST_SEEN },
];

/// Where it says which of them is the text now: its index. And when the watcher looked last, in milliseconds since the
/// start of the command, because most looks of a job that rests show nothing new.
const SEEN_NOW_AT: u64 = 32;
const LOOKED_AT: u64 = 40;

/// Where it says how long the preparation took: in microseconds, plus 1; 0 before its end.
const PREPARED_AT: u64 = 48;

/// Where it says whether the watcher wants to know how the command ended: 1, or 0.
const AWAITS_END_AT: u64 = 56;

const END_OF_DECISION: u64 = DECISION.start + DECISION.longest as u64;
const LONGEST_PORTS: usize = 256 * 1024;
const END_OF_PORTS: u64 = END_OF_DECISION + LONGEST_PORTS as u64;
const LONGEST_SEEN: usize = 2 * LONGEST_PORTS;

impl HandoffMemory {
    /// `None` before Linux 3.17, which has no memfd_create(2). Then no process gives an account when
    /// the command has ended, and PID 1 does not know what a preparation that failed had decided.
    pub(super) fn new() -> Option<HandoffMemory> {
        memfd::create(NAME, MFdFlags::empty()).ok().map(|memory| HandoffMemory(memory.into()))
    }

    /// Returns the supervisor of a command in this container, and its memory for reading, if this process may look
    /// into it.
    pub(crate) fn beside(command: i32) -> Option<(i32, HandoffMemory)> {
        let supervisor = parent(command)?;
        Some((supervisor, HandoffMemory::of_supervisor(supervisor)?))
    }

    fn of_supervisor(supervisor: i32) -> Option<HandoffMemory> {
        runs_this_program(supervisor).then_some(())?;
        let entries = fs::read_dir(format!("/proc/{supervisor}/fd")).ok()?;
        let path = entries.flatten().map(|entry| entry.path()).find(|path| is_memory(path, NAME))?;
        let memory = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).ok()?;
        Some(HandoffMemory(memory))
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Saves the first look at the ports, which the account needs when the command has ended. Empty
    /// bytes leave nothing.
    pub(super) fn leave_ports(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put(&PORTS, bytes);
        }
    }

    /// Saves the decision. PID 1 can start the command with it.
    pub(super) fn leave_decision(&self, bytes: &[u8]) {
        self.put(&DECISION, bytes);
    }

    /// Leaves how long the preparation took, just before the exec.
    pub(super) fn leave_prepared(&self, after: Duration) {
        let microseconds = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        let _ = self.0.write_all_at(&microseconds.saturating_add(1).to_le_bytes(), PREPARED_AT);
    }

    /// Returns how long the preparation took; `None` before its end.
    pub(crate) fn prepared(&self) -> Option<Duration> {
        self.number(PREPARED_AT)?.checked_sub(1).map(Duration::from_micros)
    }

    /// Leaves when the watcher looked, since the start of the command, and what it has seen, in place of what it left
    /// before, if that shows something new.
    pub(super) fn leave_seen(&self, at: Duration, bytes: Option<&[u8]>) {
        let milliseconds = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let _ = self.0.write_all_at(&milliseconds.to_le_bytes(), LOOKED_AT);
        let Some(bytes) = bytes else { return };
        let next = 1 - self.seen_now();
        if let Some(place) = SEEN.get(next)
            && self.put(place, bytes)
        {
            let _ = self.0.write_all_at(&(next as u64).to_le_bytes(), SEEN_NOW_AT);
        }
    }

    /// Leaves whether the watcher wants to know how the command ended.
    pub(super) fn leave_awaits_end(&self, awaits: bool) {
        let _ = self.0.write_all_at(&u64::from(awaits).to_le_bytes(), AWAITS_END_AT);
    }

    /// Returns whether the watcher wants to know how the command ended.
    pub(super) fn awaits_end(&self) -> bool {
        self.number(AWAITS_END_AT) == Some(1)
    }

    /// Returns the first look at the ports, if it was left.
    pub(crate) fn ports(&self) -> Option<Vec<u8>> {
        self.get(&PORTS)
    }

    /// Returns the decision, if it was saved.
    pub(super) fn decision(&self) -> Option<Vec<u8>> {
        self.get(&DECISION)
    }

    /// Returns what the watcher has seen, if it has left that, and when it looked last.
    pub(crate) fn seen(&self) -> Option<(Duration, Vec<u8>)> {
        let seen = SEEN.get(self.seen_now()).and_then(|place| self.get(place))?;
        Some((Duration::from_millis(self.number(LOOKED_AT)?), seen))
    }

    fn seen_now(&self) -> usize {
        usize::from(self.number(SEEN_NOW_AT) == Some(1))
    }

    /// Writes the length last, so that no process reads half a text. Returns whether all was written.
    fn put(&self, part: &TextPlace, bytes: &[u8]) -> bool {
        let length = bytes.len() as u64 + 1;
        bytes.len() <= part.longest
            && self.0.write_all_at(bytes, part.start).is_ok()
            && self.0.write_all_at(&length.to_le_bytes(), part.length_at).is_ok()
    }

    fn number(&self, at: u64) -> Option<u64> {
        // All processes share one file position, so this reads at explicit offsets.
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn get(&self, part: &TextPlace) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number(part.length_at)?).ok()?.checked_sub(1)?;
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
    fn saved_data_is_read_back_completely() {
        let note = HandoffMemory::new().unwrap();
        assert_eq!((note.ports(), note.decision()), (None, None));
        for decision in [&b""[..], b"short", b"longer than that"] {
            note.leave_decision(decision);
            assert_eq!((note.ports(), note.decision().as_deref()), (None, Some(decision)));
        }
        for none in [Vec::new(), vec![b'x'; PORTS.longest + 1]] {
            note.leave_ports(&none);
            assert_eq!(note.ports(), None);
        }
        for ports in [b"mlx5_1".to_vec(), vec![b'x'; PORTS.longest]] {
            note.leave_ports(&ports);
            // The decision stays: until the exec, PID 1 may still have to use it.
            assert_eq!(
                (note.ports(), note.decision().as_deref()),
                (Some(ports), Some(&b"longer than that"[..]))
            );
        }
        // A truncated file has no complete text.
        note.0.set_len(DECISION.start).unwrap();
        assert_eq!(note.decision(), None);
    }

    #[test]
    fn what_the_watcher_has_seen_is_its_last_text_as_a_whole() {
        let note = HandoffMemory::new().unwrap();
        assert_eq!((note.seen(), note.prepared()), (None, None));
        note.leave_prepared(Duration::from_millis(61_500));
        let seconds = Duration::from_secs;
        for (at, seen) in (1..).zip([&b"one"[..], b"", b"three, and longer"]) {
            note.leave_seen(seconds(at), Some(seen));
            assert_eq!(note.seen(), Some((seconds(at), seen.to_vec())));
        }
        let last = |at| Some((seconds(at), b"three, and longer".to_vec()));
        note.leave_seen(seconds(4), Some(&vec![b'x'; LONGEST_SEEN + 1]));
        assert_eq!(note.seen(), last(4));
        // A look that shows nothing new.
        note.leave_seen(seconds(5), None);
        assert_eq!(note.seen(), last(5));
        // The watcher is killed while it writes the next text.
        note.0.write_all_at(b"hal", SEEN[1 - note.seen_now()].start).unwrap();
        assert_eq!(note.seen(), last(5));
        assert_eq!((note.ports(), note.decision()), (None, None));
        assert_eq!(note.prepared(), Some(Duration::from_millis(61_500)));
        assert!(!note.awaits_end());
        for awaits in [true, false] {
            note.leave_awaits_end(awaits);
            assert_eq!((note.awaits_end(), note.seen()), (awaits, last(5)));
        }
    }

    #[test]
    fn another_process_reads_the_memory_of_this_program() {
        let own = std::process::id().cast_signed();
        let note = HandoffMemory::new().unwrap();
        note.leave_ports(b"mlx5_1");
        assert!(HandoffMemory::of_supervisor(own).is_some());
        assert!(HandoffMemory::of_supervisor(i32::MAX).is_none());
    }
}
