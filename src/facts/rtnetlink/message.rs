//! Parses routes and rules from rtnetlink(7) messages.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{Nla, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use crate::facts::route::{LOCAL, Route};
use crate::facts::rule::{Family, RoutingRule, RuleEffect};

// Conditions of a rule that netlink-packet-route does not support. The numbers between the last two are the
// masks of ports and flow labels (`linux/fib_rules.h`).
const FRA_DSCP: u16 = 25;
const FRA_FLOWLABEL: u16 = 26;
const FRA_DSCP_MASK: u16 = 30;

/// Returns the routes in a message, one for each next hop; empty if they do not carry a job's traffic out of
/// the container. Returns `None` if the form of the message is unknown.
pub(super) fn routes(message: &[u8], names: &BTreeMap<u32, String>) -> Option<Vec<Route>> {
    let RouteMessage { header, attributes, .. } = RouteMessage::parse(message).ok()?;
    let find = |pick: fn(&RouteAttribute) -> Option<u32>| attributes.iter().find_map(pick);
    let table = find(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    let table = table.unwrap_or(header.table.into());
    let unspecified = unspecified(header.address_family)?;
    let net = |address: Option<IpAddr>, length: u8| IpNet::new(address.unwrap_or(unspecified), length).ok();
    let destination = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => Some(ip(address)),
        _ => None,
    });
    let destination = net(destination.flatten(), header.destination_prefix_length)?;
    let source = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Source(address) => Some(ip(address)),
        _ => None,
    });
    let source = net(source.flatten(), header.source_prefix_length)?;
    if header.kind != RouteType::Unicast
        || table == LOCAL
        || header.flags.intersects(RouteFlags::Dead | RouteFlags::Cloned)
        || destination.addr().is_multicast()
    {
        return Some(Vec::new());
    }
    let metric = find(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let through = |index: u32, attributes: &[RouteAttribute]| {
        let interface = names.get(&index).filter(|name| *name != "lo")?.clone();
        Some(Route {
            interface,
            destination,
            source: Some(source).filter(|source| source.prefix_len() > 0),
            gateway: attributes.iter().find_map(gateway),
            metric: metric.unwrap_or(0),
            table,
        })
    };
    let hops = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let found = match hops {
        Some(hops) => hops
            .iter()
            .filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead))
            .filter_map(|hop| through(hop.interface_index, &hop.attributes))
            .collect(),
        None => {
            let index = find(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
            Vec::from_iter(index.and_then(|index| through(index, &attributes)))
        }
    };
    Some(found)
}

