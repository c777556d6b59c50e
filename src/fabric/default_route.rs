//! HCAs with an interface that carries a default route. Most of them are the front-end NICs of a RoCE host,
//! which carry its TCP traffic, but some are rails.

use std::collections::{BTreeSet, HashSet};

use super::interface;
use super::own_interface::Index;
use super::port::{Candidate, SkipReason, Verdict};
use super::step::WhichRoute;
use super::step::{KeptRails, NarrowingStep};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::facts::route::Route;

/// What to do with a port whose interface carries a default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDefaultRoute {
    /// The port is skipped, unless it is a rail.
    Judged,
    /// The platform says that the port is no rail: it is skipped if another port is as fast, even if that leaves fewer
    /// HCAs than GPUs.
    NoRail,
    /// The port is used.
    Used,
    /// The port is skipped, even if there is no other port. The phrase names the source.
    LeftOut(&'static str),
}

/// A used port, by its index among all ports, and the best default route of its interface.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    port: usize,
    route: &'a Route,
}

/// Skips the HCAs with a default route, except those that are rails.
pub(crate) fn decide(
    facts: &Facts,
    interfaces: &Index,
    ports: &mut [Candidate],
    what: OnDefaultRoute,
) -> Vec<NarrowingStep> {
    let routes = interface::default_routes(facts);
    let best = BestRoutes::of(facts, &routes);
    let mut carriers: Vec<Carrier> = ports
        .iter()
        .enumerate()
        .filter(|(_, port)| port.is_used())
        .filter_map(|(index, port)| Some(Carrier { port: index, route: best.carried(port)? }))
        .collect();
    match what {
        OnDefaultRoute::Used => Vec::new(),
        OnDefaultRoute::LeftOut(by) => {
            leave_out(ports, &carriers, which_route(&routes), Some(by));
            Vec::new()
        }
        OnDefaultRoute::Judged | OnDefaultRoute::NoRail => {
            // On InfiniBand, it does not matter that the same port also carries TCP traffic.
            carriers.retain(|carrier| ports[carrier.port].port.link_layer == LinkLayer::Ethernet);
            if what == OnDefaultRoute::NoRail && Split::of(ports, &carriers).rest_is_as_fast() {
                leave_out(ports, &carriers, which_route(&routes), None);
            }
            leave_out_front_end(facts, interfaces, ports, &carriers, &routes);
            steps(facts, interfaces, ports, &carriers, &routes)
        }
    }
}

/// Returns a test for whether the user or a profile wants a port used although its interface carries a
/// default route.
pub(crate) fn wanted(facts: &Facts, what: OnDefaultRoute) -> impl Fn(&Candidate) -> bool {
    let best = match what {
        OnDefaultRoute::Used => Some(BestRoutes::of(facts, &interface::default_routes(facts))),
        OnDefaultRoute::Judged | OnDefaultRoute::NoRail | OnDefaultRoute::LeftOut(_) => None,
    };
    move |port| best.as_ref().is_some_and(|best| best.carried(port).is_some())
}

/// The best default route of each interface that has one, sorted from best to worst.
struct BestRoutes<'a> {
    routes: Vec<&'a Route>,
    /// The interface of each route, in the same order.
    interfaces: Index<'a>,
}

impl<'a> BestRoutes<'a> {
    /// Keeps the first route of each interface. The routes must be sorted from best to worst.
    fn of(facts: &'a Facts, routes: &[&'a Route]) -> BestRoutes<'a> {
        let by_name = facts.net.by_name();
        let mut known = HashSet::new();
        let first = routes.iter().filter(|route| known.insert(route.interface.as_str()));
        let (routes, interfaces) =
            first.filter_map(|route| Some((*route, *by_name.get(route.interface.as_str())?))).unzip();
        BestRoutes { routes, interfaces: Index::of_these(interfaces) }
    }

    /// Returns the first route whose interface is the port's, by the rules of [`is_of`].
    fn carried(&self, port: &Candidate) -> Option<&'a Route> {
        let is_ethernet = port.port.link_layer == LinkLayer::Ethernet;
        let by_gid = self.interfaces.by_name(port.port).filter(|_| is_ethernet);
        let found = by_gid.into_iter().chain(self.interfaces.by_device(port.hca)).min();
        found.map(|position| self.routes[position])
    }
}

/// Returns whether the named interface, in our own network namespace, is this port's.
pub(crate) fn carries(facts: &Facts, hca: &Hca, port: &Port, interface: &str) -> bool {
    facts.net.interface(interface).is_some_and(|interface| is_of(hca, port, interface))
}

