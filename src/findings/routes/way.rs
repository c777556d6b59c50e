//! The route that the kernel chooses for an HCA's packets.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{is_link_local, is_of_one};
use crate::facts::net::Net;
use crate::facts::route::Route;
use crate::facts::rule::{Family, RoutingRule, RuleEffect};

/// Where the kernel sends packets from a GID. It resolves the other end's address with the GID's address as
/// the source, and with the GID's interface (`addr_resolve` in `drivers/infiniband/core/addr.c`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A route leads out through the interface.
    Out,
    /// There is no route, or only one to the other address of a network of two (a /31, RFC 3021), and IPv4 treats
    /// every address as being on the interface's own link (`ip_route_output_key_hash_rcu` in `net/ipv4/route.c`).
    OnLink,
    /// There is no route through the interface, and IPv6, for which the interface is only a preference, uses
    /// a route through this other interface (`rt6_score_route` in `net/ipv6/route.c`).
    Elsewhere(String),
    /// The kernel reports "Network is unreachable".
    Nowhere,
}

/// Returns how packets from an interface's address leave for other nodes, without knowing the nodes'
/// addresses; `None` if the routing rules are unknown.
pub fn way(net: &Net, address: IpAddr, interface: &str) -> Option<Way> {
    let tables = tables(net.rules.as_ref()?, address, interface);
    let is_own = |destination: &IpNet| {
        is_of_one(destination) && net.own_addresses().any(|own| own == destination.addr())
    };
    let is_of_pair = |route: &Route| {
        let destination = &route.destination;
        address.is_ipv4()
            && route.gateway.is_none()
            && destination.prefix_len() + 1 == destination.max_prefix_len()
            && destination.contains(&address)
    };
    let usable = |route: &&Route| {
        let destination = &route.destination;
        destination.addr().is_ipv4() == address.is_ipv4()
            && tables.iter().any(|table| table.is_none_or(|table| table == route.table))
            && route.source.is_none_or(|source| source.contains(&address))
            && !is_link_local(destination)
            && !is_own(destination)
            && !is_of_pair(route)
    };
    let mut routes = net.routes.iter().filter(usable);
    if routes.clone().any(|route| route.interface == interface) {
        return Some(Way::Out);
    }
    if address.is_ipv4() {
        return Some(Way::OnLink);
    }
    // The other nodes are in the same network as this address, or the route is a default route.
    Some(match routes.find(|route| route.destination.contains(&address)) {
        Some(route) => Way::Elsewhere(route.interface.clone()),
        None => Way::Nowhere,
    })
}

/// Returns the tables that the kernel may consult; `None` in the list stands for any table.
fn tables(rules: &[RoutingRule], address: IpAddr, interface: &str) -> Vec<Option<u32>> {
    let of_family = || rules.iter().filter(|rule| rule.family == Family::of(&address));
    // It is unknown here which rules a goto skips.
    let jumps = of_family().any(|rule| rule.action == RuleEffect::Goto);
    let mut tables = Vec::new();
    for rule in of_family() {
        match fits(rule, address, interface) {
            Fit::No => {}
            Fit::Yes if rule.action.ends() && !jumps => break,
            Fit::Yes | Fit::Maybe if rule.action == RuleEffect::Lookup => tables.push(rule.table),
            Fit::Yes | Fit::Maybe => {}
        }
    }
    tables
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    No,
    Maybe,
    Yes,
}

