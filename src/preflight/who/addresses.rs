//! The addresses of all nodes' rails, and which of them explain a failure. If two nodes have the same
//! address on a rail, the other nodes reach either of them by chance over TCP, and never both of them
//! over verbs. So a failure does not show that one of the two is faulty. If a node has a loopback address
//! on a rail, the other nodes reach themselves there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::facts::identity::{Identity, namespace};
use crate::libraries::nccl::interfaces::Endpoint;
use crate::preflight::judge::evidence::Member;
use crate::preflight::who::names;
use crate::preflight::who::own::LocalRails;
use crate::verbs::port_test::PortTest;

/// In bytes: the longest machine or network namespace name that is kept.
const LONGEST: usize = 64;

/// The addresses of a node's rails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// The boot ID of the machine, and the network namespace. They show which nodes share a machine or
    /// a namespace; empty if the kernel hides them.
    machine: String,
    network: String,
    /// The GID or the address of each rail, with its subnet if that is known.
    rails: Vec<Option<IpNet>>,
}

impl Addresses {
    /// Returns the addresses of this node.
    pub fn of(rails: &LocalRails, facts: &Facts) -> Addresses {
        let rails = match rails {
            LocalRails::Verbs(ports) => ports.iter().map(|(port, _)| of_port(port, facts)).collect(),
            LocalRails::Sockets(ends) => {
                ends.iter().map(|Endpoint { address, .. }| Some(in_subnet(*address, facts))).collect()
            }
        };
        Addresses { machine: Identity::own().boot.clone(), network: namespace("net"), rails }
    }

    /// Returns the addresses that another node reports, cut to the allowed size.
    pub fn bounded(mut self, rails: usize) -> Addresses {
        self.rails.truncate(rails);
        for text in [&mut self.machine, &mut self.network] {
            if text.len() > LONGEST {
                text.clear();
            }
        }
        self
    }

    pub fn rail(&self, rail: usize) -> Option<IpNet> {
        self.rails.get(rail).copied().flatten()
    }

    #[cfg(test)]
    pub fn on(machine: &str, rails: Vec<Option<IpNet>>) -> Addresses {
        Addresses { machine: machine.to_owned(), network: "1".to_owned(), rails }
    }

    /// Returns the addresses of all rails, as text; `None` if an address is not known.
    pub fn shown(&self) -> impl Iterator<Item = Option<String>> {
        self.rails.iter().map(|address| address.map(|address| address.to_string()))
    }
}

fn of_port(wanted: &PortTest, facts: &Facts) -> Option<IpNet> {
    let hca = facts.rdma.iter().find(|hca| hca.name == wanted.device)?;
    let port = hca.ports.iter().find(|port| port.number == u32::from(wanted.port))?;
    let index = u32::from(wanted.gid_index.unwrap_or_default());
    let gid = port.gids.slots.iter().find(|gid| gid.index == index)?;
    // A function without a GUID has only the half of a GID that comes from the subnet.
    let is_whole = gid.gid.segments()[4..] != Ipv6Addr::UNSPECIFIED.segments()[4..];
    is_whole.then(|| in_subnet(gid.address(), facts))
}

/// Returns the address with the subnet of its interface, or alone if no interface has it.
fn in_subnet(address: IpAddr, facts: &Facts) -> IpNet {
    let mut all = facts.net.interfaces.iter().flat_map(|interface| &interface.addresses);
    all.find(|net| net.addr() == address).copied().unwrap_or_else(|| IpNet::from(address))
}

/// Nodes that have the same addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    pub nodes: Vec<u32>,
    /// The rails, and the address on each of them.
    pub rails: Vec<usize>,
    pub addresses: Vec<IpAddr>,
}

/// Nodes that others cannot reach, because they have loopback addresses on these rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loopback {
    pub nodes: Vec<u32>,
    pub rails: Vec<usize>,
    /// Their addresses on the first of these rails, each once.
    pub addresses: Vec<IpAddr>,
}

