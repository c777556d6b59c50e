//! Receives from all connections at once: new ones, those that have not identified themselves, and nodes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::ledger::Ledger;
use super::{JobPhase, JoinedNode, Zero};
use crate::preflight::judge::evidence::{Evidence, Gone};
use crate::preflight::meet::message::{LONGEST, ToNode, ToZero};
use crate::preflight::meet::node::HUNG;
use crate::wire::connection::timeout;
use crate::wire::handshake::one_key;

/// The most messages from one node that are read before those of the others. Even in the largest job, a
/// node's reports fit into fewer messages.
const MOST_AT_ONCE: usize = 4096;

/// The most nodes that are read in one pass.
const NODES_AT_ONCE: usize = 256;

/// How often node 0 checks for silent nodes.
const LOOK: Duration = Duration::from_secs(1);

impl Zero<'_> {
    /// Waits for events, at most until this time, and handles them. Returns whether node 0's own
    /// process has ended.
    pub(super) fn hear(&mut self, until: Instant, own: BorrowedFd) -> anyhow::Result<bool> {
        let [has_ended, has_guests] = self.sleep(until.min(self.next_word).min(self.next_line), own);
        let (strangers, refused) = (&mut self.strangers, &mut self.heard.refused);
        let tell = &mut |stranger| {
            refused.add_stranger(&stranger);
            strangers.add(stranger);
        };
        if has_guests {
            match self.guests.accept(self.listener, self.terms.until, tell) {
                Ok(()) => {}
                // There are no descriptors left, but the oldest unidentified node has one that can be
                // freed.
                Err(_) if self.newcomers.drop_oldest(&mut self.budget) => {}
                Err(why) => return Err(why),
            }
        }
        let key = one_key(self.terms.token.as_bytes());
        while let Some(proven) = self.guests.hear(&key, tell) {
            self.newcomers.add(proven.channel, &mut self.budget);
        }
        for (channel, join) in self.newcomers.hear(&mut self.budget) {
            self.join(channel, join);
        }
        let mut events = [EpollEvent::empty(); NODES_AT_ONCE];
        // EINTR is harmless: the next call reports the events.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or_default();
        for event in events.iter().take(count) {
            if let Ok(node) = event.data().try_into() {
                self.receive_from_node(node);
            }
        }
        self.keep_to_budget();
        // If more nodes have sent something than were read, node 0 is late, and not the nodes.
        if count < NODES_AT_ONCE {
            self.drop_silent_nodes();
        }
        Ok(has_ended)
    }

    /// Waits until something happens. Returns whether node 0's own process has ended, and whether a
    /// node has connected to the port.
    fn sleep(&self, until: Instant, own: BorrowedFd) -> [bool; 2] {
        let until = self.guests.until().map_or(until, |guest| guest.min(until));
        // Once it knows the verdict, this node may exit while the others still receive it.
        let own = if self.phase == JobPhase::Telling { self.epoll.0.as_fd() } else { own };
        let others = [own, self.listener.fd(), self.epoll.0.as_fd()].into_iter();
        let all = others.chain(self.guests.fds()).chain(self.newcomers.fds());
        let mut fds: Vec<PollFd> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let left = until.saturating_duration_since(Instant::now());
        // EINTR is harmless: the caller looks again.
        let _ = poll(&mut fds, timeout(left));
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|happened| !happened.is_empty());
        [&fds[0], &fds[1]].map(is_ready)
    }

    /// Registers a node with the kernel, which reports when the node has sent something or accepts more
    /// data. The registration is edge-triggered. It also reports the current state at once, so data
    /// that was already read into the buffer is handled, too.
    pub(super) fn listen_to(&self, node: u32, member: &JoinedNode) -> nix::Result<()> {
        let news = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(member.channel.fd(), EpollEvent::new(news, node.into()))
    }

    fn receive_from_node(&mut self, node: u32) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let before = member.channel.connection().held();
        let heard = member.hear(node, &mut self.ledger, &mut self.heard.evidence, MOST_AT_ONCE);
        self.budget.change(before, member.channel.connection().held());
        if let Err(why) = heard {
            self.leaves(node, Gone::Left(why));
        }
    }

    /// Drops the longest incomplete message with its sender, until all incomplete messages fit into the
    /// budget.
    fn keep_to_budget(&mut self) {
        while self.budget.is_too_small() {
            let held = |member: &JoinedNode| member.channel.connection().held();
            let member = self.members.iter().map(|(node, member)| (held(member), *node)).max();
            match (member, self.newcomers.largest()) {
                (Some((of_member, node)), newcomer)
                    if of_member > 0 && newcomer.is_none_or(|(of, _)| of <= of_member) =>
                {
                    let why = format!("{of_member} bytes of a message arrived, but not its end");
                    self.leaves(node, Gone::Left(why));
                }
                (_, Some((_, place))) => self.newcomers.remove(place, &mut self.budget),
                (_, None) => return,
            }
        }
    }

    /// Removes a node that has disconnected. Its peers stop waiting for it.
    pub(super) fn leaves(&mut self, node: u32, how: Gone) {
        if let Some(member) = self.members.remove(&node) {
            self.budget.change(member.channel.connection().held(), 0);
            let _ = self.epoll.delete(member.channel.fd());
        }
        let partners = self.ledger.leave(node);
        if self.phase == JobPhase::Telling {
            return;
        }
        if self.phase == JobPhase::Meeting {
            // The node may rejoin, and is missing until then.
            self.heard.unfit.retain(|(known, _)| *known != node);
            if let Some(known) = self.heard.nodes.get_mut(node as usize).and_then(Option::take) {
                let (Gone::Left(why) | Gone::Silent(why) | Gone::NeverJoined(why)) = &how;
                (self.terms.say)(&format!(
                    "preflight: {} has disconnected, and may reconnect: {why}",
                    known.name
                ));
                self.away.insert(node, (known, how));
            }
            return;
        }
        let (Gone::Left(why) | Gone::Silent(why) | Gone::NeverJoined(why)) = &how;
        (self.terms.say)(&format!("preflight: {} has disconnected: {why}", self.heard.evidence.name(node)));
        self.heard.evidence.lose(node, how);
        for partner in partners {
            if let Some(member) = self.members.get_mut(&partner) {
                let _ = member.channel.queue(&ToNode::Gone { node });
            }
        }
    }

    fn drop_silent_nodes(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let hung = |member: &JoinedNode| now.saturating_duration_since(member.heard) > HUNG;
        let hung: Vec<u32> =
            self.members.iter().filter(|(_, member)| hung(member)).map(|(node, _)| *node).collect();
        for node in hung {
            self.leaves(node, Gone::Silent(format!("it has sent nothing for {} s", HUNG.as_secs())));
        }
    }
}

impl JoinedNode {
    /// Receives all that the node has sent so far, and sends it more of what it has not accepted yet.
    ///
    /// # Errors
    /// Why the node is no longer part of the job, as a clause.
    pub(super) fn hear(
        &mut self,
        node: u32,
        ledger: &mut Ledger,
        evidence: &mut Evidence,
        most: usize,
    ) -> Result<(), String> {
        self.channel.flush().map_err(|_| "it no longer accepts messages")?;
        for _ in 0..most {
            match self.channel.receive_if_there(LONGEST).map_err(|why| why.to_string())? {
                None => return Ok(()),
                Some(ToZero::Alive) => self.heard = Instant::now(),
                Some(ToZero::Proved(reports)) => {
                    self.heard = Instant::now();
                    // A node may report only for itself, and only about pairs that were assigned to it.
                    for report in reports {
                        if let Some(what) = report.impossible() {
                            return Err(format!("it reports something impossible: {what}"));
                        }
                        if report.node == node && ledger.settle(node, (report.round, report.partner)) {
                            evidence.add(report);
                        }
                    }
                }
                Some(ToZero::Join(_)) => return Err("it violates the protocol".to_owned()),
            }
        }
        Err("it does not stop sending messages".to_owned())
    }
}
