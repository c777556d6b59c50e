//! What the job has moved, told by a process of its own: it reads counters, which PID 1
//! does not, and which may hang.

use std::time::Duration;

use super::note::Note;
use super::supervisor::Supervisor;
use crate::sys::fork;

/// The container ends later by as much.
const PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Says what went over RDMA since the command was started, where the preparation has
    /// left a note for that. Signals that come now have nobody to go to.
    pub(super) fn account(&self, ran: Duration) {
        let Some(note) = self.note.as_deref().and_then(Note::traffic) else { return };
        let _ = fork::within(PATIENCE, || {
            (self.tasks.tell_traffic)(&note, ran);
            0
        });
    }
}