/// The addresses at which other nodes cannot be sure to reach the node that has them.
#[derive(Debug, Default)]
pub struct WrongAddresses {
    duplicates: Vec<Duplicate>,
    loopbacks: Vec<Loopback>,
    places: HashSet<(u32, usize)>,
    nodes: HashSet<u32>,
}

impl WrongAddresses {
    pub fn of(members: &[Member]) -> WrongAddresses {
        let (duplicates, loopbacks) = (duplicates(members), loopbacks(members));
        let shared = duplicates.iter().flat_map(|one| one.nodes.iter().map(|node| (*node, &one.rails)));
        let own = loopbacks.iter().flat_map(|one| one.nodes.iter().map(|node| (*node, &one.rails)));
        let places: HashSet<(u32, usize)> =
            shared.chain(own).flat_map(|(node, rails)| rails.iter().map(move |rail| (node, *rail))).collect();
        let nodes = places.iter().map(|(node, _)| *node).collect();
        WrongAddresses { duplicates, loopbacks, places, nodes }
    }

    pub fn duplicates(&self) -> &[Duplicate] {
        &self.duplicates
    }

    pub fn loopbacks(&self) -> &[Loopback] {
        &self.loopbacks
    }

    /// Returns whether a failure between these nodes says nothing about them or the path between them,
    /// because one of them has a wrong address on this rail; `None` stands for all rails.
    pub fn explain(&self, nodes: &[u32], rail: Option<usize>) -> bool {
        nodes.iter().any(|node| match rail {
            Some(rail) => self.places.contains(&(*node, rail)),
            None => self.nodes.contains(node),
        })
    }
}

/// Returns the nodes with a loopback address, unless all nodes share one network namespace.
fn loopbacks(members: &[Member]) -> Vec<Loopback> {
    let joined = members.iter().filter(|member| !member.rails.is_empty());
    let networks: HashSet<[&str; 2]> = joined.map(network).collect();
    if networks.len() < 2 {
        return Vec::new();
    }
    let mut found: BTreeMap<Vec<usize>, (Vec<u32>, BTreeSet<IpAddr>)> = BTreeMap::new();
    for (node, member) in (0..).zip(members) {
        let own = |rail: usize| Some((rail, member.addresses.rail(rail)?.addr()));
        let rails: Vec<(usize, IpAddr)> =
            (0..member.addresses.rails.len()).filter_map(own).filter(|(_, one)| one.is_loopback()).collect();
        if let Some((_, address)) = rails.first() {
            let rails = rails.iter().map(|(rail, _)| *rail).collect();
            let (nodes, addresses) = found.entry(rails).or_default();
            nodes.push(node);
            addresses.insert(*address);
        }
    }
    let loopback = |(rails, (nodes, addresses)): (Vec<usize>, (Vec<u32>, BTreeSet<IpAddr>))| Loopback {
        nodes,
        rails,
        addresses: addresses.into_iter().collect(),
    };
    found.into_iter().map(loopback).collect()
}

/// Returns the addresses that several nodes have.
fn duplicates(members: &[Member]) -> Vec<Duplicate> {
    let mut found: BTreeMap<Vec<u32>, (Vec<usize>, Vec<IpAddr>)> = BTreeMap::new();
    let rails = members.iter().map(|member| member.addresses.rails.len()).max().unwrap_or_default();
    for rail in 0..rails {
        let mut holders: BTreeMap<IpAddr, Vec<u32>> = BTreeMap::new();
        for (member, node) in members.iter().zip(0..) {
            if let Some(address) = member.addresses.rail(rail).filter(|net| !net.addr().is_loopback()) {
                holders.entry(address.addr()).or_default().push(node);
            }
        }
        for (address, nodes) in holders.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
            let places = nodes.iter().filter_map(|node| members.get(*node as usize));
            let places: HashSet<[&str; 2]> = places.map(|member| place(member, rail)).collect();
            if places.len() > 1 {
                let (rails, addresses) = found.entry(nodes).or_default();
                rails.push(rail);
                addresses.push(address);
            }
        }
    }
    found.into_iter().map(|(nodes, (rails, addresses))| Duplicate { nodes, rails, addresses }).collect()
}

