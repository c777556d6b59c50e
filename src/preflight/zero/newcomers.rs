//! Nodes that have proven to be ours, and have not said which ones they are. They say it at once, so
//! few of them are kept, and the oldest goes where there are more.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::room::Room;
use crate::preflight::message::{Join, LONGEST, ToZero};
use crate::preflight::node::HUNG;
use crate::wire::Channel;

/// The most newcomers.
const MOST: usize = 256;

pub struct Newcomers {
    most: usize,
    /// The oldest first.
    list: Vec<(Channel, Instant)>,
}

impl Default for Newcomers {
    fn default() -> Newcomers {
        Newcomers { most: MOST, list: Vec::new() }
    }
}

impl Newcomers {
    pub fn add(&mut self, channel: Channel, room: &mut Room) {
        if self.list.len() >= self.most {
            // The oldest one had the most time to say who it is.
            self.drop_oldest(room);
        }
        room.change(0, channel.connection().held());
        self.list.push((channel, Instant::now()));
    }

    /// Sends the oldest one away. Gives whether there was one.
    pub fn drop_oldest(&mut self, room: &mut Room) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let (channel, _) = self.list.remove(0);
        room.change(channel.connection().held(), 0);
        true
    }

    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().map(|(channel, _)| channel.fd())
    }

    /// The most that is kept for one of them, in bytes, and its place.
    pub fn largest(&self) -> Option<(usize, usize)> {
        let held =
            self.list.iter().enumerate().map(|(place, (channel, _))| (channel.connection().held(), place));
        held.max()
    }

    pub fn remove(&mut self, place: usize, room: &mut Room) {
        if place < self.list.len() {
            let (channel, _) = self.list.remove(place);
            room.change(channel.connection().held(), 0);
        }
    }

    /// Hears all of them: those that have said who they are, of whom nothing is counted in the room any more.
    pub fn hear(&mut self, room: &mut Room) -> Vec<(Channel, Join)> {
        let mut joining = Vec::new();
        let mut index = 0;
        while let Some((channel, since)) = self.list.get_mut(index) {
            let before = channel.connection().held();
            let said = channel.receive_if_there(LONGEST);
            room.change(before, channel.connection().held());
            match said {
                Ok(None) if since.elapsed() < HUNG => index += 1,
                Ok(Some(ToZero::Join(join))) => {
                    let (channel, _) = self.list.remove(index);
                    room.change(channel.connection().held(), 0);
                    joining.push((channel, *join));
                }
                Ok(_) | Err(_) => self.remove(index, room),
            }
        }
        joining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::zero::tests::channels;

    #[test]
    fn of_too_many_newcomers_the_oldest_goes() {
        let mut room = Room::of(1);
        let mut newcomers = Newcomers { most: 3, ..Newcomers::default() };
        let mut others: Vec<Channel> = Vec::new();
        for _ in 0..5 {
            let [ours, its] = channels();
            newcomers.add(ours, &mut room);
            others.push(its);
        }
        assert!(newcomers.hear(&mut room).is_empty());
        assert_eq!(newcomers.fds().count(), 3);
        let is_closed = |channel: &mut Channel| channel.receive_if_there::<ToZero>(LONGEST).is_err();
        let closed: Vec<bool> = others.iter_mut().map(is_closed).collect();
        assert_eq!(closed, [true, true, false, false, false]);
        // Who says something else than who it is goes as well.
        others[3].send(&ToZero::Alive { round: 0 }).unwrap();
        newcomers.hear(&mut room);
        assert_eq!(newcomers.fds().count(), 2);
        assert!(newcomers.drop_oldest(&mut room) && newcomers.drop_oldest(&mut room));
        assert!(!newcomers.drop_oldest(&mut room));
    }
}
