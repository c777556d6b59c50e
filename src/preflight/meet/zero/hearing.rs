//! Hears the nodes of the job, and those that want to join it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};

use super::{JobPhase, Zero};
use crate::preflight::judge::evidence::Gone;
use crate::preflight::meet::message::{ToNode, ToZero};
use crate::wire::connection::timeout;
use crate::wire::hub::HubEvent;
use crate::wire::stranger::{Fault, Stranger};

impl Zero<'_> {
    /// Waits for events, at most until this time, and handles them. Returns whether node 0's own
    /// process has ended.
    pub(super) fn hear(&mut self, until: Instant, own: BorrowedFd) -> anyhow::Result<bool> {
        let has_ended = self.sleep(until.min(self.next_word).min(self.next_line), own);
        let (strangers, refused) = (&mut self.strangers, &mut self.heard.refused);
        self.hub.poll(self.terms.until, &mut |address, stranger| {
            refused.add_stranger(address, &stranger);
            strangers.add(stranger);
        })?;
        while let Some(event) = self.hub.next_event() {
            match event {
                HubEvent::Joins(channel, ToZero::Join(join)) => self.join(channel, *join),
                HubEvent::Joins(..) => {}
                HubEvent::Said(node, message) => {
                    if let Err(why) = self.take(node, message) {
                        self.leaves(node, Gone::Left(why));
                    }
                }
                HubEvent::Left(node, _, Stranger { fault: Fault::Silent, why }) => {
                    self.leaves(node, Gone::Silent(why));
                }
                HubEvent::Left(node, _, Stranger { why, .. }) => self.leaves(node, Gone::Left(why)),
            }
        }
        Ok(has_ended)
    }

    /// Waits until something happens. Returns whether node 0's own process has ended.
    fn sleep(&self, until: Instant, own: BorrowedFd) -> bool {
        // Once it knows the verdict, this node may exit while the others still receive it.
        let own = Some(own).filter(|_| self.phase != JobPhase::Telling);
        let fds = self.hub.fds().chain(own.iter().map(AsFd::as_fd));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let until = self.hub.wake_at().map_or(until, |wake| wake.min(until));
        // EINTR is harmless: the caller looks again.
        let _ = poll(&mut fds, timeout(until.saturating_duration_since(Instant::now())));
        own.and(fds.last()).is_some_and(|fd| fd.revents().is_some_and(|happened| !happened.is_empty()))
    }

    /// Takes what a node has sent.
    ///
    /// # Errors
    /// Why the node is no longer part of the job, as a clause.
    pub(super) fn take(&mut self, node: u32, message: ToZero) -> Result<(), String> {
        match message {
            ToZero::Alive => {}
            ToZero::Proved(reports) => {
                // A node may report only for itself, and only about pairs that were assigned to it.
                for report in reports {
                    if let Some(what) = report.impossible() {
                        return Err(format!("it reports something impossible: {what}"));
                    }
                    if report.node == node && self.ledger.settle(node, (report.round, report.partner)) {
                        self.heard.evidence.add(report);
                    }
                }
            }
            ToZero::Join(_) => return Err("it violates the protocol".to_owned()),
        }
        Ok(())
    }

    /// Removes a node that has disconnected. Its peers stop waiting for it.
    pub(super) fn leaves(&mut self, node: u32, how: Gone) {
        self.hub.remove(node);
        let partners = self.ledger.leave(node);
        if self.phase == JobPhase::Telling {
            return;
        }
        let (Gone::Left(why) | Gone::Silent(why) | Gone::NeverJoined(why)) = &how;
        if self.phase == JobPhase::Meeting {
            // The node may rejoin, and is missing until then.
            self.heard.unfit.retain(|(known, _)| *known != node);
            if let Some(known) = self.heard.nodes.get_mut(node as usize).and_then(Option::take) {
                let name = &known.name;
                (self.terms.say)(&format!("preflight: {name} has disconnected, and may reconnect: {why}"));
                self.away.insert(node, (known, how));
            }
            return;
        }
        (self.terms.say)(&format!("preflight: {} has disconnected: {why}", self.heard.evidence.name(node)));
        self.heard.evidence.lose(node, how);
        for partner in partners {
            self.hub.send(partner, &ToNode::Gone { node });
        }
    }
}
