//! The address at which a node can be reached, or at which it listens.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use crate::facts::hosts;
use crate::resolve;

/// The default TCP port. No other program is known to use it by default.
const DEFAULT_PORT: u16 = 18516;

/// A host, which may be empty, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    pub port: u16,
}

impl Address {
    /// Returns an address with this port and no host: a listener on it accepts connections at all local
    /// addresses.
    pub fn on_port(port: u16) -> Address {
        Address { host: String::new(), port }
    }

    /// Returns an address with the default port and no host.
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

    /// Returns whether the address resolves only to loopback.
    pub fn is_loopback(&self) -> bool {
        let literal = self.host.parse::<IpAddr>();
        literal
            .map_or_else(|_| hosts::is_localhost(&self.host), |address| address.to_canonical().is_loopback())
    }

    /// Returns whether this is an IPv6 link-local address, which is meaningless on another host.
    pub fn is_link_local(&self) -> bool {
        let literal = self.host.split('%').next().and_then(|host| host.parse::<Ipv6Addr>().ok());
        literal.is_some_and(|address| address.is_unicast_link_local())
    }

    /// # Errors
    /// As for [`resolve::addresses`].
    pub fn sockets(&self, until: Instant) -> Result<Vec<SocketAddr>, String> {
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

/// The error for a text that is not a valid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; expected HOST:PORT, [IPV6]:PORT, or HOST alone for port {DEFAULT_PORT}")]
pub struct AddressError(String);

/// Returns whether a character never occurs in a host name. A name without such characters may become
/// resolvable later, but a name with one never will.
fn is_foreign(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "[]/,@".contains(c)
}

/// Parses `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]:PORT`, or `:PORT`.
///
/// # Errors
/// The text has none of these forms.
impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("none"))),
            // The last group of a bare IPv6 address is not a port.
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