/// Returns whether an interface belongs to a port: by a GID that holds one of our addresses, or by the PCI
/// device.
fn is_of(hca: &Hca, port: &Port, interface: &Interface) -> bool {
    let by_gid = port.link_layer == LinkLayer::Ethernet
        && port.gids.slots.iter().any(|gid| {
            gid.netdev.as_ref() == Some(&interface.name)
                && interface.addresses.iter().any(|address| address.addr() == gid.address())
        });
    by_gid || (hca.pci_address.is_some() && hca.pci_address == interface.pci_address)
}

/// Skips front-end HCAs. Tries three groups in this order, and skips a group only if the other HCAs are then
/// enough: HCAs that are slower than the others, and therefore not rails; all HCAs that carry a default
/// route; only those whose route has the lowest metric.
fn leave_out_front_end(
    facts: &Facts,
    interfaces: &Index,
    ports: &mut [Candidate],
    carriers: &[Carrier],
    routes: &[&Route],
) {
    let fastest_other = Split::of(ports, carriers).fastest_rest();
    let best = carriers.iter().map(|carrier| carrier.route.metric).min();
    let slower: Vec<bool> =
        carriers.iter().map(|carrier| ports[carrier.port].port.gigabits() < fastest_other).collect();
    let all = vec![true; carriers.len()];
    let of_best: Vec<bool> = carriers.iter().map(|carrier| Some(carrier.route.metric) == best).collect();
    let any = which_route(routes);
    // An interface that does not belong to an HCA may carry a better route.
    let best = if best == routes.first().map(|route| route.metric) { WhichRoute::Best } else { any };
    for (group, route) in [(slower, any), (all, any), (of_best, best)] {
        let members =
            carriers.iter().zip(group).filter(|(carrier, is_in)| *is_in && ports[carrier.port].is_used());
        let members: Vec<Carrier> = members.map(|(carrier, _)| *carrier).collect();
        if Split::of(ports, &members).can_do_without(facts, interfaces) {
            leave_out(ports, &members, route, None);
        }
    }
}

/// The ports, split into some of the used ports, the rest of the used ports, and all others.
struct Split<'a, 'b> {
    some: Vec<&'a Candidate<'b>>,
    rest: Vec<&'a Candidate<'b>>,
    /// The ports that are not used.
    others: Vec<&'a Candidate<'b>>,
}

impl<'a, 'b> Split<'a, 'b> {
    fn of(ports: &'a [Candidate<'b>], some: &[Carrier]) -> Split<'a, 'b> {
        let (used, others): (Vec<_>, Vec<_>) = ports.iter().enumerate().partition(|(_, port)| port.is_used());
        let some: HashSet<usize> = some.iter().map(|carrier| carrier.port).collect();
        let (some, rest): (Vec<_>, Vec<_>) = used.into_iter().partition(|(index, _)| some.contains(index));
        let ports = |of: Vec<(usize, &'a Candidate<'b>)>| of.into_iter().map(|(_, port)| port).collect();
        Split { some: ports(some), rest: ports(rest), others: ports(others) }
    }

    /// Returns the highest rate of the rest in Gbit/s; 0 without a rest.
    fn fastest_rest(&self) -> f64 {
        self.rest.iter().map(|port| port.port.gigabits()).fold(0.0, f64::max)
    }

    /// Returns whether there is a rest that is at least as fast as `some`.
    fn rest_is_as_fast(&self) -> bool {
        let fastest = self.some.iter().map(|port| port.port.gigabits()).fold(0.0, f64::max);
        !self.rest.is_empty() && self.fastest_rest() >= fastest
    }

    /// Returns the number of HCAs in the rest and the number of GPUs, if there are more GPUs than HCAs. An
    /// HCA whose interface is in another network namespace cannot be a rail, so it does not count. But if
    /// that is true for all of them, they do count: they are the rails, and the container was started without
    /// their network.
    fn shortage(&self, facts: &Facts, interfaces: &Index) -> Option<(usize, usize)> {
        // A rail that has lost its cable is still a rail: no other HCA takes its place.
        let down = self.others.iter().filter(|port| has_lost_its_link(interfaces, port));
        let rails = self.rest.iter().chain(down).copied();
        let (here, elsewhere): (Vec<&Candidate>, Vec<&Candidate>) =
            rails.partition(|port| interfaces.is_here(port));
        let rails = if here.is_empty() { elsewhere } else { here };
        let hcas = rails.iter().map(|port| port.hca.name.as_str()).collect::<BTreeSet<&str>>().len();
        let gpus = usize::try_from(facts.gpu.count?).ok()?;
        (hcas < gpus).then_some((hcas, gpus))
    }

    /// Returns whether the rest is as fast as `some`, and enough for the GPUs. It need not be enough if
    /// `some` are slower than the rest, and therefore not rails.
    fn can_do_without(&self, facts: &Facts, interfaces: &Index) -> bool {
        let is_slower = self.some.iter().all(|port| port.port.gigabits() < self.fastest_rest());
        self.rest_is_as_fast() && (is_slower || self.shortage(facts, interfaces).is_none())
    }
}

