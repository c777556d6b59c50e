//! HCAs with an interface that carries a default route. Most of them are the front-end NICs of
//! a RoCE host, for its TCP traffic; some are rails.

use std::collections::BTreeSet;

use super::devices::{Candidate, Reason, Verdict};
use super::interface::{self, BEST_ROUTE};
use super::own_interface::is_here;
use super::remark::Remark;
use super::{Context, DefaultRouteOption, Notes, own_interface};
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::facts::route::Route;
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::profiles::DefaultRouteHca;

/// A port in use, by its index among all ports, and the best default route of its interface.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    port: usize,
    route: &'a Route,
}

/// Leaves these HCAs out, except those that are rails.
pub fn decide(context: &Context, ports: &mut [Candidate], notes: &mut Notes) {
    let facts = context.facts;
    let routes = interface::default_routes(facts);
    let mut carriers: Vec<Carrier> = ports
        .iter()
        .enumerate()
        .filter(|(_, port)| port.is_used())
        .filter_map(|(index, port)| Some(Carrier { port: index, route: carried(facts, &routes, port)? }))
        .collect();
    match option(context) {
        DefaultRouteOption::Use => {}
        DefaultRouteOption::Skip => leave_out(ports, &carriers, which_route(&routes), true),
        DefaultRouteOption::Auto => {
            // On InfiniBand, the TCP traffic of the same port does not matter.
            carriers.retain(|carrier| ports[carrier.port].port.link_layer == LinkLayer::Ethernet);
            leave_out_front_end(facts, ports, &carriers, &routes);
            tell(facts, ports, &carriers, &routes, notes);
        }
    }
}

/// Whether somebody has said that a port is to be used although its interface carries a
/// default route.
pub fn is_wanted(context: &Context, port: &Candidate) -> bool {
    let routes = interface::default_routes(context.facts);
    option(context) == DefaultRouteOption::Use && carried(context.facts, &routes, port).is_some()
}

/// The configuration's word, else the profile's.
fn option(context: &Context) -> DefaultRouteOption {
    match (context.options.default_route_hca, context.profile.default_route_hca) {
        (DefaultRouteOption::Auto, Some(DefaultRouteHca::Use)) => DefaultRouteOption::Use,
        (DefaultRouteOption::Auto, Some(DefaultRouteHca::Avoid) | None) => DefaultRouteOption::Auto,
        (option, _) => option,
    }
}

/// The first of these routes, which are sorted with the best one first, that a port's interface
/// carries.
fn carried<'a>(facts: &Facts, routes: &[&'a Route], port: &Candidate) -> Option<&'a Route> {
    routes.iter().find(|route| carries(facts, port.hca, port.port, &route.interface)).copied()
}

/// Whether a port's interface is the one named, in our own network namespace: by the GID
/// of one of our addresses, or by the PCI device.
pub fn carries(facts: &Facts, hca: &Hca, port: &Port, interface: &str) -> bool {
    let Some(interface) = facts.net.interface(interface) else { return false };
    let by_gid = port.link_layer == LinkLayer::Ethernet
        && port.gids.slots.iter().any(|gid| {
            gid.netdev.as_ref() == Some(&interface.name)
                && interface.addresses.iter().any(|address| address.addr() == gid.address())
        });
    by_gid || (hca.pci_address.is_some() && hca.pci_address == interface.pci_address)
}

/// Leaves out, in this order, as far as the other HCAs are then enough: those that are slower
/// than the others, and so not rails; all that carry a default route; and only those that carry
/// the route of the lowest metric.
fn leave_out_front_end(facts: &Facts, ports: &mut [Candidate], carriers: &[Carrier], routes: &[&Route]) {
    let fastest_other = Split::of(ports, carriers).fastest_rest();
    let best = carriers.iter().map(|carrier| carrier.route.metric).min();
    let slower: Vec<bool> =
        carriers.iter().map(|carrier| ports[carrier.port].port.gigabits() < fastest_other).collect();
    let all = vec![true; carriers.len()];
    let of_best: Vec<bool> = carriers.iter().map(|carrier| Some(carrier.route.metric) == best).collect();
    let any = which_route(routes);
    // An interface that is no HCA's may carry a better one.
    let best = if best == routes.first().map(|route| route.metric) { BEST_ROUTE } else { any };
    for (group, route) in [(slower, any), (all, any), (of_best, best)] {
        let members =
            carriers.iter().zip(group).filter(|(carrier, is_in)| *is_in && ports[carrier.port].is_used());
        let members: Vec<Carrier> = members.map(|(carrier, _)| *carrier).collect();
        if Split::of(ports, &members).can_do_without(facts) {
            leave_out(ports, &members, route, false);
        }
    }
}

