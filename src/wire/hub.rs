//! One end of many connections: all nodes of a job connect to the process of node 0 that has the hub.
//!
//! A connection proves first that it has the token, then says which node it is, and is a member once the owner of the
//! hub admits it. The hub waits for none of them, and bounds what each and all of them together may cost: connections,
//! time, and bytes that are kept.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guests::PendingConnections;
use super::handshake::one_key;
use super::listen::Listener;
use super::stranger::{Fault, Stranger};
use super::{Address, Channel, Protocol};

/// How long each message may take, as the handshake announces it.
const MESSAGE: Duration = Duration::from_secs(5);

/// The most nodes that have not said which they are, and how long each may take to do so.
const NEWCOMERS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(25);

/// How long to wait if the port is not free, or no descriptor is left.
const LISTEN_PAUSE: Duration = Duration::from_secs(60);

/// The most connections that are read from before the others, and the most messages of each: a node of a job sends
/// fewer.
const AT_ONCE: usize = 64;
const MESSAGES_AT_ONCE: usize = 4096;

/// How often to look for silent members.
const LOOK: Duration = Duration::from_secs(1);

/// In bytes: what is kept of messages whose end has not arrived, for all nodes together and for each of them. A node
/// may send most of a long message and then stop, but what most of them send is shorter, and arrives as a whole.
const KEPT: usize = 4 * 1024 * 1024;
const KEPT_OF_EACH: usize = 8 * 1024;

/// Newcomers have the numbers from here on in epoll, and members those below.
const FIRST_NEWCOMER: u64 = 1 << 32;

/// What the owner of a hub knows of a member, and what members may cost.
pub(crate) trait Peer {
    const PROTOCOL: &'static Protocol;
    /// The most connections that have proven nothing.
    const GUESTS: usize;
    /// How long these wait after some were read, so that a flood of them takes little of the time of others. The kernel
    /// keeps those that come meanwhile.
    const PAUSE: Duration;
    /// In bytes: the longest message of a node.
    const LONGEST: usize;
    /// After how long a silence a member has left; `None` if nodes are silent until they are asked.
    const SILENCE: Option<Duration>;
    /// What nodes send, and what they get.
    type Message: DeserializeOwned;
    type Reply: Serialize;
}

pub(crate) enum HubEvent<P: Peer> {
    /// The first message of a process that has the token. Unless it says which node this is, and the owner admits that,
    /// it is closed.
    Joins(Channel, P::Message),
    Said(u32, P::Message),
    /// A member is none any more.
    Left(u32, P, Stranger),
}

pub(crate) struct Link<P> {
    channel: Channel,
    /// When it came, or has sent its last message.
    heard: Instant,
    pub peer: P,
}

pub(crate) struct Hub<P: Peer> {
    /// Or where to listen as soon as the port is free.
    listener: Result<Listener, Address>,
    token: Vec<u8>,
    guests: PendingConnections,
    /// When to serve connections again that have proven nothing.
    serve_at: Instant,
    /// Oldest first.
    newcomers: BTreeMap<u64, Link<()>>,
    next_newcomer: u64,
    members: BTreeMap<u32, Link<P>>,
    /// The newcomers and members that have sent something, or accept more.
    epoll: Epoll,
    /// How many bytes of messages are kept, and the most of them.
    held: usize,
    most_held: usize,
    /// The connections that are still to be read from in this pass, and how many messages the last of them has sent.
    ready: Vec<u64>,
    messages: usize,
    /// Whether more connections had something than one pass reads. Then this process is late, and not the nodes.
    is_late: bool,
    look_at: Instant,
}

impl<P: Peer> Hub<P> {
    /// Makes a hub for a job of this many nodes.
    ///
    /// # Errors
    /// The kernel gives no descriptor.
    pub(crate) fn new(listener: Result<Listener, Address>, token: &[u8], nodes: u32) -> nix::Result<Hub<P>> {
        let now = Instant::now();
        Ok(Hub {
            listener,
            token: token.to_vec(),
            guests: PendingConnections::new(P::PROTOCOL, MESSAGE, P::GUESTS),
            serve_at: now,
            newcomers: BTreeMap::new(),
            next_newcomer: FIRST_NEWCOMER,
            members: BTreeMap::new(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            held: 0,
            most_held: KEPT.saturating_add(KEPT_OF_EACH.saturating_mul(nodes as usize)),
            ready: Vec::new(),
            messages: 0,
            is_late: false,
            look_at: now,
        })
    }

    /// Returns what to wait for.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_due = Instant::now() >= self.serve_at;
        self.unproven().filter(move |_| is_due).chain([self.epoll.0.as_fd()])
    }