/// Returns whether this port is a rail that has lost its link: a RoCE port that is DOWN, and the only port of
/// its HCA. Drivers report Disabled both for a port without a link and for an interface that was never
/// brought up (`mlx5_query_port_roce`). If the interface is in this container, its flags show which of the
/// two it is.
fn has_lost_its_link(interfaces: &Index, port: &Candidate) -> bool {
    let is_down = matches!(&port.verdict, Verdict::LeftOut(SkipReason::PortState(state)) if state == "DOWN");
    let is_meant = port.port.physical_state != "Disabled"
        || interfaces.find(port.hca, port.port).is_some_and(|found| found.has_flag("UP"));
    is_down && is_meant && port.port.link_layer == LinkLayer::Ethernet && port.hca.ports.len() == 1
}

fn leave_out(ports: &mut [Candidate], carriers: &[Carrier], which: WhichRoute, by: Option<&'static str>) {
    for Carrier { port, route } in carriers {
        let interface = route.interface.clone();
        ports[*port].leave_out(SkipReason::CarriesDefaultRoute { interface, route: which, by });
    }
}

/// Returns how messages refer to one of these routes.
fn which_route(routes: &[&Route]) -> WhichRoute {
    match routes.iter().all(|route| route.interface == routes[0].interface) {
        true => WhichRoute::Only,
        false => WhichRoute::OneOfSeveral,
    }
}