/// Returns whether a rule matches packets that this host sends from this address of this interface, without a
/// mark.
fn fits(rule: &RoutingRule, address: IpAddr, interface: &str) -> Fit {
    let may = rule.from.is_none_or(|from| from.contains(&address))
        && rule.iif.as_ref().is_none_or(|iif| iif == "lo")
        && rule.oif.as_ref().is_none_or(|oif| oif == interface)
        && rule.fwmark.is_none_or(|mark| mark == 0);
    let is_known = rule.to.is_none() && rule.others.is_empty();
    match (may, is_known) {
        (true, false) => Fit::Maybe,
        (may, _) if may != rule.not => Fit::Yes,
        _ => Fit::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::net::Interface;

    fn route(interface: &str, destination: &str, table: u32) -> Route {
        Route {
            interface: interface.to_owned(),
            destination: destination.parse().unwrap(),
            source: None,
            gateway: None,
            metric: 0,
            table,
        }
    }

    fn rule(table: u32) -> RoutingRule {
        RoutingRule { family: Family::Inet6, table: Some(table), ..RoutingRule::default() }
    }

    fn from(address: &str, table: u32) -> RoutingRule {
        RoutingRule { from: Some(address.parse().unwrap()), ..rule(table) }
    }

    /// Returns where packets from fd00:33::9 on eth1 go.
    fn found(routes: &[Route], rules: Vec<RoutingRule>) -> Way {
        let address: IpNet = "fd00:33::9/128".parse().unwrap();
        let interface = Interface { name: "eth1".into(), addresses: vec![address], ..Interface::default() };
        let own = route("eth1", "fd00:33::9/128", 254);
        let link = route("eth1", "fe80::/64", 254);
        let routes = routes.iter().cloned().chain([own, link]).collect();
        let net = Net { interfaces: vec![interface], routes, rules: Some(rules) };
        way(&net, address.addr(), "eth1").unwrap()
    }

    #[test]
    fn only_tables_that_a_rule_chooses_count() {
        let table = [route("eth1", "::/0", 100)];
        assert_eq!(found(&table, vec![rule(254)]), Way::Nowhere);
        assert_eq!(found(&table, vec![from("fd00:33::9/128", 100), rule(254)]), Way::Out);
        assert_eq!(found(&table, vec![from("fd00:33::/32", 100), rule(254)]), Way::Out);
        assert_eq!(found(&table, vec![from("fd00:33::8/128", 100), rule(254)]), Way::Nowhere);
        let with = |change: fn(&mut RoutingRule)| {
            let mut rule = rule(100);
            change(&mut rule);
            found(&table, vec![rule])
        };
        assert_eq!(with(|rule| rule.oif = Some("eth1".into())), Way::Out);
        assert_eq!(with(|rule| rule.oif = Some("eth0".into())), Way::Nowhere);
        assert_eq!(with(|rule| rule.iif = Some("lo".into())), Way::Out);
        assert_eq!(with(|rule| rule.iif = Some("eth1".into())), Way::Nowhere);
        assert_eq!(with(|rule| rule.fwmark = Some(16)), Way::Nowhere);
        assert_eq!(with(|rule| (rule.fwmark, rule.not) = (Some(16), true)), Way::Out);
        assert_eq!(with(|rule| rule.family = Family::Inet), Way::Nowhere);
        // A finding requires certainty.
        assert_eq!(with(|rule| rule.others = vec!["ipproto".into()]), Way::Out);
        assert_eq!(with(|rule| (rule.others, rule.not) = (vec!["ipproto".into()], true)), Way::Out);
        assert_eq!(with(|rule| rule.to = Some("fd00::/16".parse().unwrap())), Way::Out);
        assert_eq!(with(|rule| rule.table = None), Way::Out);
    }

    #[test]
    fn a_rule_that_ends_the_search_ends_it() {
        let table = [route("eth1", "::/0", 254)];
        let ends = RoutingRule { action: RuleEffect::Unreachable, table: None, ..from("fd00:33::9/128", 0) };
        assert_eq!(found(&table, vec![ends.clone(), rule(254)]), Way::Nowhere);
        assert_eq!(found(&table, vec![rule(254), ends.clone()]), Way::Out);
        let jump = RoutingRule { action: RuleEffect::Goto, table: None, ..rule(0) };
        assert_eq!(found(&table, vec![jump, ends, rule(254)]), Way::Out);
    }

    #[test]
    fn a_route_out_of_another_interface_counts_if_it_matches() {
        let main = |routes: &[Route]| found(routes, vec![rule(254)]);
        assert_eq!(main(&[route("eth0", "::/0", 254)]), Way::Elsewhere("eth0".into()));
        assert_eq!(main(&[route("eth0", "fd00:33::/32", 254)]), Way::Elsewhere("eth0".into()));
        assert_eq!(main(&[route("eth0", "fd00:44::/32", 254)]), Way::Nowhere);
        assert_eq!(main(&[route("eth0", "0.0.0.0/0", 254)]), Way::Nowhere);
        assert_eq!(main(&[route("eth0", "::/0", 254), route("eth1", "fd00:44::/64", 254)]), Way::Out);
        let of_others = Route { source: Some("fd00:44::/64".parse().unwrap()), ..route("eth1", "::/0", 254) };
        assert_eq!(main(&[of_others]), Way::Nowhere);
    }

    #[test]
    fn a_network_of_two_addresses_leads_to_no_further_node() {
        let found = |routes: &[Route]| {
            let rules = vec![RoutingRule { family: Family::Inet, ..rule(254) }];
            let net = Net { routes: routes.to_vec(), rules: Some(rules), ..Net::default() };
            way(&net, "172.16.1.9".parse().unwrap(), "eth1").unwrap()
        };
        let pair = || route("eth1", "172.16.1.8/31", 254);
        assert_eq!(found(&[pair()]), Way::OnLink);
        assert_eq!(found(&[pair(), route("eth1", "172.16.0.0/16", 254)]), Way::Out);
        assert_eq!(found(&[route("eth1", "172.16.1.8/30", 254)]), Way::Out);
        let behind = Route { gateway: Some("172.16.9.1".parse().unwrap()), ..pair() };
        assert_eq!(found(&[behind]), Way::Out);
    }

    #[test]
    fn ipv4_is_on_link_without_routes_and_unknown_without_rules() {
        let net = Net { rules: Some(Vec::new()), ..Net::default() };
        assert_eq!(way(&net, "172.16.1.9".parse().unwrap(), "eth1"), Some(Way::OnLink));
        assert_eq!(way(&Net::default(), "172.16.1.9".parse().unwrap(), "eth1"), None);
    }
}
