//! Fixes UCX on a host: fills in a device list if UCX would use other devices than the job, and an index or
//! subnets if it would select GIDs that are not this container's.

use super::alone::without_route;
use super::gda;
use super::release::{EXCLUDES_DEVICES, Release, all, are_known, has_verbs};
use super::subnets::Filter;
use super::taken::{Taken, UcxPort, strangers, taken};
use super::transports::transports;
use super::{DEVICES, GID_INDEX, REACHABILITY, SUBNETS, TRANSPORTS, slot_of};
use crate::fabric::gid::{RailGids, common_index, is_right_everywhere, of_one_family, own_network, rails};
use crate::facts::gid::Gid;
use crate::libraries::exclusions::{maps, settled};
use crate::libraries::{Fill, LibraryContext, traffic_class, vllm};
use crate::text::condensed;

pub(super) fn fills(subject: &LibraryContext) -> Vec<Fill> {
    if !works(subject) || !has_verbs(subject) {
        return Vec::new();
    }
    let devices = devices(subject).map(|fill| settled(subject, fill));
    let of_workers = subject.rails.port_names().join(",");
    let list = devices.as_ref().and_then(|fill| match &fill.value {
        None if maps(subject, DEVICES) => Some(of_workers.as_str()),
        value => value.as_deref(),
    });
    let with_it = |name: &str| list.filter(|_| name == DEVICES).or_else(|| subject.value(name));
    let subject = &LibraryContext { values: &with_it, ..*subject };
    let gid = gid(subject);
    let with_gid = |name: &str| {
        let filled = gid.iter().find(|fill| fill.variable == name).and_then(|fill| fill.value.as_deref());
        filled.or_else(|| with_it(name))
    };
    let reachability = reachability(&LibraryContext { values: &with_gid, ..*subject });
    let class = traffic_class::of_job(subject, &traffic_class::UCX);
    devices.iter().cloned().chain(gid).chain(reachability).chain(class).collect()
}

/// Returns the value with which UCX takes each peer to be reachable. By default it asks this container's routing table,
/// by the name of the GID's interface.
fn reachability(subject: &LibraryContext) -> Option<Fill> {
    if subject.value(REACHABILITY).is_some() {
        return None;
    }
    let (port, slot) = all(subject).into_iter().find_map(|release| without_route(subject, release))?;
    // The interface of a node's GID is in another network namespace.
    let why = format!(
        "without it, UCX would find no route from {}, the node's address at GID index {} of {port}",
        slot.address?, slot.index
    );
    Some(Fill::new(REACHABILITY, "all", why))
}

/// Returns whether UCX can use the job's rails over verbs: on EFA, it has its own transport.
pub(super) fn works(subject: &LibraryContext) -> bool {
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used()).peekable();
    used.peek().is_some() && used.all(|port| port.hca.driver.as_deref() != Some("efa"))
}

fn devices(subject: &LibraryContext) -> Option<Fill> {
    if subject.value(DEVICES).is_some() {
        return None;
    }
    let releases = all(subject);
    let others =
        releases.iter().map(|release| strangers(subject, *release)).find(|others| !others.is_empty());
    let without_gid = gda::unopenable(subject);
    let others_too = |ports: &[String]| format!("without it, UCX would also take {}", condensed(ports));
    let why = match others {
        _ if !without_gid.is_empty() => format!(
            "without it, UCX may open {}, without a GID, for transfers that GPUs start (rc_gda), and fail; it turns these off",
            condensed(&without_gid)
        ),
        Some(ports) if gda::may_run(subject) && accepts_exclusion(subject, &releases) => {
            let why = format!(
                "{}; a list of the job's HCAs would turn off rc_gda, UCX's transfers that GPUs start",
                others_too(&ports)
            );
            return Some(Fill::new(DEVICES, format!("^{}", ports.join(",")), why));
        }
        Some(ports) if gda::may_run(subject) => {
            format!("{}; it turns off rc_gda, UCX's transfers that GPUs start", others_too(&ports))
        }
        Some(ports) => others_too(&ports),
        None => return None,
    };
    let allows_tcp = releases.iter().any(|release| transports(subject.value(TRANSPORTS), *release).tcp);
    let mut names = subject.rails.port_names();
    // If the list contained no interface, UCX would have no TCP.
    names.extend(if allows_tcp { Some(subject.rails.interface?.to_owned()) } else { None });
    Some(Fill::new(DEVICES, names.join(","), why))
}