/// Returns which ports were skipped and kept, and which were kept as rails.
fn steps(
    facts: &Facts,
    interfaces: &Index,
    ports: &[Candidate],
    carriers: &[Carrier],
    routes: &[&Route],
) -> Vec<NarrowingStep> {
    if carriers.is_empty() {
        return Vec::new();
    }
    let (kept, out): (Vec<Carrier>, Vec<Carrier>) =
        carriers.iter().partition(|carrier| ports[carrier.port].is_used());
    let names = |of: &[Carrier]| of.iter().map(|carrier| ports[carrier.port].name()).collect();
    let mut steps = vec![NarrowingStep::DefaultRoute { left_out: names(&out), kept: names(&kept) }];
    let split = Split::of(ports, &kept);
    if let Some((hcas, gpus)) = split.shortage(facts, interfaces)
        && !kept.is_empty()
        && split.rest_is_as_fast()
    {
        let name = |carrier: &Carrier| (ports[carrier.port].name(), carrier.route.interface.clone());
        let rails = kept.iter().map(name).collect();
        steps.push(NarrowingStep::Kept(KeptRails { rails, route: which_route(routes), hcas, gpus }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Wanted, candidates, choose};
    use crate::facts::rdma::Uverbs;
    use serde_json::json;

    /// Makes a host from the HCAs' rates and the default routes. Each HCA has an interface on the same PCI
    /// device; each default route is the number of an HCA and a metric.
    fn host(rates: &[u32], routes: &[(usize, u32)], gpus: Option<u32>) -> Facts {
        let pci = |n: usize| Some(format!("0000:{n:02x}:00.0"));
        let mut facts = Facts::default();
        facts.gpu.count = gpus;
        for (n, rate) in rates.iter().enumerate() {
            let port = Port {
                number: 1,
                link_layer: LinkLayer::Ethernet,
                state: "ACTIVE".to_owned(),
                rate: format!("{rate} Gb/sec"),
                ..Port::default()
            };
            let name = format!("mlx5_{n}");
            let uverbs = Some(Uverbs::default());
            facts.rdma.push(Hca { name, pci_address: pci(n), uverbs, ports: vec![port], ..Hca::default() });
            let name = format!("eth{n}");
            facts.net.interfaces.push(Interface { name, pci_address: pci(n), ..Interface::default() });
        }
        for (n, metric) in routes {
            let route = json!({"interface": format!("eth{n}"), "destination": "0.0.0.0/0", "metric": metric});
            facts.net.routes.push(serde_json::from_value(route).unwrap());
        }
        facts
    }

    /// Returns the verdicts and the narrowing steps.
    fn decided(facts: &Facts, what: OnDefaultRoute) -> (Vec<Verdict>, Vec<NarrowingStep>) {
        let mut ports = candidates(facts);
        let steps = choose(facts, &mut ports, &Wanted::Rails(what));
        (ports.into_iter().map(|port| port.verdict).collect(), steps)
    }

    fn used(facts: &Facts, what: OnDefaultRoute) -> Vec<usize> {
        let (verdicts, _) = decided(facts, what);
        verdicts
            .iter()
            .enumerate()
            .filter(|(_, verdict)| **verdict == Verdict::Used)
            .map(|(n, _)| n)
            .collect()
    }

    fn kept(facts: &Facts) -> Option<KeptRails> {
        let (_, steps) = decided(facts, OnDefaultRoute::Judged);
        steps.into_iter().find_map(|step| match step {
            NarrowingStep::Kept(kept) => Some(kept),
            _ => None,
        })
    }

    #[test]
    fn the_reason_says_which_of_several_default_routes_it_is() {
        let out = |facts: &Facts, port: usize| match &decided(facts, OnDefaultRoute::Judged).0[port] {
            Verdict::LeftOut(SkipReason::CarriesDefaultRoute { interface, route, by: None }) => {
                Some((interface.clone(), *route))
            }
            _ => None,
        };
        let one = host(&[200; 3], &[(0, 0)], Some(2));
        assert_eq!(out(&one, 0), Some(("eth0".to_owned(), WhichRoute::Only)));
        let two = host(&[200; 4], &[(0, 100), (1, 101)], Some(2));
        assert_eq!(out(&two, 1), Some(("eth1".to_owned(), WhichRoute::OneOfSeveral)));
        let mut best = host(&[200; 5], &[(0, 101), (1, 100)], Some(4));
        assert_eq!(out(&best, 1), Some(("eth1".to_owned(), WhichRoute::Best)));
        // The better route belongs to an interface without an HCA.
        best.net.interfaces.push(Interface { name: "ens1".to_owned(), ..Interface::default() });
        let route = json!({"interface": "ens1", "destination": "0.0.0.0/0", "metric": 50});
        best.net.routes.push(serde_json::from_value(route).unwrap());
        assert_eq!(out(&best, 1), Some(("eth1".to_owned(), WhichRoute::OneOfSeveral)));
        // A rail that carries one of two default routes.
        let rail = kept(&host(&[25, 200, 200, 200, 200], &[(0, 100), (1, 101)], Some(4))).unwrap();
        assert_eq!(rail.rails, [("mlx5_1:1".to_owned(), "eth1".to_owned())]);
        assert_eq!(rail.route, WhichRoute::OneOfSeveral);
    }

    #[test]
    fn front_end_nics_are_left_out_and_rails_are_not() {
        let (two, four) = (Some(2), Some(4));
        for (rates, routes, gpus, wanted) in [
            // One front-end NIC: as fast as the rails, then slower.
            (&[200, 200, 200][..], &[(0, 0)][..], two, &[1, 2][..]),
            (&[100, 200], &[(0, 0)], two, &[1]),
            (&[100, 200], &[(0, 0)], None, &[1]),
            // The NIC is a rail: without it, too few HCAs would remain, or only slower ones.
            (&[200, 200], &[(0, 0)], two, &[0, 1]),
            (&[200, 200], &[(0, 0)], Some(1), &[1]),
            (&[200, 200], &[(0, 0)], None, &[1]),
            (&[200, 25], &[(0, 0)], None, &[0, 1]),
            (&[200], &[(0, 0)], None, &[0]),
            // Two front-end NICs: routes with two metrics, then with the same metric.
            (&[200, 200, 200, 200], &[(0, 100), (1, 101)], two, &[2, 3]),
            (&[200, 200, 200], &[(0, 0), (1, 0)], None, &[2]),
            // One of the NICs is slower, and not a rail; the other is a rail.
            (&[25, 200, 200, 200, 200], &[(0, 100), (1, 101)], four, &[1, 2, 3, 4]),
            // Only one of the two can be skipped: the one that the kernel prefers, in either order.
            (&[200; 5], &[(0, 101), (1, 100)], four, &[0, 2, 3, 4]),
            // Both routes are equal, and without both HCAs there would be too few.
            (&[200; 5], &[(0, 0), (1, 0)], four, &[0, 1, 2, 3, 4]),
            // Every HCA has a default route.
            (&[200; 3], &[(0, 100), (1, 101), (2, 102)], two, &[1, 2]),
            (&[200; 3], &[(0, 100), (1, 101), (2, 102)], None, &[1, 2]),
            (&[200; 2], &[(0, 0), (1, 0)], None, &[0, 1]),
            (&[200; 2], &[], two, &[0, 1]),
        ] {
            let found = used(&host(rates, routes, gpus), OnDefaultRoute::Judged);
            assert_eq!(found, wanted, "{rates:?} {routes:?} {gpus:?}");
        }
    }

    #[test]
    fn a_used_rail_that_carries_the_default_route_is_reported() {
        let kept = |rates: &[u32], routes: &[(usize, u32)], gpus| {
            let kept = kept(&host(rates, routes, gpus))?;
            let ports: Vec<String> = kept.rails.into_iter().map(|(port, _)| port).collect();
            Some((ports.join(" "), kept.hcas, kept.gpus))
        };
        assert_eq!(kept(&[200; 2], &[(0, 0)], Some(2)), Some(("mlx5_0:1".to_owned(), 1, 2)));
        assert_eq!(kept(&[200; 5], &[(0, 0), (1, 0)], Some(4)), Some(("mlx5_0:1 mlx5_1:1".to_owned(), 3, 4)));
        // There is no other HCA, or none that is as fast.
        assert_eq!(kept(&[200], &[(0, 0)], Some(8)), None);
        assert_eq!(kept(&[200, 25], &[(0, 0)], Some(8)), None);
        assert_eq!(kept(&[200; 3], &[(0, 0)], Some(2)), None);
    }

    #[test]
    fn the_configuration_overrides_the_default_route_rule() {
        let three = host(&[100, 200, 200], &[(0, 0)], Some(2));
        assert_eq!(used(&three, OnDefaultRoute::Used), [0, 1, 2]);
        let out = OnDefaultRoute::LeftOut("the configuration");
        assert_eq!(used(&host(&[200, 200], &[(0, 0)], Some(2)), out), [1]);
        let [verdict] = decided(&host(&[200], &[(0, 0)], Some(2)), out).0.try_into().unwrap();
        let (interface, route) = ("eth0".to_owned(), WhichRoute::Only);
        let reason = SkipReason::CarriesDefaultRoute { interface, route, by: Some("the configuration") };
        assert_eq!(verdict, Verdict::LeftOut(reason), "even the only one");
    }

    #[test]
    fn a_port_that_the_platform_calls_no_rail_takes_no_rails_place() {
        let eight = Some(8);
        for (rates, wanted) in [
            (&[200; 8][..], &[1, 2, 3, 4, 5, 6, 7][..]),
            (&[200, 200], &[1]),
            // Without it, there would be no HCA, or only slower ones.
            (&[200], &[0]),
            (&[200, 25], &[0, 1]),
        ] {
            assert_eq!(used(&host(rates, &[(0, 0)], eight), OnDefaultRoute::NoRail), wanted, "{rates:?}");
        }
        assert_eq!(used(&host(&[200; 8], &[(0, 0)], eight), OnDefaultRoute::Judged).len(), 8);
    }

    #[test]
    fn rails_without_interfaces_count_but_hcas_of_other_containers_do_not() {
        let mut facts = host(&[200; 4], &[(0, 0)], Some(2));
        // Two HCAs belong to other containers; the third alone is not enough.
        facts.net.interfaces.truncate(2);
        assert!(kept(&facts).is_some_and(|kept| kept.rails[0].0 == "mlx5_0:1"));
        // No port has an interface here: that needs a fix, and is not a reason to use another port.
        facts.net.interfaces.truncate(1);
        assert_eq!(used(&facts, OnDefaultRoute::Judged), [1, 2, 3]);
    }

    #[test]
    fn ipv6_default_routes_count_if_there_is_no_ipv4_one() {
        let mut facts = host(&[200; 3], &[(0, 0), (1, 0), (2, 0)], None);
        for route in &mut facts.net.routes[1..] {
            route.destination = "::/0".parse().unwrap();
        }
        assert_eq!(used(&facts, OnDefaultRoute::Judged), [1, 2]);
        facts.net.routes.remove(0);
        facts.net.routes.pop();
        assert_eq!(used(&facts, OnDefaultRoute::Judged), [0, 2]);
    }
}