/// The ports, split into some of those in use, the rest of those in use, and all others.
struct Split<'a, 'b> {
    some: Vec<&'a Candidate<'b>>,
    rest: Vec<&'a Candidate<'b>>,
    /// The ports that are not in use.
    others: Vec<&'a Candidate<'b>>,
}

impl<'a, 'b> Split<'a, 'b> {
    fn of(ports: &'a [Candidate<'b>], some: &[Carrier]) -> Split<'a, 'b> {
        let (used, others): (Vec<_>, Vec<_>) = ports.iter().enumerate().partition(|(_, port)| port.is_used());
        let (some, rest): (Vec<_>, Vec<_>) =
            used.into_iter().partition(|(index, _)| some.iter().any(|carrier| carrier.port == *index));
        let ports = |of: Vec<(usize, &'a Candidate<'b>)>| of.into_iter().map(|(_, port)| port).collect();
        Split { some: ports(some), rest: ports(rest), others: ports(others) }
    }

    /// Gbit/s; 0 without a rest.
    fn fastest_rest(&self) -> f64 {
        self.rest.iter().map(|port| port.port.gigabits()).fold(0.0, f64::max)
    }

    /// Whether there is a rest, and it is as fast as these.
    fn rest_is_as_fast(&self) -> bool {
        let fastest = self.some.iter().map(|port| port.port.gigabits()).fold(0.0, f64::max);
        !self.rest.is_empty() && self.fastest_rest() >= fastest
    }

    /// The number of HCAs of the rest and the number of GPUs, where there are more GPUs. An HCA
    /// with its interface in another network namespace cannot be a rail. But where that is so
    /// for all of them, they count: they are the rails, and somebody forgot to give the
    /// container their network.
    fn shortage(&self, facts: &Facts) -> Option<(usize, usize)> {
        // A rail that has lost its cable is a rail all the same, and no other HCA takes its place.
        let down = self.others.iter().filter(|port| has_lost_its_link(facts, port));
        let rails = self.rest.iter().chain(down).copied();
        let (here, elsewhere): (Vec<&Candidate>, Vec<&Candidate>) =
            rails.partition(|port| is_here(facts, port));
        let rails = if here.is_empty() { elsewhere } else { here };
        let hcas = rails.iter().map(|port| port.hca.name.as_str()).collect::<BTreeSet<&str>>().len();
        let gpus = usize::try_from(facts.gpu.count?).ok()?;
        (hcas < gpus).then_some((hcas, gpus))
    }

    /// Whether the rest is as fast, and enough for the GPUs. It need not be enough where these
    /// are slower than the rest, and so not rails.
    fn can_do_without(&self, facts: &Facts) -> bool {
        let is_slower = self.some.iter().all(|port| port.port.gigabits() < self.fastest_rest());
        self.rest_is_as_fast() && (is_slower || self.shortage(facts).is_none())
    }
}

/// Whether a RoCE port that is DOWN, the only one of its HCA, is a rail that has lost its link.
/// Drivers report Disabled both without a link and for an interface that was never brought up
/// (`mlx5_query_port_roce`); the flags of the interface tell which, where it is in this
/// container.
fn has_lost_its_link(facts: &Facts, port: &Candidate) -> bool {
    let is_down = matches!(&port.verdict, Verdict::LeftOut(Reason::PortState(state)) if state == "DOWN");
    let is_meant = port.port.physical_state != "Disabled"
        || own_interface::of(facts, port.hca, port.port).is_some_and(|found| found.has_flag("UP"));
    is_down && is_meant && port.port.link_layer == LinkLayer::Ethernet && port.hca.ports.len() == 1
}

fn leave_out(ports: &mut [Candidate], carriers: &[Carrier], which: &'static str, by_user: bool) {
    for Carrier { port, route } in carriers {
        let interface = route.interface.clone();
        ports[*port].leave_out(Reason::CarriesDefaultRoute { interface, route: which, by_user });
    }
}

/// What a message calls one of these routes.
fn which_route(routes: &[&Route]) -> &'static str {
    match routes.iter().all(|route| route.interface == routes[0].interface) {
        true => "the default route",
        false => "a default route",
    }
}

