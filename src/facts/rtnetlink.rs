//! Reads all routes, rules, and interfaces of the network namespace through rtnetlink(7), as `ip route show
//! table all` and `ip rule` do.

mod kept;
pub(crate) mod links;
mod message;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NetlinkBuffer};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::SockProtocol;

use self::kept::Kept;
use super::netlink;
use super::route::Route;
use super::rule::RoutingRule;

const IPV6: u8 = libc::AF_INET6 as u8;

/// The address families to ask for; a kernel may lack IPv6.
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, IPV6];

/// The routes and rules of the network namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routing {
    /// The routes, IPv4 first. Of a table that only a rule selects, only the routes that matter.
    pub routes: Vec<Route>,
    /// The rules in the order in which the kernel applies them; `None` if the kernel does not report them.
    pub rules: Option<Vec<RoutingRule>>,
    /// What was skipped, as a sentence without its subject.
    pub trouble: Option<String>,
}

/// The most entries of a list to examine: more than the IPv4 routes of the whole Internet. The rest is not
/// read.
const MOST_READ: usize = 1 << 20;

/// The most rules to keep. A node that is not a router has fewer.
const MOST_RULES: usize = 16 * 1024;

/// In bytes: the kernel fills up to 32 KiB at a time if the reader has room for it
/// (`netlink_dump` in `net/netlink/af_netlink.c`).
const BUFFER: usize = 32 * 1024;

/// Returns the number of bytes that the kernel expects after the header.
fn length_of(request: u16) -> usize {
    match request {
        // `struct ifinfomsg`.
        libc::RTM_GETLINK => 16,
        // `struct ifaddrmsg`.
        libc::RTM_GETADDR => 8,
        // `struct rtmsg`, which is as long as `struct fib_rule_hdr`.
        _ => 12,
    }
}

/// The most attempts to read a list that changes while it is read.
const TRIES: usize = 3;

/// Asks the kernel for routes and rules. `own` are the addresses of this network namespace; they decide which
/// routes to keep from tables that only a rule selects.
///
/// # Errors
/// The socket's error: a sandbox may refuse or not support it.
pub(crate) fn system_routing(own: &BTreeSet<IpAddr>) -> Result<Routing, Errno> {
    let mut socket = Socket::open()?;
    let names = links::names(&mut socket)?;
    let mut routing = Routing::default();
    let mut strange = 0;
    for family in FAMILIES {
        let add = |kept: &mut Kept, message: &[u8]| match message::routes(message, &names) {
            Some(found) => found.into_iter().for_each(|route| kept.add(route, own)),
            None => kept.strange += 1,
        };
        let asked = Question { request: libc::RTM_GETROUTE, answer: libc::RTM_NEWROUTE, family };
        let (kept, is_whole) = match socket.dump(asked, add) {
            Err(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP) if family == IPV6 => continue,
            answered => answered?,
        };
        strange += kept.strange;
        if kept.is_full {
            routing.trouble =
                Some(format!("it gave more than {} routes; rdma-init ignores the rest", kept::MOST));
        }
        if !is_whole {
            routing.trouble =
                Some(format!("it gave {MOST_READ} routes or more; rdma-init did not read the rest"));
        }
        routing.routes.extend(kept.routes);
    }
    let rules = FAMILIES.map(|family| {
        let add = |rules: &mut Vec<Option<RoutingRule>>, message: &[u8]| {
            rules.extend((rules.len() < MOST_RULES).then(|| message::rule(message)));
        };
        let asked = Question { request: libc::RTM_GETRULE, answer: libc::RTM_NEWRULE, family };
        let (found, _) = socket.dump(asked, add)?;
        strange += found.iter().filter(|rule| rule.is_none()).count();
        Ok(found.into_iter().flatten())
    });
    if strange > 0 {
        routing.trouble = Some(format!("it gave {strange} entries of an unknown form"));
    }
    routing.rules = match rules {
        // An entry of an unknown form may be the rule that matters.
        _ if routing.trouble.is_some() => None,
        [Ok(inet), Ok(inet6)] => Some(inet.chain(inet6).collect()),
        [Ok(inet), Err(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)] => Some(inet.collect()),
        _ => None,
    };
    Ok(routing)
}

struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    fn open() -> Result<Socket, Errno> {
        let fd = netlink::open(SockProtocol::NetlinkRoute)?;
        Ok(Socket { fd, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Returns what `add` makes of the payloads of all messages of a kind, and whether the list is complete.
    /// If it is not, it has only about the first [`MOST_READ`] entries.
    fn dump<T: Default>(&mut self, asked: Question, add: impl Fn(&mut T, &[u8])) -> Result<(T, bool), Errno> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut made = T::default();
            let end = self.dump_once(asked, |payload| add(&mut made, payload))?;
            if end != ListEnd::Changed || tries == TRIES {
                return Ok((made, end != ListEnd::TooLong));
            }
        }
    }

    fn dump_once(&mut self, asked: Question, add: impl FnMut(&[u8])) -> Result<ListEnd, Errno> {
        self.sequence += 1;
        let mut payload = vec![0; length_of(asked.request)];
        // Each of these structures begins with the address family.
        payload[0] = asked.family;
        netlink::ask(&self.fd, asked.request, NLM_F_DUMP, self.sequence, &payload)?;

        let mut dump = Dump { sequence: self.sequence, asked, add, count: 0, changed: false };
        while dump.count < MOST_READ {
            if dump.take(netlink::receive(&self.fd, &mut self.buffer)?)? {
                return Ok(if dump.changed { ListEnd::Changed } else { ListEnd::Whole });
            }
        }
        // The socket is replaced, so that the rest of the kernel's answer is not mistaken for the answer to
        // the next request.
        self.fd = Socket::open()?.fd;
        Ok(ListEnd::TooLong)
    }
}