/// Returns what nodes with one address may share: an HCA, or a machine's network namespace.
fn place(member: &Member, rail: usize) -> [&str; 2] {
    let [machine, network] = network(member);
    match member.rails.get(rail).filter(|_| member.is_verbs && !machine.is_empty()) {
        Some(port) => [machine, port],
        None => [machine, network],
    }
}

/// Returns a machine and a network namespace on it. If the kernel hides either, the host's name stands for
/// both.
fn network(member: &Member) -> [&str; 2] {
    let Addresses { machine, network, .. } = &member.addresses;
    match machine.is_empty() || network.is_empty() {
        true => ["", names::host(&member.name)],
        false => [machine, network],
    }
}

/// Finds the rails on which most nodes are in one subnet and some are not, and returns both groups for
/// each of them. There may be routes between them. Link-local and loopback addresses, and
/// addresses without a subnet, do not count.
pub fn odd_subnets(members: &[Member]) -> Vec<(usize, BTreeMap<IpNet, Vec<u32>>)> {
    let rails = members.iter().map(|member| member.addresses.rails.len()).max().unwrap_or_default();
    let of = |rail: usize| {
        let mut subnets: HashMap<IpNet, Vec<u32>> = HashMap::new();
        for (member, node) in members.iter().zip(0..) {
            if let Some(subnet) = member.addresses.rail(rail).and_then(subnet) {
                subnets.entry(subnet).or_default().push(node);
            }
        }
        let all: usize = subnets.values().map(Vec::len).sum();
        let has_most = subnets.values().any(|nodes| nodes.len() > 1 && nodes.len() * 2 > all);
        (subnets.len() > 1 && has_most).then(|| (rail, subnets.into_iter().collect()))
    };
    (0..rails).filter_map(of).collect()
}