    fn unproven(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = self.listener.as_ref().ok();
        listener.into_iter().flat_map(|listener| [listener.fd()].into_iter().chain(self.guests.fds()))
    }

    /// Returns when to go on if nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let is_paused = self.serve_at > Instant::now();
        let unproven = if is_paused { Some(self.serve_at) } else { self.guests.until() };
        let newcomer = self.newcomers.values().next().map(|link| link.heard + PATIENCE);
        unproven.into_iter().chain(newcomer).min()
    }

    /// Begins a pass: accepts connections whose handshakes must finish by `end`, and finds out who has sent something.
    /// [`Hub::next_event`] returns what, until it returns `None`. `tell` receives the invalid peers and their addresses.
    ///
    /// # Errors
    /// No node can connect for now. Those that have connected are served all the same.
    pub(crate) fn poll(&mut self, end: Instant, tell: &mut dyn FnMut(&str, Stranger)) -> anyhow::Result<()> {
        let is_due = Instant::now() >= self.serve_at;
        let served = if is_due { self.serve_unproven(end, tell) } else { Ok(()) };
        if served.is_err() {
            self.serve_at = Instant::now() + LISTEN_PAUSE;
        }
        let mut events = [EpollEvent::empty(); AT_ONCE];
        // EINTR is harmless: the next call reports the events.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or_default();
        self.is_late = count == AT_ONCE;
        self.ready = events.iter().take(count).map(EpollEvent::data).collect();
        self.messages = 0;
        served
    }

    fn serve_unproven(&mut self, end: Instant, tell: &mut dyn FnMut(&str, Stranger)) -> anyhow::Result<()> {
        let listener = match &self.listener {
            Ok(listener) => listener,
            Err(place) => {
                self.listener = Ok(Listener::at(place, Instant::now())?);
                return Ok(());
            }
        };
        let mut fds: Vec<PollFd> = self.unproven().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let is_quiet = poll(&mut fds, PollTimeout::ZERO) == Ok(0);
        if is_quiet && self.guests.until().is_none_or(|until| Instant::now() < until) {
            return Ok(());
        }
        self.serve_at = Instant::now() + P::PAUSE;
        if let Err(why) = self.guests.accept(listener, end, tell) {
            // No descriptor is left, but the oldest newcomer has one.
            return if self.drop_oldest() { Ok(()) } else { Err(why) };
        }
        let proven = self.guests.hear(&one_key(&self.token), tell);
        proven.into_iter().for_each(|proven| self.welcome(proven.channel));
        Ok(())
    }

    fn welcome(&mut self, channel: Channel) {
        channel.keep_alive();
        if self.newcomers.len() >= NEWCOMERS {
            // It had the most time to say which node it is.
            self.drop_oldest();
        }
        self.next_newcomer += 1;
        // If the kernel cannot watch it, it is closed, and comes again.
        if let Ok(link) = self.register(self.next_newcomer, channel, ()) {
            self.newcomers.insert(self.next_newcomer, link);
        }
    }

    /// Has the kernel say once when something happens on a connection, and the first time at once: what was read
    /// already is then heard, too.
    fn register<T>(&mut self, id: u64, channel: Channel, peer: T) -> nix::Result<Link<T>> {
        let news = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(channel.fd(), EpollEvent::new(news, id))?;
        self.held = self.held.saturating_add(channel.connection().held());
        Ok(Link { channel, heard: Instant::now(), peer })
    }

    fn release<T>(&mut self, link: Link<T>) -> (Channel, T) {
        self.held = self.held.saturating_sub(link.held());
        let _ = self.epoll.delete(link.channel.fd());
        (link.channel, link.peer)
    }

    /// Drops the newcomer that has had the most time. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.newcomers.pop_first();
        oldest.map(|(_, link)| self.release(link)).is_some()
    }

    /// Returns the next event of this pass.
    pub(crate) fn next_event(&mut self) -> Option<HubEvent<P>> {
        while let Some(id) = self.ready.last().copied() {
            let event = match u32::try_from(id) {
                Ok(node) => self.hear(node),
                Err(_) => self.hear_newcomer(id),
            };
            if event.is_some() {
                return event;
            }
            self.ready.pop();
            self.messages = 0;
        }
        self.keep_to_budget().or_else(|| self.drop_silent())
    }

    fn hear(&mut self, node: u32) -> Option<HubEvent<P>> {
        let link = self.members.get_mut(&node)?;
        // What it has said counts, even if nothing reaches it any more.
        let sent = link.channel.flush();
        let said = link.receive(P::LONGEST, &mut self.held);
        let why = match (said, sent) {
            (Ok(Some(message)), _) if self.messages < MESSAGES_AT_ONCE => {
                self.messages += 1;
                link.heard = Instant::now();
                return Some(HubEvent::Said(node, message));
            }
            (Ok(Some(_)), _) => not_ours("it does not stop sending messages".to_owned()),
            (Ok(None), Ok(())) => return None,
            (_, Err(_)) => not_ours("it no longer accepts messages".to_owned()),
            (Err(why), Ok(())) => why,
        };
        self.leave(node, why)
    }

    fn hear_newcomer(&mut self, id: u64) -> Option<HubEvent<P>> {
        let link = self.newcomers.get_mut(&id)?;
        let said = link.receive(P::LONGEST, &mut self.held);
        if matches!(said, Ok(None)) {
            return None;
        }
        let link = self.newcomers.remove(&id)?;
        let (channel, ()) = self.release(link);
        Some(HubEvent::Joins(channel, said.ok().flatten()?))
    }

    /// Drops the longest incomplete message with its sender, until all incomplete messages fit into the budget.
    fn keep_to_budget(&mut self) -> Option<HubEvent<P>> {
        while self.held > self.most_held {
            let members = self.members.iter().map(|(node, link)| (link.held(), u64::from(*node)));
            let newcomers = self.newcomers.iter().map(|(id, link)| (link.held(), *id));
            let (length, id) = members.chain(newcomers).max()?;
            match u32::try_from(id) {
                Ok(node) => {
                    let why = format!("{length} bytes of a message arrived, but not its end");
                    return self.leave(node, not_ours(why));
                }
                Err(_) => drop(self.newcomers.remove(&id).map(|link| self.release(link))),
            }
        }
        None
    }

    fn drop_silent(&mut self) -> Option<HubEvent<P>> {
        let now = Instant::now();
        if self.is_late {
            return None;
        }
        while self.newcomers.values().next().is_some_and(|link| now >= link.heard + PATIENCE) {
            self.drop_oldest();
        }
        let silence = P::SILENCE.filter(|_| now >= self.look_at)?;
        let silent = self.members.iter().find(|(_, link)| now > link.heard + silence);
        let Some((node, _)) = silent else {
            self.look_at = now + LOOK;
            return None;
        };
        let why = format!("it has sent nothing for {} s", silence.as_secs());
        self.leave(*node, Stranger { fault: Fault::Silent, why })
    }

    fn leave(&mut self, node: u32, why: Stranger) -> Option<HubEvent<P>> {
        Some(HubEvent::Left(node, self.remove(node)?, why))
    }

    /// Makes a newcomer a member.
    ///
    /// # Errors
    /// The kernel cannot watch one more connection.
    pub(crate) fn admit(&mut self, channel: Channel, node: u32, peer: P) -> nix::Result<()> {
        let link = self.register(node.into(), channel, peer)?;
        self.members.insert(node, link);
        Ok(())
    }

    /// Closes the connection of a member.
    pub(crate) fn remove(&mut self, node: u32) -> Option<P> {
        let link = self.members.remove(&node)?;
        Some(self.release(link).1)
    }

    /// Sends a message without waiting. A broken connection is noticed when it is heard next.
    pub(crate) fn send(&mut self, node: u32, message: &P::Reply) {
        if let Some(link) = self.members.get_mut(&node) {
            let _ = link.channel.queue(message);
        }
    }

    pub(crate) fn send_all(&mut self, message: impl Fn(u32) -> P::Reply) {
        for (node, link) in &mut self.members {
            let _ = link.channel.queue(&message(*node));
        }
    }

    /// Returns whether a member has not accepted yet all that was sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.members.values().any(|link| link.channel.connection().is_sending())
    }

    pub(crate) fn members(&self) -> &BTreeMap<u32, Link<P>> {
        &self.members
    }

    pub(crate) fn peers_mut(&mut self) -> impl Iterator<Item = (u32, &mut P)> {
        self.members.iter_mut().map(|(node, link)| (*node, &mut link.peer))
    }

    pub(crate) fn peer_mut(&mut self, node: u32) -> Option<&mut P> {
        self.members.get_mut(&node).map(|link| &mut link.peer)
    }
}

impl<P> Link<P> {
    pub(crate) fn address(&self) -> &str {
        self.channel.address()
    }

    fn held(&self) -> usize {
        self.channel.connection().held()
    }

    /// `held`: what all connections keep.
    fn receive<T: DeserializeOwned>(
        &mut self,
        longest: usize,
        held: &mut usize,
    ) -> Result<Option<T>, Stranger> {
        let others = held.saturating_sub(self.held());
        let said = self.channel.receive_if_there(longest);
        *held = others.saturating_add(self.held());
        said
    }
}

fn not_ours(why: String) -> Stranger {
    Stranger { fault: Fault::NotOurs, why }
}

#[cfg(test)]
mod tests;
