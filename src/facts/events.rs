//! What the kernel reports about RDMA devices, and about links and addresses, while it happens: a process that waits
//! for its next look at the ports can take it at once.
//!
//! A port of InfiniBand has no event, and a container sees those of its own interfaces alone.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::NetlinkBuffer;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::port_look::UsedGid;
use super::reader::Reader;

/// The kernel's own events of devices. Group 2 is udev's.
const OF_KERNEL: u32 = 1;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR` of `linux/rtnetlink.h`.
const LINKS_AND_ADDRESSES: u32 = 0x1 | 0x10 | 0x100;

/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_NEWADDR` and `RTM_DELADDR`. In the header behind each of them, the index of the
/// interface is at the same place (`struct ifinfomsg`, `struct ifaddrmsg`).
const ABOUT_INTERFACES: [u16; 4] = [16, 17, 20, 21];
const INDEX: std::ops::Range<usize> = 4..8;

/// In bytes: the kernel sends no longer message.
const LONGEST: usize = 16 * 1024;

/// The most messages to take at once. More come only if very much happens, and then a look is right.
const MOST: usize = 256;

pub(crate) struct Events {
    devices: Option<OwnedFd>,
    links: Option<OwnedFd>,
    /// The interfaces of the job, by the kernel's indexes.
    interfaces: BTreeSet<u32>,
}

impl Events {
    /// Listens to the events of all RDMA devices, and of the interfaces of these ports, each by the name of its device,
    /// its number, and the GID that the job uses. What a sandbox refuses is missing.
    pub(crate) fn listen<'p>(
        reader: &Reader,
        ports: impl Iterator<Item = (&'p str, u32, Option<&'p UsedGid>)>,
    ) -> Events {
        let interface = |(hca, port, gid): (&str, u32, Option<&UsedGid>)| {
            let folder = format!("/sys/class/infiniband/{hca}/ports/{port}/gid_attrs/ndevs");
            let name = reader.folder(folder).attribute(&gid?.index.to_string()).ok()?;
            reader.attribute(&reader.path(format!("/sys/class/net/{name}/ifindex"))).ok()?.parse().ok()
        };
        let interfaces: BTreeSet<u32> = ports.filter_map(interface).collect();
        let links = (!interfaces.is_empty()).then(|| open(SockProtocol::NetlinkRoute, LINKS_AND_ADDRESSES));
        Events {
            devices: open(SockProtocol::NetlinkKObjectUEvent, OF_KERNEL).ok(),
            links: links.and_then(Result::ok),
            interfaces,
        }
    }

    /// Returns what is readable when something has happened.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.devices.iter().chain(&self.links).map(AsFd::as_fd)
    }

    /// Takes what has happened. Returns whether there was anything, and whether some of it may be about the job's
    /// devices or interfaces.
    pub(crate) fn take(&self) -> (bool, bool) {
        let devices = self.devices.as_ref().map_or((false, false), |fd| drained(fd, is_of_rdma));
        let is_ours = |message: &[u8]| is_of_interface(message, &self.interfaces);
        let links = self.links.as_ref().map_or((false, false), |fd| drained(fd, is_ours));
        (devices.0 || links.0, devices.1 || links.1)
    }
}

fn open(protocol: SockProtocol, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// Reads all messages, and returns whether there were any, and whether one of them is of interest, or some were lost.
fn drained(fd: &OwnedFd, is_of_interest: impl Fn(&[u8]) -> bool) -> (bool, bool) {
    // Mostly there is nothing, and no buffer is needed.
    if recv(fd.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK) == Err(Errno::EAGAIN) {
        return (false, false);
    }
    let mut buffer = vec![0; LONGEST];
    let (mut some, mut found) = (false, false);
    for _ in 0..MOST {
        match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => {
                some = true;
                found |= is_of_interest(buffer.get(..length).unwrap_or_default());
            }
            Err(Errno::EINTR) => {}
            Err(Errno::ENOBUFS) => (some, found) = (true, true),
            Err(_) => return (some, found),
        }
    }
    (true, true)
}

/// Of any RDMA device: one of the job's may have another name by now.
fn is_of_rdma(message: &[u8]) -> bool {
    message.split(|byte| *byte == 0).any(|field| field == b"SUBSYSTEM=infiniband")
}

fn is_of_interface(messages: &[u8], interfaces: &BTreeSet<u32>) -> bool {
    let mut rest = messages;
    while let Ok(packet) = NetlinkBuffer::new_checked(rest) {
        let index =
            packet.payload().get(INDEX).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let is_about = ABOUT_INTERFACES.contains(&packet.message_type());
        if is_about && index.is_some_and(|index| interfaces.contains(&index)) {
            return true;
        }
        // Messages begin at multiples of four bytes.
        rest = rest.get((packet.length() as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    is_of_rdma(data);
    is_of_interface(data, &BTreeSet::from([1]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::gid::GidType;

    /// A message of rtnetlink about this interface.
    fn message(kind: u16, index: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(32_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0; 4]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn only_what_is_about_the_job_s_devices_and_interfaces_counts() {
        let event = |subsystem: &str| {
            format!("remove@/devices/pci0000:00/x\0ACTION=remove\0SUBSYSTEM={subsystem}\0SEQNUM=7\0")
                .into_bytes()
        };
        assert!(is_of_rdma(&event("infiniband")));
        assert!(!is_of_rdma(&event("infiniband_verbs")) && !is_of_rdma(&event("net")) && !is_of_rdma(&[]));
        let ours = BTreeSet::from([7]);
        for kind in ABOUT_INTERFACES {
            assert!(is_of_interface(&message(kind, 7), &ours) && !is_of_interface(&message(kind, 8), &ours));
        }
        // A route, and a later message in one piece.
        assert!(!is_of_interface(&message(24, 7), &ours));
        assert!(is_of_interface(&[message(20, 3), message(21, 7)].concat(), &ours));
        for length in 0..64 {
            fuzz(&[message(20, 3), message(21, 1)].concat()[..length]);
        }
    }

    #[test]
    fn the_interfaces_are_those_of_the_job_s_gids() {
        let root = FakeRoot::new();
        root.file("sys/class/infiniband/x_0/ports/1/gid_attrs/ndevs/3", "eth7\n");
        root.file("sys/class/net/eth7/ifindex", "42\n");
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let used = |index| UsedGid { index, gid, kind: GidType::RoceV2, is_searched: None };
        let of = |gid: Option<&UsedGid>| Events::listen(&root.reader(), std::iter::once(("x_0", 1, gid)));
        assert_eq!(of(Some(&used(3))).interfaces, BTreeSet::from([42]));
        for none in [of(Some(&used(4))), of(None)] {
            assert!(none.interfaces.is_empty() && none.links.is_none());
        }
    }
}
