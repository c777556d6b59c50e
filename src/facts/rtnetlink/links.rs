//! Lists interfaces and their addresses through rtnetlink(7) in the order of getifaddrs(3): first each link
//! in the kernel's order, then each address, IPv4 before IPv6. NCCL sees them in this order.
//!
//! glibc's own function aborts the process on some socket errors (`__netlink_assert_response` in
//! `sysdeps/unix/sysv/linux/netlink_assert_response.c`), which a sandbox may well cause.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::NlasIterator;
use nix::errno::Errno;
use nix::libc;

use super::{FAMILIES, IPV6, Question, Socket};

/// A link, or one address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The name of the link, or the label of the address.
    pub name: String,
    /// The link's index and MTU; `None` for an address.
    pub index: Option<u32>,
    pub mtu: Option<u32>,
    /// The flags of the link, as in `linux/if.h` (IFF_UP and others).
    pub flags: u32,
    /// The address with its prefix length; `None` for the entry of the link itself.
    pub address: Option<IpNet>,
}

/// Returns all interfaces and addresses of the network namespace.
///
/// # Errors
/// The socket's error: a sandbox may refuse or not support it.
pub(crate) fn list() -> Result<Vec<Listed>, Errno> {
    let mut socket = Socket::open()?;
    let links = links(&mut socket)?;
    let mut listed: Vec<Listed> = links
        .iter()
        .map(|(index, link)| Listed {
            name: link.name.clone(),
            index: Some(*index),
            mtu: link.mtu,
            flags: link.flags,
            address: None,
        })
        .collect();
    let links: BTreeMap<u32, LinkInfo> = links.into_iter().collect();
    for family in FAMILIES {
        let asked = Question { request: libc::RTM_GETADDR, answer: libc::RTM_NEWADDR, family };
        let add = |found: &mut Vec<Listed>, message: &[u8]| found.extend(address(message, &links));
        match socket.dump(asked, add) {
            Err(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP) if family == IPV6 => {}
            found => listed.extend(found?.0),
        }
    }
    Ok(listed)
}

/// Returns the names of the links by their indexes.
///
/// # Errors
/// The errors of [`list`].
pub(super) fn names(socket: &mut Socket) -> Result<BTreeMap<u32, String>, Errno> {
    Ok(links(socket)?.into_iter().map(|(index, link)| (index, link.name)).collect())
}

struct LinkInfo {
    name: String,
    flags: u32,
    mtu: Option<u32>,
}

/// Returns the links with their indexes, in the kernel's order.
fn links(socket: &mut Socket) -> Result<Vec<(u32, LinkInfo)>, Errno> {
    let family = libc::AF_UNSPEC as u8;
    let asked = Question { request: libc::RTM_GETLINK, answer: libc::RTM_NEWLINK, family };
    let (found, _) = socket.dump(asked, |found: &mut Vec<_>, message| found.extend(link(message)))?;
    Ok(found)
}

/// Parses a `struct ifinfomsg` and its attributes.
fn link(message: &[u8]) -> Option<(u32, LinkInfo)> {
    let (header, attributes) = message.split_at_checked(16)?;
    let name = find(attributes, libc::IFLA_IFNAME)?;
    let mtu = find(attributes, libc::IFLA_MTU).and_then(|mtu| number(mtu, 0));
    Some((number(header, 4)?, LinkInfo { name: text(name), flags: number(header, 8)?, mtu }))
}

/// Parses a `struct ifaddrmsg` and its attributes. Returns `None` for an unknown link, which appeared after
/// the links were listed.
fn address(message: &[u8], links: &BTreeMap<u32, LinkInfo>) -> Option<Listed> {
    let (header, attributes) = message.split_at_checked(8)?;
    let [family, prefix] = *header.first_chunk()?;
    let link = links.get(&number(header, 4)?)?;
    // If the link has a peer (point-to-point), IFA_ADDRESS is the peer's address.
    let bytes = find(attributes, libc::IFA_LOCAL).or_else(|| find(attributes, libc::IFA_ADDRESS))?;
    let address = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(*bytes.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(Listed {
        name: find(attributes, libc::IFA_LABEL).map_or_else(|| link.name.clone(), text),
        index: None,
        mtu: None,
        flags: link.flags,
        address: IpNet::new(address, prefix).ok(),
    })
}

fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let one = NlasIterator::new(attributes).map_while(Result::ok).find(|one| one.kind() == kind)?;
    let length = one.length().into();
    // The header consists of two 16-bit numbers.
    one.into_inner().get(4..length)
}

/// Returns the 32-bit number at this offset.
fn number(header: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*header.get(at..)?.first_chunk()?))
}

/// Returns a text, up to its NUL if it has one.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Entry point for the fuzzers; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(data: &[u8]) {
    link(data);
    let links = BTreeMap::from([(2, LinkInfo { name: "eth0".to_owned(), flags: 0, mtu: None })]);
    address(data, &links);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = [u16::try_from(length).unwrap().to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn link_message() -> Vec<u8> {
        let head = [[0, 0, 1, 0], 7u32.to_ne_bytes(), 0x1043u32.to_ne_bytes(), [0; 4]].concat();
        [head, attribute(libc::IFLA_ADDRESS, &[2; 6]), attribute(libc::IFLA_IFNAME, b"eth0\0")].concat()
    }

    fn address_message(family: i32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let head = [[family as u8, 24, 0, 0], 7u32.to_ne_bytes()].concat();
        [&[head], attributes].concat().concat()
    }

    fn shown(message: &[u8]) -> Option<String> {
        let links = link(&link_message()).into_iter().collect();
        let listed = address(message, &links)?;
        assert_eq!(listed.flags, 0x1043);
        Some(format!("{} {}", listed.name, listed.address?))
    }

    #[test]
    fn an_address_is_the_own_one_with_its_label() {
        let own = attribute(libc::IFA_LOCAL, &[10, 1, 0, 5]);
        let peer = attribute(libc::IFA_ADDRESS, &[10, 1, 0, 1]);
        let label = attribute(libc::IFA_LABEL, b"eth0:1\0");
        let v4 = |attributes: &[Vec<u8>]| shown(&address_message(libc::AF_INET, attributes));
        assert_eq!(v4(&[peer.clone(), own, label]).unwrap(), "eth0:1 10.1.0.5/24");
        assert_eq!(v4(std::slice::from_ref(&peer)).unwrap(), "eth0 10.1.0.1/24");
        let v6 = attribute(libc::IFA_ADDRESS, &[0xfd; 16]);
        assert!(shown(&address_message(libc::AF_INET6, &[v6])).unwrap().starts_with("eth0 fdfd:"));
        // Too few bytes, another family, and no address at all.
        assert_eq!(v4(&[attribute(libc::IFA_LOCAL, &[10, 1])]), None);
        assert_eq!(shown(&address_message(libc::AF_MPLS, &[peer])), None);
        assert_eq!(v4(&[]), None);
    }

    /// Checks that no message from the socket can crash the program.
    #[test]
    fn mutated_messages_do_no_harm() {
        let links: BTreeMap<u32, LinkInfo> = link(&link_message()).into_iter().collect();
        let attributes =
            [attribute(libc::IFA_LOCAL, &[10, 1, 0, 5]), attribute(libc::IFA_LABEL, b"eth0:1\0")];
        let messages = [link_message(), address_message(libc::AF_INET, &attributes)];
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..20_000 {
            let mut message = random.choice(&messages).unwrap().clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..message.len());
                message[at] = random.u8(..);
            }
            message.truncate(random.usize(..=message.len()));
            link(&message);
            address(&message, &links);
        }
    }
}
