//! What the job has moved, told by a child of PID 1: the telling reads counters, which PID 1
//! itself does not do, and which may hang.

use std::time::Duration;

use super::note::HandoffMemory;
use super::supervisor::Supervisor;
use crate::sys::fork;

/// The longest time by which telling the traffic may delay the end of the container.
const PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Says what went over RDMA since the command was started, if the preparation has left a
    /// note for that. Signals that arrive during this time are not forwarded: the command is
    /// gone.
    pub(super) fn account(&self, ran: Duration) {
        let Some(note) = self.preparation.note.as_deref().and_then(HandoffMemory::traffic) else { return };
        let _ = fork::within(PATIENCE, || {
            (self.tasks.tell_traffic)(&note, ran);
            0
        });
    }
}
