//! The address where a node is, or waits.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use crate::facts::hosts;
use crate::resolve::{self, ResolveError};

/// The default TCP port; no other program has it as its default.
const DEFAULT_PORT: u16 = 18516;

/// A host, which may be empty, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    pub port: u16,
}

impl Address {
    /// This port of no host in particular: a listener takes all addresses.
    pub fn on_port(port: u16) -> Address {
        Address { host: String::new(), port }
    }

    /// Returns the default port of no host in particular.
    pub fn everywhere() -> Address {
        Address::on_port(DEFAULT_PORT)
    }

    pub fn of(socket: SocketAddr) -> Address {
        Address { host: socket.ip().to_string(), port: socket.port() }
    }

    /// Returns whether the address names no host.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// Returns whether the address can lead to this host alone.
    pub fn is_loopback(&self) -> bool {
        let literal = self.host.parse::<IpAddr>();
        literal
            .map_or_else(|_| hosts::is_localhost(&self.host), |address| address.to_canonical().is_loopback())
    }

    /// Returns whether this is an IPv6 address of one link alone, which means nothing on another host.
    pub fn is_link_local(&self) -> bool {
        let literal = self.host.split('%').next().and_then(|host| host.parse::<Ipv6Addr>().ok());
        literal.is_some_and(|address| address.is_unicast_link_local())
    }

    /// # Errors
    /// As for [`resolve::addresses`].
    pub fn sockets(&self, until: Instant) -> Result<Vec<SocketAddr>, ResolveError> {
        let host = if self.host.is_empty() { "localhost" } else { &self.host };
        resolve::addresses(host, self.port, until)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A text that is not an address of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; expected HOST:PORT, [IPV6]:PORT, or HOST alone for port {DEFAULT_PORT}")]
pub struct AddressError(String);

/// Returns what no host has in its name. A name that is only unknown may be known later, and one with this
/// never.
fn is_foreign(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "[]/,@".contains(c)
}

/// `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]:PORT`, `:PORT`.
///
/// # Errors
/// It is none of these.
impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("none"))),
            // The last part of an IPv6 address is not a port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let number = port.map_or(Ok(DEFAULT_PORT), str::parse);
        match number {
            Ok(port) if !text.is_empty() && !host.contains(is_foreign) => {
                Ok(Address { host: host.to_owned(), port })
            }
            _ => Err(AddressError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_one_link_is_known() {
        for (given, wanted) in [
            ("[fe80::1%eth0]:5", true),
            ("fe80::1", true),
            ("[fd00::1]:5", false),
            ("fe80", false),
            ("node2:5", false),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().is_link_local(), wanted, "{given}");
        }
    }

    #[test]
    fn a_port_may_be_left_out() {
        for (given, wanted) in [
            ("node2", "node2:18516"),
            ("node2:5", "node2:5"),
            (":5", ":5"),
            ("[::1]", "[::1]:18516"),
            ("[::1]:5", "[::1]:5"),
            ("::1", "[::1]:18516"),
            ("fe80::1%eth0", "[fe80::1%eth0]:18516"),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().to_string(), wanted);
        }
        for wrong in [
            "",
            "tcp://node:5",
            "[::1",
            "node 1",
            "a,b",
            "node:port",
            "node:70000",
            "[::1]5",
            "node:",
            "[::1]:",
        ] {
            assert!(
                wrong.parse::<Address>().unwrap_err().to_string().contains("is not an address"),
                "{wrong}"
            );
        }
    }
}
