//! DNS messages (RFC 1035). Nothing that a server sends is trusted. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, header_buffer};

use crate::facts::hosts::MOST;

/// The most aliases to follow in one answer. An alias is a name that only points to another name.
const MOST_ALIASES: usize = 16;

/// Which kind of address is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    fn kind(self) -> QTYPE {
        QTYPE::TYPE(match self {
            Family::Ipv4 => TYPE::A,
            Family::Ipv6 => TYPE::AAAA,
        })
    }
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerAnswer {
    /// The addresses; empty if the name has none of this family.
    Addresses(Vec<IpAddr>),
    /// The name does not exist in any family.
    NoSuchName,
    /// The answer did not fit into a datagram, and was cut off.
    Truncated,
    /// The server failed; the text is a sentence that says how.
    Failed(String),
}

/// Returns the bytes of the question; `None` if DNS does not allow the name.
pub(super) fn question(id: u16, name: &str, family: Family) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    packet.questions.push(Question::new(name, family.kind(), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().ok()
}

/// Returns the answer; `None` if the bytes are not an answer to this question.
pub(super) fn answer(bytes: &[u8], id: u16, name: &str, family: Family) -> Option<ServerAnswer> {
    let is_answer = header_buffer::has_flags(bytes, PacketFlag::RESPONSE).ok()?;
    if !is_answer || header_buffer::id(bytes).ok()? != id {
        return None;
    }
    // A truncated message may be cut anywhere.
    if header_buffer::has_flags(bytes, PacketFlag::TRUNCATION).ok()? {
        return Some(ServerAnswer::Truncated);
    }
    let packet = Packet::parse(bytes).ok()?;
    let asked = Name::new(name).ok()?;
    let [question] = packet.questions.as_slice() else { return None };
    if question.qname != asked || question.qtype != family.kind() {
        return None;
    }
    match packet.rcode() {
        RCODE::NoError => Some(ServerAnswer::Addresses(addresses(&packet, asked, family))),
        RCODE::NameError => Some(ServerAnswer::NoSuchName),
        other => Some(ServerAnswer::Failed(format!("the server's answer is {other:?}"))),
    }
}

/// Returns the addresses of the name or, if it is an alias, of the name that it stands for.
fn addresses(packet: &Packet, asked: Name, family: Family) -> Vec<IpAddr> {
    let mut name = &asked;
    for _ in 0..MOST_ALIASES {
        let alias = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(alias) if record.name == *name => Some(&alias.0),
            _ => None,
        });
        match alias {
            Some(alias) => name = alias,
            None => break,
        }
    }
    let of_name = packet.answers.iter().filter(|record| record.name == *name && record.class == CLASS::IN);
    let addresses = of_name.filter_map(|record| match (&record.rdata, family) {
        (RData::A(a), Family::Ipv4) => Some(Ipv4Addr::from(a.address).into()),
        (RData::AAAA(aaaa), Family::Ipv6) => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    });
    addresses.take(MOST).collect()
}
