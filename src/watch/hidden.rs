//! Notices ports whose state cannot be read for several looks. One look that fails proves nothing. Pure.

use std::time::Duration;

use nix::errno::Errno;

use super::WatchedPort;
use super::link::named;
use crate::facts::port_look::PortLook;
use crate::finding::{Finding, Id};
use crate::text::{coarse, grouped};

/// After so many looks in a row, a state that cannot be read is a fault.
pub(super) const LOOKS: u32 = 3;

/// For each port, how many looks in a row could not read its state, and when the first of them was.
pub(super) struct Hidden(Vec<(u32, Duration)>);

impl Hidden {
    pub(super) fn new(ports: usize) -> Hidden {
        Hidden(vec![(0, Duration::ZERO); ports])
    }

    /// Returns what to report about the ports.
    pub(super) fn judge(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) -> Vec<Finding> {
        let (mut hidden, mut back) = (Vec::new(), Vec::new());
        for ((port, look), (count, since)) in ports.iter().zip(looks).zip(&mut self.0) {
            let before = *count;
            *count = next(before, port, look);
            if before == 0 {
                *since = at;
            }
            match look.errors.hidden_by() {
                Some(errno) if before < LOOKS && *count == LOOKS => hidden.push((why(errno), port.id())),
                None if before >= LOOKS && !look.errors.is_gone() => {
                    back.push((coarse(at.saturating_sub(*since)), port.id()));
                }
                _ => {}
            }
        }
        let hidden = grouped(hidden).into_iter().map(|(why, ids)| {
            let message = format!("The state of {} cannot be read ({why}).", named(ports, &ids));
            Finding::warning(Id::LinkDown, message).about_ports(ids).with_fix(FIX)
        });
        let back = grouped(back).into_iter().map(|(time, ids)| {
            let message = format!("The state of {} can be read again, after {time}.", named(ports, &ids));
            Finding::info(Id::LinkDown, message).about_ports(ids)
        });
        hidden.chain(back).collect()
    }
}

/// Returns how many looks in a row could not read the state of a port that was active at the start; it does not count
/// beyond [`LOOKS`].
pub(super) fn next(before: u32, port: &WatchedPort, look: &PortLook) -> u32 {
    match look.errors.is_hidden() && port.first.errors.is_active() {
        true => before.saturating_add(1).min(LOOKS),
        false => 0,
    }
}

fn why(errno: Errno) -> String {
    match errno {
        Errno::EBADMSG => "it is not one that the kernel writes".to_owned(),
        errno => format!("{errno:?}"),
    }
}

const FIX: &str =
    "Look in the kernel's log on the host for this device: its firmware or its driver may have failed.";