fn subnet(address: IpNet) -> Option<IpNet> {
    let is_local = match address.addr() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_local = is_local || address.addr().is_loopback();
    (!is_local && address.prefix_len() < address.max_prefix_len()).then(|| address.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::judge::culprit::{self, What};
    use crate::preflight::judge::evidence::Evidence;
    use crate::preflight::judge::words;
    use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};

    /// Returns a node on a machine and in a network namespace, with the addresses of its rails.
    fn member(machine: &str, network: &str, rails: &[&str]) -> Member {
        let address = |text: &&str| text.parse().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()));
        let addresses = Addresses {
            machine: machine.to_owned(),
            network: network.to_owned(),
            rails: rails.iter().map(address).collect(),
        };
        let rails = (0..rails.len()).map(|rail| format!("eth{rail}")).collect();
        Member { name: format!("host (node {machine})"), rails, addresses, ..Member::default() }
    }

    fn found(members: &[Member]) -> Vec<(Vec<u32>, Vec<usize>)> {
        WrongAddresses::of(members)
            .duplicates()
            .iter()
            .map(|one| (one.nodes.clone(), one.rails.clone()))
            .collect()
    }

    #[test]
    fn only_nodes_that_share_an_address_on_a_rail_are_found() {
        let nodes = [
            member("a", "1", &["10.0.0.1/24", "10.1.0.1/24"]),
            member("b", "1", &["10.0.0.2/24", "10.1.0.2/24"]),
            // Neither the subnet nor another rail matters.
            member("c", "1", &["10.0.0.1/16", "10.0.0.2/24"]),
            member("d", "1", &["", "fe80::1"]),
        ];
        assert_eq!(found(&nodes), [(vec![0, 2], vec![0])]);
        let wrong = WrongAddresses::of(&nodes);
        assert!(wrong.explain(&[1, 2], Some(0)) && wrong.explain(&[0, 3], None));
        assert!(!wrong.explain(&[0, 2], Some(1)) && !wrong.explain(&[1, 3], Some(0)));
        let both = [&nodes[0], &nodes[0]].map(|node| {
            let mut node = node.clone();
            node.addresses.machine.clear();
            node
        });
        let twice = [member("a", "1", &["10.0.0.1", "fe80::1"]), member("b", "1", &["10.0.0.1", "fe80::1"])];
        assert_eq!(found(&twice), [(vec![0, 1], vec![0, 1])]);
        assert_eq!(found(&both), [], "two nodes of one host, as far as is known");
    }

    #[test]
    fn nodes_share_a_network_or_an_hca_and_no_more_of_a_machine() {
        let one = member("a", "1", &["10.0.0.1"]);
        assert_eq!(found(&[one.clone(), one.clone()]), []);
        let other = member("a", "2", &["10.0.0.1"]);
        assert_eq!(found(&[one.clone(), one.clone(), other.clone()]), [(vec![0, 1, 2], vec![0])]);
        let verbs = |name: &str, member: &Member| Member {
            rails: vec![name.to_owned()],
            is_verbs: true,
            ..member.clone()
        };
        assert_eq!(found(&[verbs("mlx5_0:1", &one), verbs("mlx5_0:1", &other)]), []);
        assert_eq!(found(&[verbs("rxe0:1", &one), verbs("rxe1:1", &other)]), [(vec![0, 1], vec![0])]);
    }

    #[test]
    fn a_few_nodes_in_another_subnet_are_told_and_a_subnet_for_each_is_not() {
        let of = |addresses: &[&str]| {
            let members: Vec<Member> = addresses.iter().map(|one| member("", "", &[one])).collect();
            let odd = odd_subnets(&members);
            odd.into_iter().map(|(rail, subnets)| (rail, subnets.into_values().collect())).collect::<Vec<_>>()
        };
        let none: Vec<(usize, Vec<Vec<u32>>)> = Vec::new();
        assert_eq!(of(&["10.0.0.1/24", "10.0.0.2/24", "10.0.1.3/24"]), [(0, vec![vec![0, 1], vec![2]])]);
        assert_eq!(of(&["10.0.0.1/24", "10.0.1.2/24", "10.0.2.3/24"]), none);
        assert_eq!(of(&["10.0.0.1/24", "10.0.1.2/24"]), none);
        assert_eq!(of(&["10.0.0.1/24", "10.0.0.2/24", "169.254.7.7/16", "10.0.9.1", ""]), none);
        assert_eq!(of(&["10.0.0.1/24", "10.0.0.2/24", "127.0.0.1/8"]), none, "that is a fault of its own");
    }

    /// Packets to the address reach only node 2, so node 1 fails with all other nodes.
    #[test]
    fn a_node_whose_address_is_duplicated_is_not_blamed() {
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.4"];
        let members = addresses.iter().zip(["a", "b", "c", "d"]);
        let members = members.map(|(address, machine)| member(machine, "1", &[address])).collect();
        let mut evidence = Evidence::new(members, 3);
        for (round, [low, high]) in
            [(0, [0, 1]), (0, [2, 3]), (1, [0, 2]), (1, [1, 3]), (2, [0, 3]), (2, [1, 2])]
        {
            let result = match low == 1 || high == 1 {
                true => Err("no answer".to_owned()),
                false => Ok(Measured { latency_us: 2.0, gbps: 390.0 }),
            };
            for [node, partner] in [[low, high], [high, low]] {
                let outcome = PairOutcome::Rails(vec![RailReport::new(0, result.clone())]);
                evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
            }
        }
        let [fault] = &culprit::faults(&evidence, &[])[..] else { panic!("one fault") };
        assert!(matches!(&fault.what, What::Duplicate(shared) if shared.nodes == [1, 2]), "{fault:?}");
        assert_eq!((fault.accused(), fault.is_warning()), (vec![], false));
        let said = words::fault(&evidence, fault);
        assert_eq!(said, "host (node b) and host (node c) have the same address on rail 0 (eth0): 10.0.0.2");
    }

    /// NCCL takes `lo` if no other interface is usable. A node that connects there reaches itself.
    #[test]
    fn a_node_with_a_loopback_address_is_accused_and_not_its_path_to_the_others() {
        let members: Vec<Member> = [("a", "10.0.0.1"), ("b", "127.0.0.1")]
            .map(|(machine, address)| member(machine, "1", &[address]))
            .into();
        let mut evidence = Evidence::new(members, 1);
        for [node, partner] in [[0, 1], [1, 0]] {
            let failed = RailReport::new(0, Err("connection refused".to_owned()));
            let outcome = PairOutcome::Rails(vec![failed]);
            evidence.add(PairReport { round: 0, node, partner, seconds: 1.0, outcome });
        }
        let [fault] = &culprit::faults(&evidence, &[])[..] else { panic!("one fault") };
        assert_eq!((fault.accused(), fault.is_warning()), (vec![1], false));
        let said = words::fault(&evidence, fault);
        assert_eq!(
            said,
            "host (node b) has a loopback address on rail 0 (eth0), which no other node can reach: 127.0.0.1"
        );
    }

    #[test]
    fn nodes_with_a_loopback_address_are_one_fault() {
        let on = |node: u32| member(&node.to_string(), "1", &["127.0.0.1/8", "10.0.0.1/24"]);
        let mut members: Vec<Member> = (0..9).map(on).collect();
        members[3] = member("3", "1", &["127.0.0.3/8", "10.0.0.1/24"]);
        members.push(member("9", "1", &["10.0.0.9/24", "::1"]));
        for (member, node) in members.iter_mut().zip(0..) {
            member.name = format!("gpu-{node}");
        }
        let evidence = Evidence::new(members, 1);
        let faults = culprit::faults(&evidence, &[]);
        let own: Vec<_> = faults.iter().filter(|fault| matches!(fault.what, What::Loopback(_))).collect();
        let [nine, one] = &own[..] else { panic!("{faults:?}") };
        assert_eq!(nine.accused(), (0..9).collect::<Vec<u32>>());
        assert_eq!(
            words::fault(&evidence, nine),
            "gpu-0..gpu-8 have loopback addresses on rail 0 (eth0), which no other node can reach: 127.0.0.1, 127.0.0.3"
        );
        assert_eq!(one.accused(), [9]);
    }

    #[test]
    fn loopback_addresses_are_right_within_one_network_namespace() {
        let of = |members: &[Member]| {
            let wrong = WrongAddresses::of(members);
            wrong.loopbacks().iter().map(|own| own.nodes.len()).sum::<usize>()
        };
        let one = member("a", "1", &["127.0.0.1"]);
        assert_eq!(of(&[one.clone(), one.clone()]), 0);
        assert_eq!(of(&[one.clone(), one.clone(), Member::default()]), 0, "a node that never joined");
        let elsewhere = member("a", "2", &["::1"]);
        assert_eq!(of(&[one.clone(), one, elsewhere.clone(), member("b", "1", &["10.0.0.1"])]), 3);
        assert_eq!(
            found(&[elsewhere.clone(), member("b", "1", &["::1"])]),
            [],
            "it is told as a loopback address"
        );
    }

    #[test]
    fn what_a_node_tells_is_bounded() {
        let mut told = member(&"x".repeat(65), "1", &["10.0.0.1", "10.0.0.2"]).addresses;
        told = told.bounded(1);
        assert_eq!((told.machine.as_str(), told.network.as_str(), told.rails.len()), ("", "1", 1));
    }
}