/// A request: its type, the type of the answers, and the address family.
#[derive(Debug, Clone, Copy)]
struct Question {
    request: u16,
    answer: u16,
    family: u8,
}

/// How the reading of a list ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Whole,
    /// The list changed while it was read.
    Changed,
    /// The list has more than [`MOST_READ`] entries.
    TooLong,
}

/// A list that is being received.
struct Dump<F> {
    sequence: u32,
    asked: Question,
    /// Gets the payload of each message.
    add: F,
    count: usize,
    /// Whether the list changed while it was read.
    changed: bool,
}

impl<F: FnMut(&[u8])> Dump<F> {
    /// Processes received messages; returns `true` at the end of the list.
    fn take(&mut self, received: &[u8]) -> Result<bool, Errno> {
        let mut rest = received;
        while !rest.is_empty() {
            let packet = NetlinkBuffer::new_checked(rest).map_err(|_| Errno::EBADMSG)?;
            if packet.sequence_number() == self.sequence {
                self.changed |= packet.flags() & NLM_F_DUMP_INTR != 0;
                match i32::from(packet.message_type()) {
                    libc::NLMSG_DONE => return Ok(true),
                    libc::NLMSG_ERROR => return Err(error(packet.payload())),
                    kind if kind == i32::from(self.asked.answer) => {
                        // If the kernel does not support a family, it may return all other families instead
                        // (`rtnetlink_rcv_msg` in `net/core/rtnetlink.c`).
                        let payload = packet.payload();
                        if payload.first() == Some(&self.asked.family) {
                            self.count += 1;
                            (self.add)(payload);
                        }
                    }
                    _ => {}
                }
            }
            let next = (packet.length() as usize).next_multiple_of(4);
            rest = rest.get(next..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// Returns the errno in a `struct nlmsgerr`. The value 0 would not be an error, so it becomes EBADMSG.
fn error(payload: &[u8]) -> Errno {
    let number = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if number == 0 { Errno::EBADMSG } else { Errno::from_raw(number.wrapping_neg()) }
}

/// Entry point for the fuzzers; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    let names = [(1, "lo".to_owned()), (2, "eth0".to_owned())].into();
    for route in message::routes(data, &names).unwrap_or_default() {
        assert!(route.interface == "eth0" && !route.destination.addr().is_multicast(), "{route:?}");
    }
    message::rule(data);
    links::fuzz(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::route::MAIN;

    fn packet(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = 16 + payload.len();
        let mut bytes = vec![0; length.next_multiple_of(4)];
        let mut packet = NetlinkBuffer::new(&mut bytes);
        packet.set_length(length as u32);
        packet.set_message_type(kind);
        packet.set_sequence_number(sequence);
        bytes[16..length].copy_from_slice(payload);
        bytes
    }

    fn take(bytes: &[u8]) -> Result<(bool, usize), Errno> {
        let asked = Question { request: 26, answer: 24, family: 2 };
        let mut dump = Dump { sequence: 3, asked, add: |_: &[u8]| {}, count: 0, changed: false };
        let is_end = dump.take(bytes)?;
        Ok((is_end, dump.count))
    }

    #[test]
    fn a_list_ends_where_the_kernel_says() {
        let entries = [packet(24, 3, &[2; 13]), packet(24, 3, &[2; 12])].concat();
        assert_eq!(take(&entries), Ok((false, 2)));
        assert_eq!(take(&[entries.clone(), packet(3, 3, &[0; 4])].concat()), Ok((true, 2)));
        // Messages for another request, of another kind, and of another family.
        assert_eq!(
            take(&[packet(24, 2, &[]), packet(32, 3, &[]), packet(24, 3, &[10]), packet(3, 2, &[])].concat()),
            Ok((false, 0))
        );
        let refused = packet(2, 3, &(-libc::EOPNOTSUPP).to_ne_bytes());
        assert_eq!(take(&refused), Err(Errno::EOPNOTSUPP));
        assert_eq!(take(&packet(2, 3, &[])), Err(Errno::EBADMSG));
        assert_eq!(take(&entries[..20]), Err(Errno::EBADMSG));
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..10_000 {
            let mut bytes = entries.clone();
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
            let _ = take(&bytes);
        }
    }

    #[test]
    fn this_machine_reports_its_routing_rules() {
        let routing = system_routing(&BTreeSet::new()).unwrap();
        assert_eq!(routing.trouble, None);
        let rules = routing.rules.unwrap();
        assert!(rules.iter().any(|rule| rule.table == Some(MAIN)), "{rules:?}");
    }
}
