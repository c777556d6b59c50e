//! Routes, and a reader for `/proc/net/route` and `/proc/net/ipv6_route`, which rdma-init uses if
//! rtnetlink(7) is not available.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::reader::Reader;

/// The tables for which the kernel has rules by default (`linux/rtnetlink.h`).
pub const DEFAULT: u32 = 253;
pub const MAIN: u32 = 254;
pub const LOCAL: u32 = 255;

/// A unicast route through an interface. A route with several next hops becomes several of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    pub interface: String,
    pub destination: IpNet,
    /// The route is only for packets from this source (`ip -6 route add ... from`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    #[serde(default)]
    pub gateway: Option<IpAddr>,
    /// Among routes to the same destination, the lowest metric wins.
    #[serde(default)]
    pub metric: u32,
    /// The number of the route's table.
    #[serde(default = "main_table", skip_serializing_if = "is_main_table")]
    pub table: u32,
}

fn main_table() -> u32 {
    MAIN
}

fn is_main_table(table: &u32) -> bool {
    *table == MAIN
}

impl Route {
    pub fn is_default(&self) -> bool {
        self.destination.prefix_len() == 0
    }

    /// Returns whether every packet may take the route: it does not need an administrator's rule to select
    /// its table, and it is not limited to certain sources.
    pub fn is_for_all(&self) -> bool {
        self.needs_no_rule() && self.source.is_none()
    }

    /// Returns whether the kernel's default rules look in the route's table.
    pub fn needs_no_rule(&self) -> bool {
        [MAIN, DEFAULT].contains(&self.table)
    }
}

// linux/route.h and linux/ipv6_route.h
const RTF_UP: u32 = 0x1;
const RTF_REJECT: u32 = 0x200;
const RTF_LOCAL: u32 = 0x8000_0000;

/// Reads the routes from files. For IPv4, these are the main table and the first next hop of each route. For
/// IPv6, they are all tables; the file does not name them, so all routes count as in the main table.
pub fn read(reader: &Reader) -> Vec<Route> {
    let mut routes = Vec::new();
    for (path, skip, parse) in
        [("/proc/net/route", 1, parse_v4 as fn(&str) -> Parsed), ("/proc/net/ipv6_route", 0, parse_v6)]
    {
        let Some(text) = reader.text(path) else { continue };
        for line in text.lines().skip(skip) {
            match parse(line) {
                Parsed::Route(route) => routes.push(route),
                Parsed::Other => {}
                Parsed::Malformed => {
                    reader
                        .remember(&reader.path(path), format!("it has a line that is not a route: {line:?}"));
                }
            }
        }
    }
    routes
}

enum Parsed {
    Route(Route),
    /// A route that does not carry a job's traffic out of the container.
    Other,
    Malformed,
}

impl From<Option<Parsed>> for Parsed {
    fn from(parsed: Option<Parsed>) -> Parsed {
        parsed.unwrap_or(Parsed::Malformed)
    }
}

/// Parses `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT`, with addresses in the
/// machine's byte order (`fib_route_seq_show`).
fn parse_v4(line: &str) -> Parsed {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |index: usize| -> Option<Ipv4Addr> {
        let number = u32::from_str_radix(fields.get(index)?, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let route = || -> Option<Parsed> {
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        if flags & RTF_UP == 0 || flags & RTF_REJECT != 0 {
            return Some(Parsed::Other);
        }
        let gateway = address(2)?;
        Some(Parsed::Route(Route {
            interface: (*fields.first()?).to_owned(),
            destination: Ipv4Net::with_netmask(address(1)?, address(7)?).ok()?.into(),
            gateway: (!gateway.is_unspecified()).then_some(gateway.into()),
            metric: fields.get(6)?.parse().ok()?,
            source: None,
            table: MAIN,
        }))
    };
    route().into()
}

/// Parses `destination length source length next-hop metric refcount use flags device` (`rt6_info_route`).
fn parse_v6(line: &str) -> Parsed {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |index: usize| -> Option<Ipv6Addr> {
        Some(u128::from_str_radix(fields.get(index)?, 16).ok()?.into())
    };
    let route = || -> Option<Parsed> {
        let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
        let destination = address(0)?;
        let length = u8::from_str_radix(fields.get(1)?, 16).ok()?;
        let interface = *fields.get(9)?;
        if flags & RTF_UP == 0
            || flags & (RTF_REJECT | RTF_LOCAL) != 0
            || destination.is_multicast()
            || interface == "lo"
        {
            return Some(Parsed::Other);
        }
        let gateway = address(4)?;
        Some(Parsed::Route(Route {
            interface: interface.to_owned(),
            destination: Ipv6Net::new(destination, length).ok()?.into(),
            gateway: (!gateway.is_unspecified()).then_some(gateway.into()),
            metric: u32::from_str_radix(fields.get(5)?, 16).ok()?,
            source: None,
            table: MAIN,
        }))
    };
    route().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn both_tables_are_read_and_broken_lines_are_named() {
        let root = FakeRoot::new();
        root.file(
            "proc/net/route",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
             eth0\t00000000\t010AF40A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
             eth1\t80800B19\t00000000\t0001\t0\t0\t0\tE0FFFFFF\t0\t0\t0\n\
             eth2\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n\
             garbage\n",
        );
        root.file(
            "proc/net/ipv6_route",
            "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n\
             fd000000000000000000000000000005 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001     eth0\n\
             ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0\n\
             00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n",
        );
        let reader = root.reader();
        let routes: Vec<String> = read(&reader)
            .iter()
            .map(|r| format!("{} {} {:?} {}", r.interface, r.destination, r.gateway, r.metric))
            .collect();
        assert_eq!(
            routes,
            [
                "eth0 0.0.0.0/0 Some(10.244.10.1) 100",
                "eth1 25.11.128.128/27 None 0",
                "eth0 ::/0 Some(fd00::1) 1024",
            ]
        );
        let unreadable = reader.into_unreadable();
        assert_eq!(unreadable.len(), 1);
        assert_eq!(unreadable[0].error, "it has a line that is not a route: \"garbage\"");
    }
}