/// Notes for `plan --why` what was left out and what was kept, and remarks on those that are
/// kept as rails.
fn tell(facts: &Facts, ports: &[Candidate], carriers: &[Carrier], routes: &[&Route], notes: &mut Notes) {
    if carriers.is_empty() {
        return;
    }
    let (kept, out): (Vec<Carrier>, Vec<Carrier>) =
        carriers.iter().partition(|carrier| ports[carrier.port].is_used());
    let shown = |(carriers, what): (&[Carrier], &str)| {
        let names: Vec<String> = carriers.iter().map(|carrier| ports[carrier.port].name()).collect();
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let result: Vec<String> =
        [(&out[..], "leaves out"), (&kept[..], "keeps")].into_iter().filter_map(shown).collect();
    notes.tried(
        VARIABLE,
        "without the HCAs that carry a default route, where the others are enough",
        result.join(", "),
    );
    let split = Split::of(ports, &kept);
    if let Some((hcas, gpus)) = split.shortage(facts)
        && !kept.is_empty()
        && split.rest_is_as_fast()
    {
        let name = |carrier: &Carrier| (ports[carrier.port].name(), carrier.route.interface.clone());
        let kept = kept.iter().map(name).collect();
        notes.remark(Remark::DefaultRouteRails { kept, route: which_route(routes), hcas, gpus });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::net::Interface;
    use crate::facts::rdma::Uverbs;
    use crate::finding::Id;
    use crate::findings;
    use crate::plan::{Options, Plan, decide as decide_all};
    use crate::profiles::Profiles;
    use serde_json::json;

    /// HCAs by their rates, each with an interface of the same PCI device, and default
    /// routes by the numbers of the HCAs, with their metrics.
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

    fn decided(facts: &Facts, option: DefaultRouteOption) -> (Vec<usize>, Plan) {
        let options = Options { default_route_hca: option, ..Options::default() };
        let plan = findings::add(decide_all(facts, &Profiles::load(None).unwrap(), &options));
        let used = plan.ports.iter().enumerate().filter(|(_, port)| port.used).map(|(n, _)| n).collect();
        (used, plan)
    }

    #[test]
    fn of_several_default_routes_the_reason_says_which_one_it_is() {
        let reason = |facts: &Facts, port: usize| {
            let (_, plan) = decided(facts, DefaultRouteOption::Auto);
            plan.ports[port].reason.clone().unwrap_or_default()
        };
        let one = host(&[200; 3], &[(0, 0)], Some(2));
        assert_eq!(reason(&one, 0), "its interface eth0 carries the default route");
        let two = host(&[200; 4], &[(0, 100), (1, 101)], Some(2));
        assert_eq!(reason(&two, 1), "its interface eth1 carries a default route");
        let mut best = host(&[200; 5], &[(0, 101), (1, 100)], Some(4));
        assert_eq!(reason(&best, 1), "its interface eth1 carries the default route of the lowest metric");
        // One that is no HCA's is better.
        best.net.interfaces.push(Interface { name: "ens1".to_owned(), ..Interface::default() });
        let route = json!({"interface": "ens1", "destination": "0.0.0.0/0", "metric": 50});
        best.net.routes.push(serde_json::from_value(route).unwrap());
        assert_eq!(reason(&best, 1), "its interface eth1 carries a default route");
        // A rail that carries one of two.
        let rail = host(&[25, 200, 200, 200, 200], &[(0, 100), (1, 101)], Some(4));
        let (_, plan) = decided(&rail, DefaultRouteOption::Auto);
        let note = plan.findings.iter().find(|finding| finding.id == Id::DefaultRouteRail).unwrap();
        assert!(note.message.starts_with("mlx5_1:1 (eth1) carries a default route, and"), "{}", note.message);
    }

    #[test]
    fn front_end_nics_are_left_out_and_rails_are_not() {
        let (two, four) = (Some(2), Some(4));
        for (rates, routes, gpus, used) in [
            // One front-end NIC, as fast as the rails, and slower.
            (&[200, 200, 200][..], &[(0, 0)][..], two, &[1, 2][..]),
            (&[100, 200], &[(0, 0)], two, &[1]),
            (&[100, 200], &[(0, 0)], None, &[1]),
            // A rail: without it there are too few, or only slower ones.
            (&[200, 200], &[(0, 0)], two, &[0, 1]),
            (&[200, 200], &[(0, 0)], Some(1), &[1]),
            (&[200, 200], &[(0, 0)], None, &[1]),
            (&[200, 25], &[(0, 0)], None, &[0, 1]),
            (&[200], &[(0, 0)], None, &[0]),
            // Two front-end NICs: of two metrics, and of one route.
            (&[200, 200, 200, 200], &[(0, 100), (1, 101)], two, &[2, 3]),
            (&[200, 200, 200], &[(0, 0), (1, 0)], None, &[2]),
            // One of them is slower, and no rail; the other is one.
            (&[25, 200, 200, 200, 200], &[(0, 100), (1, 101)], four, &[1, 2, 3, 4]),
            // Both cannot go, so the one that the kernel prefers does, whichever comes first.
            (&[200; 5], &[(0, 101), (1, 100)], four, &[0, 2, 3, 4]),
            // Both are equal, and too many to go.
            (&[200; 5], &[(0, 0), (1, 0)], four, &[0, 1, 2, 3, 4]),
            // Every one of them has a default route.
            (&[200; 3], &[(0, 100), (1, 101), (2, 102)], two, &[1, 2]),
            (&[200; 3], &[(0, 100), (1, 101), (2, 102)], None, &[1, 2]),
            (&[200; 2], &[(0, 0), (1, 0)], None, &[0, 1]),
            (&[200; 2], &[], two, &[0, 1]),
        ] {
            let found = decided(&host(rates, routes, gpus), DefaultRouteOption::Auto).0;
            assert_eq!(found, used, "{rates:?} {routes:?} {gpus:?}");
        }
    }

    #[test]
    fn a_rail_that_carries_the_default_route_is_a_note() {
        let notes = |rates: &[u32], routes: &[(usize, u32)], gpus| {
            let plan = decided(&host(rates, routes, gpus), DefaultRouteOption::Auto).1;
            let findings = plan.findings.into_iter().filter(|finding| finding.id == Id::DefaultRouteRail);
            findings.map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert_eq!(
            notes(&[200; 2], &[(0, 0)], Some(2)),
            ["mlx5_0:1 (eth0) carries the default route, and NCCL_IB_HCA takes it as a rail all the same: \
                 it is as fast as the others, and without it there would be 1 HCA for 2 GPUs."]
        );
        let [two] = notes(&[200; 5], &[(0, 0), (1, 0)], Some(4)).try_into().unwrap();
        assert!(two.starts_with("mlx5_0:1 (eth0), mlx5_1:1 (eth1) carry default routes"), "{two}");
        assert!(two.ends_with("without them there would be 3 HCAs for 4 GPUs."), "{two}");
        // Nothing else is there, or nothing that is as fast.
        assert!(notes(&[200], &[(0, 0)], Some(8)).is_empty());
        assert!(notes(&[200, 25], &[(0, 0)], Some(8)).is_empty());
        assert!(notes(&[200; 3], &[(0, 0)], Some(2)).is_empty());
    }

    #[test]
    fn the_configuration_decides_otherwise() {
        let (use_it, skip) = (DefaultRouteOption::Use, DefaultRouteOption::Skip);
        let three = host(&[100, 200, 200], &[(0, 0)], Some(2));
        assert_eq!(decided(&three, use_it).0, [0, 1, 2]);
        let two = host(&[200, 200], &[(0, 0)], Some(2));
        assert_eq!(decided(&two, skip).0, [1]);
        let (used, plan) = decided(&host(&[200], &[(0, 0)], Some(2)), skip);
        assert_eq!((used, plan.filled().next()), (vec![], Some(("NCCL_IB_DISABLE", "1"))));
        // A profile's own word counts only where the configuration has none.
        let mut erdma = host(&[100, 100, 100], &[(0, 0)], Some(2));
        erdma.rdma.iter_mut().for_each(|hca| hca.driver = Some("erdma".to_owned()));
        assert_eq!(decided(&erdma, DefaultRouteOption::Auto).0, [0, 1, 2]);
        assert_eq!(decided(&erdma, skip).0, [1, 2]);
    }

    #[test]
    fn rails_without_their_network_are_rails_and_hcas_of_others_are_none() {
        let (auto, two) = (DefaultRouteOption::Auto, Some(2));
        let mut facts = host(&[200; 4], &[(0, 0)], two);
        // Two HCAs are of other containers: with the third alone there are too few.
        facts.net.interfaces.truncate(2);
        let (_, plan) = decided(&facts, auto);
        assert!(plan.ports[0].used && plan.findings.iter().any(|finding| finding.id == Id::DefaultRouteRail));
        // None has an interface here: that has to be mended, and is no reason to use another.
        facts.net.interfaces.truncate(1);
        assert_eq!(decided(&facts, auto).0, [1, 2, 3]);
    }

    #[test]
    fn routes_of_ipv6_count_where_ipv4_has_none() {
        let mut facts = host(&[200; 3], &[(0, 0), (1, 0), (2, 0)], None);
        for route in &mut facts.net.routes[1..] {
            route.destination = "::/0".parse().unwrap();
        }
        assert_eq!(decided(&facts, DefaultRouteOption::Auto).0, [1, 2]);
        facts.net.routes.remove(0);
        facts.net.routes.pop();
        assert_eq!(decided(&facts, DefaultRouteOption::Auto).0, [0, 2]);
    }
}