/// Returns whether each UCX here reads a list of ports to leave out, and no program writes in front of it.
fn accepts_exclusion(subject: &LibraryContext, releases: &[Release]) -> bool {
    let selection = subject.value(vllm::SELECTION);
    are_known(subject)
        && releases.iter().all(|release| *release >= EXCLUDES_DEVICES)
        && !selection.is_some_and(|selection| vllm::is_set_by_worker(selection, DEVICES))
}

/// Returns a rail on which UCX selects a GID that is not this container's, or which it skips because of an
/// empty entry, although the port has one of this container's GIDs.
pub(super) fn wrong_rail(taken: &Taken) -> Option<&UcxPort> {
    let is_wrong = |port: &&UcxPort| port.slot.as_ref().is_some_and(|slot| slot.has_right && !slot.is_right);
    taken.ports.iter().chain(&taken.passed_over).filter(|port| port.is_rail).find(is_wrong)
}

fn gid(subject: &LibraryContext) -> Option<Fill> {
    if [GID_INDEX, SUBNETS].iter().any(|name| subject.value(name).is_some()) {
        return None;
    }
    let releases = all(subject);
    let of_release = |release: &Release| {
        let taken = taken(subject, *release)?;
        let port = wrong_rail(&taken).cloned()?;
        let is_passed_over = taken.passed_over.contains(&port);
        let slot = port.slot?;
        if is_passed_over {
            return Some(format!(
                "without it, UCX would skip {}, whose GID entry {} is empty",
                port.name, slot.index
            ));
        }
        let taken = slot_of(&port.name, slot.index, slot.address);
        Some(format!("without it, UCX would take {taken}"))
    };
    let why = releases.iter().find_map(of_release)?;
    let fill = |variable, value: String| Some(Fill::new(variable, value, &why));
    let all_rails = rails(subject.facts, subject.rails.ports);
    let right = of_one_family(&all_rails);
    // An index becomes wrong as soon as the table changes, but a network does not.
    let networks = networks(subject, &right, &releases);
    if let Some(Networks { list, lasts: true }) = &networks {
        return fill(SUBNETS, list.clone());
    }
    // The index would also apply to InfiniBand ports.
    let is_roce = subject.rails.port_names().len() == all_rails.len();
    let common = subject.rails.gid_index.filter(|index| is_right_everywhere(&all_rails, *index));
    if let Some(index) = common.or_else(|| common_index(&right)).filter(|_| is_roce) {
        return fill(GID_INDEX, index.to_string());
    }
    fill(SUBNETS, networks?.list)
}

/// Networks with which each release selects the right GIDs.
struct Networks {
    list: String,
    /// Whether they match only this container's addresses, so that the entries' positions do not matter.
    lasts: bool,
}