fn unspecified(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Returns the gateway. An IPv4 route may have an IPv6 gateway (`via inet6`).
fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

/// Returns the rule in a message; `None` if the form of the message is unknown.
pub(super) fn rule(message: &[u8]) -> Option<RoutingRule> {
    let RuleMessage { header, attributes, .. } = RuleMessage::parse(message).ok()?;
    let mut rule = RoutingRule {
        family: match header.family {
            AddressFamily::Inet => Family::Inet,
            AddressFamily::Inet6 => Family::Inet6,
            _ => return None,
        },
        not: header.flags.contains(RuleFlags::Invert),
        action: match header.action {
            RuleAction::ToTable => RuleEffect::Lookup,
            RuleAction::Goto => RuleEffect::Goto,
            RuleAction::Nop => RuleEffect::Nop,
            RuleAction::Blackhole => RuleEffect::Blackhole,
            RuleAction::Unreachable => RuleEffect::Unreachable,
            RuleAction::Prohibit => RuleEffect::Prohibit,
            other => RuleEffect::Other(u8::from(other).to_string()),
        },
        ..RoutingRule::default()
    };
    let mut table = u32::from(header.table);
    if header.tos != 0 {
        rule.others.push("tos".to_owned());
    }
    for attribute in attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = priority,
            RuleAttribute::Source(address) => rule.from = Some(IpNet::new(address, header.src_len).ok()?),
            RuleAttribute::Destination(address) => rule.to = Some(IpNet::new(address, header.dst_len).ok()?),
            RuleAttribute::Iifname(name) => rule.iif = Some(name),
            RuleAttribute::Oifname(name) => rule.oif = Some(name),
            RuleAttribute::FwMark(mark) => rule.fwmark = Some(mark),
            RuleAttribute::Table(number) => table = number,
            RuleAttribute::L3MDev(is_so) if is_so => rule.others.push("l3mdev".to_owned()),
            RuleAttribute::TunId(id) if id != 0 => rule.others.push("tun_id".to_owned()),
            RuleAttribute::UidRange(_) => rule.others.push("uidrange".to_owned()),
            RuleAttribute::IpProtocol(_) => rule.others.push("ipproto".to_owned()),
            RuleAttribute::SourcePortRange(_) => rule.others.push("sport".to_owned()),
            RuleAttribute::DestinationPortRange(_) => rule.others.push("dport".to_owned()),
            // The other numbers up to this one are padding, or are not conditions.
            RuleAttribute::Other(attribute) => match attribute.kind() {
                FRA_DSCP => rule.others.push("dscp".to_owned()),
                FRA_FLOWLABEL => rule.others.push("flowlabel".to_owned()),
                kind if kind > FRA_DSCP_MASK => rule.others.push(format!("attribute {kind}")),
                _ => {}
            },
            _ => {}
        }
    }
    rule.table = Some(table).filter(|table| rule.action == RuleEffect::Lookup && *table != 0);
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use netlink_packet_route::route::{RouteHeader, RouteNextHop};
    use netlink_packet_route::rule::RuleHeader;

    fn bytes(message: &impl Emitable) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn route_message(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let header = RouteHeader {
            address_family: AddressFamily::Inet,
            table: RouteHeader::RT_TABLE_MAIN,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let mut message = RouteMessage::default();
        (message.header, message.attributes) = (header, attributes);
        message
    }

    fn hop(index: u32, gateway: [u8; 4]) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        hop.interface_index = index;
        hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway.into()))];
        hop
    }

    fn names() -> BTreeMap<u32, String> {
        [(1, "lo"), (2, "eth0"), (3, "eth1")].map(|(index, name)| (index, name.to_owned())).into()
    }

    fn shown(message: &RouteMessage) -> Vec<String> {
        let routes = routes(&bytes(message), &names()).unwrap();
        let line =
            |r: &Route| format!("{} {} {:?} {} {}", r.interface, r.destination, r.gateway, r.metric, r.table);
        routes.iter().map(line).collect()
    }

    #[test]
    fn each_live_next_hop_becomes_one_route() {
        let hops = RouteAttribute::MultiPath(vec![hop(2, [10, 1, 0, 1]), hop(3, [10, 2, 0, 1])]);
        let message =
            route_message(vec![RouteAttribute::Table(5000), RouteAttribute::Priority(100), hops.clone()]);
        assert_eq!(
            shown(&message),
            ["eth0 0.0.0.0/0 Some(10.1.0.1) 100 5000", "eth1 0.0.0.0/0 Some(10.2.0.1) 100 5000"]
        );
        // A dead next hop carries no traffic.
        let mut dead = hop(2, [10, 1, 0, 1]);
        dead.flags = RouteNextHopFlags::Dead;
        let hops = RouteAttribute::MultiPath(vec![dead, hop(3, [10, 2, 0, 1])]);
        assert_eq!(shown(&route_message(vec![hops])), ["eth1 0.0.0.0/0 Some(10.2.0.1) 0 254"]);
        let via = RouteAttribute::Via(RouteVia::Inet6("fe80::1".parse().unwrap()));
        let message = route_message(vec![via, RouteAttribute::Oif(3)]);
        assert_eq!(shown(&message), ["eth1 0.0.0.0/0 Some(fe80::1) 0 254"]);
    }

    #[test]
    fn what_carries_nothing_out_of_the_container_is_left_out() {
        let through = |index| route_message(vec![RouteAttribute::Oif(index)]);
        assert_eq!(shown(&through(2)).len(), 1);
        assert!(shown(&through(1)).is_empty());
        assert!(shown(&through(9)).is_empty());
        let mut message = through(2);
        message.header.kind = RouteType::Unreachable;
        assert!(shown(&message).is_empty());
        let mut message = through(2);
        message.header.table = LOCAL as u8;
        assert!(shown(&message).is_empty());
        let mut message = through(2);
        message.header.flags = RouteFlags::Dead;
        assert!(shown(&message).is_empty());
    }

    fn rule_message() -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header = RuleHeader {
            family: AddressFamily::Inet,
            src_len: 24,
            action: RuleAction::ToTable,
            flags: RuleFlags::Invert,
            ..RuleHeader::default()
        };
        message.attributes = vec![
            RuleAttribute::Priority(77),
            RuleAttribute::Source("10.1.2.0".parse().unwrap()),
            RuleAttribute::Iifname("eth0".to_owned()),
            RuleAttribute::FwMark(0x10),
            RuleAttribute::Table(5000),
            RuleAttribute::IpProtocol(netlink_packet_route::IpProtocol::Tcp),
        ];
        message
    }

    #[test]
    fn a_rule_is_read_with_its_conditions() {
        let rule = rule(&bytes(&rule_message())).unwrap();
        assert_eq!(rule.to_string(), "77: not from 10.1.2.0/24 iif eth0 fwmark 0x10 ipproto lookup 5000");
    }

    /// Checks that no message from the socket can crash the program.
    #[test]
    fn mutated_messages_do_no_harm() {
        let hops = RouteAttribute::MultiPath(vec![hop(2, [10, 1, 0, 1]), hop(3, [10, 2, 0, 1])]);
        let via = RouteAttribute::Via(RouteVia::Inet6("fe80::1".parse().unwrap()));
        let route =
            bytes(&route_message(vec![RouteAttribute::Table(5000), hops, via, RouteAttribute::Oif(2)]));
        let rule_bytes = bytes(&rule_message());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut message = random.choice([&route, &rule_bytes]).unwrap().clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..message.len());
                let any = random.u8(..);
                message[at] = random.choice([0, 1, 0x7f, 0x80, 0xff, any]).unwrap();
            }
            if random.u8(..4) == 0 {
                message.truncate(random.usize(..message.len()));
            }
            routes(&message, &names());
            rule(&message);
        }
    }
}
