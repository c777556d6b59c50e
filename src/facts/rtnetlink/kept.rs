//! Which routes of a long list to keep. The table of a routing daemon or a VPN may have very many routes, and
//! hardly any of them matters here.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::route::Route;

/// The most default routes to keep, and the most other routes. A node that is not a router has fewer.
pub(super) const MOST: usize = 16 * 1024;

/// The routes of one address family.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub routes: Vec<Route>,
    /// The number of default routes among them.
    defaults: usize,
    /// The exits of tables that only a rule selects: the table, the interface, and the source that the route
    /// is limited to.
    ways: HashSet<(u32, String, Option<IpNet>)>,
    /// Whether there were more than [`MOST`] routes to keep.
    pub is_full: bool,
    /// The number of entries that could not be parsed.
    pub strange: usize,
}

impl Kept {
    /// Keeps the route if it can affect a decision.
    pub(super) fn add(&mut self, route: Route, own: &BTreeSet<IpAddr>) {
        if !self.matters(&route, own) {
            return;
        }
        let others = self.routes.len() - self.defaults;
        let count = if route.is_default() { self.defaults } else { others };
        if count >= MOST {
            self.is_full = true;
            return;
        }
        self.defaults += usize::from(route.is_default());
        self.routes.push(route);
    }

    /// Returns whether a route matters. Default routes do, and so do the routes in the tables that the kernel
    /// consults for every packet. For any other table, it matters only which interfaces its routes use, and
    /// how it routes packets to our own networks.
    fn matters(&mut self, route: &Route, own: &BTreeSet<IpAddr>) -> bool {
        if route.is_default() || route.needs_no_rule() {
            return true;
        }
        let destination = &route.destination;
        let range = destination.network()..=destination.broadcast();
        if own.range(range).next().is_some() {
            return true;
        }
        // Link-local destinations do not lead to other nodes.
        let is_link = matches!(destination.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
        !is_link && self.ways.insert((route.table, route.interface.clone(), route.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::route::MAIN;

    fn route(destination: impl AsRef<str>, interface: &str, table: u32) -> Route {
        Route {
            interface: interface.to_owned(),
            destination: destination.as_ref().parse().unwrap(),
            source: None,
            gateway: None,
            metric: 0,
            table,
        }
    }

    /// Returns the routes to 10.0.0.0/32 and as many addresses after it.
    fn many(count: u32, table: u32) -> impl Iterator<Item = Route> {
        (0..count)
            .map(move |n| route(format!("{}/32", std::net::Ipv4Addr::from(0x0a00_0000 + n)), "eth1", table))
    }

    fn kept(routes: impl IntoIterator<Item = Route>, own: &[&str]) -> Kept {
        let own = own.iter().map(|address| address.parse().unwrap()).collect();
        let mut kept = Kept::default();
        for route in routes {
            kept.add(route, &own);
        }
        kept
    }

    fn destinations(kept: &Kept) -> Vec<String> {
        kept.routes.iter().map(|route| format!("{} {}", route.destination, route.interface)).collect()
    }

    #[test]
    fn a_long_table_of_a_rule_hides_nothing_of_the_main_table() {
        let most = u32::try_from(MOST).unwrap();
        let main = [route("0.0.0.0/0", "eth0", MAIN), route("10.1.0.0/24", "eth0", MAIN)];
        let found = kept(many(most + 1000, 100).chain(main), &[]);
        assert_eq!(destinations(&found), ["10.0.0.0/32 eth1", "0.0.0.0/0 eth0", "10.1.0.0/24 eth0"]);
        assert!(!found.is_full);
        // Too many routes in the main table do not hide its default route either, whatever its position.
        let found = kept(many(most + 1, MAIN).chain([route("0.0.0.0/0", "eth0", MAIN)]), &[]);
        assert_eq!(found.routes.len(), MOST + 1);
        assert!(found.is_full && found.routes.last().is_some_and(Route::is_default));
    }

    #[test]
    fn other_tables_keep_ways_out_and_routes_to_own_networks() {
        let mut limited = route("fd00:9::/64", "eth1", 100);
        limited.source = Some("fd00:1::/64".parse().unwrap());
        let routes = [
            route("fe80::/64", "eth1", 100),
            route("fd00:2::/64", "eth1", 100),
            route("fd00:3::/64", "eth1", 100),
            route("fd00:1::/64", "eth1", 100),
            route("fd00:4::/64", "eth2", 100),
            route("fd00:4::/64", "eth2", 101),
            limited,
            route("::/0", "eth1", 100),
        ];
        assert_eq!(
            destinations(&kept(routes, &["fd00:1::7", "10.1.0.5"])),
            [
                "fd00:2::/64 eth1",
                "fd00:1::/64 eth1",
                "fd00:4::/64 eth2",
                "fd00:4::/64 eth2",
                "fd00:9::/64 eth1",
                "::/0 eth1"
            ]
        );
    }
}
