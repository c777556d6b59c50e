//! Asks NCCL for its GIDs before and after a change of the GID tables, with the earlier decision: if a link
//! has lost an address and got it again, the address is at another index; if the address was renewed, it
//! differs.

use std::net::{IpAddr, Ipv6Addr};

use rdma_init::fabric::own_slots;
use rdma_init::facts::Facts;
use rdma_init::facts::rdma::LinkLayer;
use rdma_init::pipeline;
use rdma_init::plan::{Plan, SettingOutcome};

use super::case::Ask;
use super::driver::Nccl;
use super::model::{Environment, case, observed, version};
use crate::support::golden::{Case, host};
use crate::support::nccl::{Library, some};

/// What keeps NCCL on the right GID of a host.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Nothing,
    Family,
    Range,
    /// The platform publishes the index.
    Published,
}

const HOSTS: [(&str, Rule); 4] = [
    ("two-roce-hcas", Rule::Nothing),
    ("gb300-virtual-rails", Rule::Family),
    ("gid-range-survives", Rule::Range),
    ("pai-erdma-2-nics", Rule::Published),
];

fn decide(name: &str, library: &Library) -> (Facts, Environment, Plan) {
    let Case { mut facts, profiles, config, .. } = host(name).read();
    facts.platform.nccl_version = Some(library.version.clone());
    facts.image = None;
    let plan = pipeline::decide(&facts, &profiles, &config);
    let settings = plan.settings.iter();
    let environment =
        settings.filter_map(|setting| Some((setting.variable.clone(), setting.value.clone()?))).collect();
    (facts, environment, plan)
}

/// Moves the GIDs of this container up by two, as if the link had gone down and another address had
/// appeared before it was up again. The old entries are empty, but those of other containers stay.
fn moved(facts: &Facts) -> Facts {
    change(facts, |facts, hca, slot| {
        let last = facts.rdma[hca].ports[0].gids.slots.last().unwrap().index;
        facts.rdma[hca].ports[0].gids.slots[slot].index = last + 2;
    })
}

/// Renews each address within its network, so that it is in the next free entries.
fn renewed(facts: &Facts) -> Facts {
    let next = |gid: Ipv6Addr| Ipv6Addr::from(u128::from(gid) + 1);
    let mut after = change(facts, |facts, hca, slot| {
        let gid = &mut facts.rdma[hca].ports[0].gids.slots[slot];
        (gid.index, gid.gid) = (gid.index + 2, next(gid.gid));
    });
    for interface in &mut after.net.interfaces {
        for address in interface.addresses.iter_mut().filter(|address| !address.addr().is_loopback()) {
            let new = match address.addr() {
                IpAddr::V4(addr) => IpAddr::V4((u32::from(addr) + 1).into()),
                IpAddr::V6(addr) => IpAddr::V6(next(addr)),
            };
            *address = ipnet::IpNet::new(new, address.prefix_len()).unwrap();
        }
    }
    after
}

/// Changes each GID entry with a routable address of this container.
fn change(facts: &Facts, change: impl Fn(&mut Facts, usize, usize)) -> Facts {
    let own: Vec<IpAddr> = facts.net.own_addresses().collect();
    let mut after = facts.clone();
    for hca in 0..facts.rdma.len() {
        let slots = &facts.rdma[hca].ports[0].gids.slots;
        for slot in (0..slots.len()).rev() {
            if own.contains(&slots[slot].address()) && !slots[slot].is_link_local() {
                change(&mut after, hca, slot);
            }
        }
        after.rdma[hca].ports[0].gids.slots.sort_by_key(|gid| gid.index);
    }
    after
}

/// Returns whether NCCL uses a GID of this container on every port that it uses.
fn is_right(facts: &Facts, plan: &Plan, outcome: &super::outcome::Outcome) -> bool {
    let found = observed(outcome).ports;
    let used: Vec<_> = plan.ports.iter().filter(|port| port.used).collect();
    found.len() == used.len()
        && used.iter().all(|used| {
            let (_, port) = facts.port(&used.hca, used.port).unwrap();
            assert_eq!(port.link_layer, LinkLayer::Ethernet);
            let slot = &found[&format!("{}:{}/RoCE", used.hca, used.port)];
            own_slots(facts, port).iter().any(|gid| gid.index.to_string() == *slot)
        })
}

#[test]
fn what_was_decided_is_right_after_a_change_where_nccl_searches() {
    for library in some(&["2.25.1", "2.26.2"]) {
        let survives = version(&library) >= rdma_init::libraries::nccl::version::TOLERATES_EMPTY_SLOTS;
        for (name, rule) in HOSTS {
            let of = format!("{name} with NCCL {}", library.version);
            let (before, environment, plan) = decide(name, &library);
            let has = |variable: &str| environment.iter().any(|(name, _)| name == variable);
            let is_pinned = has("NCCL_IB_GID_INDEX");
            assert_eq!(is_pinned, !survives || rule == Rule::Published, "{of}");
            let is_left = |setting: &rdma_init::plan::Setting| {
                setting.variable == "NCCL_IB_GID_INDEX" && setting.outcome == SettingOutcome::Left
            };
            assert_eq!(plan.settings.iter().any(is_left), !is_pinned, "{of}");
            assert_eq!(has("NCCL_IB_ADDR_FAMILY"), rule == Rule::Family && !is_pinned, "{of}");
            assert_eq!(has("NCCL_IB_ADDR_RANGE"), rule == Rule::Range && !is_pinned, "{of}");
            let hosts = [before.clone(), moved(&before), renewed(&before)];
            let cases: Vec<_> = hosts.iter().map(|facts| case(facts, &environment)).collect();
            let outcomes = Nccl::start(&library).run(&cases);
            let right: Vec<bool> =
                hosts.iter().zip(&outcomes).map(|(facts, outcome)| is_right(facts, &plan, outcome)).collect();
            // A pinned index is right only until the change.
            assert_eq!(right, [true, !is_pinned, !is_pinned], "{of}");
        }
    }
}

/// The test above starts another NCCL after the change. Here, the same process connects before and after it.
/// NCCL 2.31 and later do not search for a connection, so they need the kernel's report of the change.
#[test]
fn a_process_connects_by_what_it_found_last() {
    let mut facts = host("two-roce-hcas").read().facts;
    facts.rdma.truncate(1);
    let connect_again = |is_reported, pinned: &[&str]| {
        let mut environment = vec![("NCCL_SOCKET_IFNAME".to_owned(), "lo".to_owned())];
        environment.extend(pinned.iter().map(|index| ("NCCL_IB_GID_INDEX".to_owned(), (*index).to_owned())));
        let mut case = case(&facts, &environment);
        case.asks = vec![Ask::Ib, Ask::Connect, Ask::Move { from: 3, to: 5, is_reported }, Ask::Connect];
        case
    };
    let cases = [(true, &[][..]), (false, &[]), (true, &["3"]), (false, &["3"])];
    let cases = cases.map(|(is_reported, pinned)| connect_again(is_reported, pinned));
    for library in some(&["2.26.2", "2.30.7"]).iter().filter(|library| library.is_at_least("2.26")) {
        let unreported = if library.is_at_least("2.31") { 3 } else { 5 };
        for (outcome, after) in Nccl::start(library).run(&cases).iter().zip([5, unreported, 3, 3]) {
            // The queue pairs are those of the two sides.
            let expected = [3, after].map(|index| Ok(vec![index; 2]));
            assert_eq!(outcome.connections, expected, "NCCL {}: {}", library.version, outcome.log);
        }
    }
}