/// Returns the networks of the interfaces that have the right GIDs; `None` if a release would not select
/// these GIDs with them or is unknown.
fn networks(subject: &LibraryContext, right: &[RailGids], releases: &[Release]) -> Option<Networks> {
    if !are_known(subject) {
        return None;
    }
    let net_of = |gid: &Gid| own_network(subject.facts, gid.address()).map(|net| net.to_string());
    let first = right.iter().filter_map(|rail| rail.slots.first());
    let mut nets: Vec<String> = Vec::new();
    for net in first.map(|gid| net_of(gid)) {
        let net = net?;
        if !nets.contains(&net) {
            nets.push(net);
        }
    }
    let list = nets.join(",");
    let with_it = |name: &str| if name == SUBNETS { Some(list.as_str()) } else { subject.value(name) };
    let mended = LibraryContext { values: &with_it, ..*subject };
    let is_right =
        |release: &Release| taken(&mended, *release).is_some_and(|taken| wrong_rail(&taken).is_none());
    if !releases.iter().all(is_right) {
        return None;
    }
    let filter = Filter::read(&list).ok()?;
    let is_own = |gid: &Gid| subject.facts.net.own_addresses().any(|address| address == gid.address());
    let slots = |rail: &RailGids| {
        rail.port.gids.slots.iter().all(|gid| !filter.lets_pass(gid.address()) || is_own(gid))
    };
    let lasts = right.iter().all(slots);
    Some(Networks { list, lasts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Candidate, Rails, Verdict};
    use crate::facts::Facts;
    use crate::facts::gid::{GidTable, GidType};
    use crate::facts::net::Interface;
    use crate::facts::rdma::{Access, Hca, LinkLayer, Port as RdmaPort, Uverbs};
    use crate::image::{Image, library::Library};

    /// Returns a host whose only HCA has these GID entries, with this UCX release.
    fn host(slots: &[(u32, &str)], release: &str) -> Facts {
        let gid = |(index, address): &(u32, &str)| Gid::of(*index, address, GidType::RoceV2);
        let gids = GidTable { slots: slots.iter().map(gid).collect(), size: 16, scanned: 16 };
        let state = "ACTIVE".to_owned();
        let port =
            RdmaPort { number: 1, link_layer: LinkLayer::Ethernet, state, gids, ..RdmaPort::default() };
        let uverbs = Uverbs { access: Access::Opened, ..Uverbs::default() };
        let hca =
            Hca { name: "mlx5_1".to_owned(), uverbs: Some(uverbs), ports: vec![port], ..Hca::default() };
        let ucx = Library { version: Some(release.to_owned()), ..Library::default() };
        let image = Image { ucx: vec![ucx], ..Image::default() };
        let addresses = vec!["172.16.1.9/24".parse().unwrap()];
        let mut facts = Facts { rdma: vec![hca], image: Some(image), ..Facts::default() };
        facts.net.interfaces = vec![Interface { name: "eth1".to_owned(), addresses, ..Interface::default() }];
        facts
    }

    fn asked<T>(facts: &Facts, set: &[Fill], question: impl Fn(&LibraryContext) -> T) -> T {
        let hca = &facts.rdma[0];
        let ports = [Candidate { hca, port: &hca.ports[0], verdict: Verdict::Used }];
        let rails = Rails { ports: &ports, gid_index: None, interface: Some("eth1") };
        let value = |name: &str| set.iter().find(|fill| fill.variable == name)?.value.as_deref();
        question(&LibraryContext::of(facts, &rails, &value))
    }

    #[test]
    fn a_network_stays_right_when_the_table_changes_and_an_index_does_not() {
        let before = [(0, "fe80::9"), (1, "192.168.1.9"), (3, "172.16.1.9")];
        let after = [(0, "fe80::9"), (1, "192.168.1.9"), (5, "172.16.1.9")];
        let renewed = [(0, "fe80::9"), (1, "192.168.1.9"), (3, "172.16.1.20")];
        for (release, fill, stays) in [
            ("1.17.0", (GID_INDEX, "3"), false),
            ("1.18.0", (SUBNETS, "172.16.1.0/24"), true),
            ("1.22.0", (SUBNETS, "172.16.1.0/24"), true),
        ] {
            let fills = asked(&host(&before, release), &[], fills);
            let filled: Vec<_> =
                fills.iter().map(|fill| (fill.variable, fill.value.as_deref().unwrap_or_default())).collect();
            assert_eq!(filled, [fill], "{release}");
            let is_right = |slots: &[(u32, &str)], address: &str| {
                let mut facts = host(slots, release);
                facts.net.interfaces[0].addresses = vec![address.parse().unwrap()];
                let release = asked(&facts, &fills, |subject| all(subject)[0]);
                asked(&facts, &fills, |subject| {
                    taken(subject, release)
                        .is_some_and(|taken| !taken.ports.is_empty() && wrong_rail(&taken).is_none())
                })
            };
            assert!(is_right(&before, "172.16.1.9/24"), "{release}");
            assert_eq!(is_right(&after, "172.16.1.9/24"), stays, "{release}: the address has moved");
            assert!(is_right(&renewed, "172.16.1.20/24"), "{release}: another address of the network");
        }
        let right = host(&[(0, "fe80::9"), (3, "172.16.1.9")], "1.22.0");
        assert_eq!(asked(&right, &[], fills), [], "it is right by itself");
    }

    #[test]
    fn a_network_that_lets_in_others_is_no_better_than_an_index() {
        let facts = host(&[(1, "172.16.1.1"), (3, "172.16.1.9")], "1.22.0");
        let filled = asked(&facts, &[], fills);
        let filled: Vec<_> =
            filled.iter().map(|fill| (fill.variable, fill.value.as_deref().unwrap_or_default())).collect();
        assert_eq!(filled, [(GID_INDEX, "3")]);
    }
}
