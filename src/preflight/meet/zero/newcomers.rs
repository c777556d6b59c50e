//! Nodes that have authenticated, but have not said which nodes they are. A node says so at once, so
//! only a few of these are kept. If there are more, the oldest is dropped.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::budget::BufferBudget;
use crate::preflight::meet::message::{Join, LONGEST, ToZero};
use crate::preflight::meet::node::HUNG;
use crate::wire::Channel;

/// The most unidentified nodes.
const MOST: usize = 256;

pub(super) struct Newcomers {
    most: usize,
    /// Sorted, with the oldest first.
    list: Vec<(Channel, Instant)>,
}

impl Default for Newcomers {
    fn default() -> Newcomers {
        Newcomers { most: MOST, list: Vec::new() }
    }
}

impl Newcomers {
    pub(super) fn add(&mut self, channel: Channel, budget: &mut BufferBudget) {
        if self.list.len() >= self.most {
            // The oldest one has had the most time to identify itself.
            self.drop_oldest(budget);
        }
        budget.change(0, channel.connection().held());
        self.list.push((channel, Instant::now()));
    }

    /// Drops the oldest node. Returns whether there was one.
    pub(super) fn drop_oldest(&mut self, budget: &mut BufferBudget) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let (channel, _) = self.list.remove(0);
        budget.change(channel.connection().held(), 0);
        true
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().map(|(channel, _)| channel.fd())
    }

    /// Returns the largest number of bytes that is stored for one of them, and its position.
    pub(super) fn largest(&self) -> Option<(usize, usize)> {
        let held =
            self.list.iter().enumerate().map(|(place, (channel, _))| (channel.connection().held(), place));
        held.max()
    }

    pub(super) fn remove(&mut self, place: usize, budget: &mut BufferBudget) {
        if place < self.list.len() {
            let (channel, _) = self.list.remove(place);
            budget.change(channel.connection().held(), 0);
        }
    }

    /// Receives from all of them. Returns those that have identified themselves, which no longer count
    /// in the budget.
    pub(super) fn hear(&mut self, budget: &mut BufferBudget) -> Vec<(Channel, Join)> {
        let mut joining = Vec::new();
        let mut index = 0;
        while let Some((channel, since)) = self.list.get_mut(index) {
            let before = channel.connection().held();
            let said = channel.receive_if_there(LONGEST);
            budget.change(before, channel.connection().held());
            match said {
                Ok(None) if since.elapsed() < HUNG => index += 1,
                Ok(Some(ToZero::Join(join))) => {
                    let (channel, _) = self.list.remove(index);
                    budget.change(channel.connection().held(), 0);
                    joining.push((channel, *join));
                }
                Ok(_) | Err(_) => self.remove(index, budget),
            }
        }
        joining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::meet::zero::tests::channels;

    #[test]
    fn beyond_the_limit_the_oldest_unidentified_nodes_are_dropped() {
        let mut budget = BufferBudget::of(1);
        let mut newcomers = Newcomers { most: 3, ..Newcomers::default() };
        let mut others: Vec<Channel> = Vec::new();
        for _ in 0..5 {
            let [ours, its] = channels();
            newcomers.add(ours, &mut budget);
            others.push(its);
        }
        assert!(newcomers.hear(&mut budget).is_empty());
        assert_eq!(newcomers.fds().count(), 3);
        let is_closed = |channel: &mut Channel| channel.receive_if_there::<ToZero>(LONGEST).is_err();
        let closed: Vec<bool> = others.iter_mut().map(is_closed).collect();
        assert_eq!(closed, [true, true, false, false, false]);
        // A connection that sends anything but its identity is dropped as well.
        others[3].send(&ToZero::Alive).unwrap();
        newcomers.hear(&mut budget);
        assert_eq!(newcomers.fds().count(), 2);
        assert!(newcomers.drop_oldest(&mut budget) && newcomers.drop_oldest(&mut budget));
        assert!(!newcomers.drop_oldest(&mut budget));
    }
}
