//! What the job has moved, told by a process of its own: it reads counters, which PID 1
//! does not, and which may hang.

use std::time::{Duration, Instant};

use nix::libc::SIGKILL;

use super::link::Note;
use super::supervisor::Supervisor;
use crate::run::tell_traffic;
use crate::sys::fork::{self, Reaped};
use crate::sys::signals;

/// The container ends later by as much.
const PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Says what went over RDMA since the command was started, where the preparation has
    /// left a note for that. Signals that come now have nobody to go to.
    pub(super) fn account(&self, ran: Duration) {
        let Some(text) = self.note.as_deref().and_then(Note::text) else { return };
        let Ok(teller) = fork::spawn(|| {
            tell_traffic(&text, ran);
            0
        }) else {
            return;
        };
        let until = Instant::now() + PATIENCE;
        while fork::reap_child(teller) == Reaped::Running {
            if !matches!(signals::wait(Some(until)), Ok(Some(_))) {
                let _ = signals::kill(teller, SIGKILL);
                return;
            }
        }
    }
}
