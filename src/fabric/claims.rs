//! The HCAs that the Pod's resource claims hold, or that variables of Kubernetes name. A container that may
//! use all devices of its node, such as a privileged one, sees more of them than the scheduler gave to its Pod.

use caps::Capability::CAP_SYS_ADMIN;

use super::default_route::{self, OnDefaultRoute};
use super::gid;
use super::port::{Candidate, SkipReason, Verdict, candidates};
use super::step::NarrowingStep;
use crate::facts::Facts;
use crate::facts::dra::ClaimedDevice;
use crate::facts::given::{GivenDevice, MOST};
use crate::facts::rdma::{Hca, LinkLayer};

/// The class of all network controllers: how it begins in sysfs (`include/linux/pci_ids.h`,
/// `PCI_BASE_CLASS_NETWORK`).
const NETWORK: &str = "0x02";

/// Returns whether a claimed device is this HCA. Compares the PCI functions, because the HCA may have another
/// name in the container; compares the names only if the driver reports no function.
pub(crate) fn is_it(device: &ClaimedDevice, hca: &Hca) -> bool {
    match (device.pci_address(), &hca.pci_address) {
        (Some(claimed), Some(own)) => claimed.eq_ignore_ascii_case(own),
        _ => device.rdma_device() == Some(&hca.name),
    }
}

/// Returns whether a function that a variable names is this HCA.
fn is_given(device: &GivenDevice, hca: &Hca) -> bool {
    hca.pci_address.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(&device.address))
}

/// What the scheduler gave to the Pod, as far as this narrows its job.
struct Holdings<'a> {
    claims: &'a [ClaimedDevice],
    given: &'a [GivenDevice],
}

impl Holdings<'_> {
    fn of(facts: &Facts) -> Holdings<'_> {
        // Only a container with the rights of a privileged one has more uverbs nodes than the plugins have given to
        // it; elsewhere, each node that is there has been given, by this plugin or by one that sets no variable.
        let may_use_all = facts.process.capabilities.bounding.has(CAP_SYS_ADMIN);
        let given = if may_use_all { facts.given.get(..MOST).unwrap_or(&facts.given) } else { &[] };
        Holdings { claims: &facts.dra, given }
    }

    fn has_claim_for(&self, port: &Candidate) -> bool {
        self.claims.iter().any(|device| is_it(device, port.hca))
    }

    /// Returns whether Kubernetes has given a single NIC, which is beside several GPUs rather for storage than
    /// the only rail.
    fn is_one_beside_gpus(&self, facts: &Facts) -> bool {
        let nics = self
            .given
            .iter()
            .filter(|device| device.class.as_ref().is_none_or(|class| class.starts_with(NETWORK)));
        facts.gpu.count.is_some_and(|count| count > 1) && nics.count() == 1
    }

    fn has(&self, port: &Candidate) -> bool {
        self.has_claim_for(port) || self.given.iter().any(|device| is_given(device, port.hca))
    }

    /// Returns a condition: the Pod holds this port as a rail. The front-end NIC, and a single NIC that a plugin has
    /// given beside several GPUs, show nothing.
    fn rails<'f>(&'f self, facts: &'f Facts) -> impl Fn(&Candidate) -> bool + 'f {
        let carries_default_route = default_route::wanted(facts, OnDefaultRoute::Used);
        let is_one = self.is_one_beside_gpus(facts);
        move |port| {
            let is_held = if is_one { self.has_claim_for(port) } else { self.has(port) };
            is_held && !(port.port.link_layer == LinkLayer::Ethernet && carries_default_route(port))
        }
    }
}

/// Returns the ports of the Pod's own HCAs that the job leaves alone because HCAs of another link layer have more
/// bandwidth, none of which the Pod has been given.
pub(crate) fn of_other_link_layer<'a, 'b>(
    facts: &Facts,
    ports: &'b [Candidate<'a>],
) -> Vec<&'b Candidate<'a>> {
    let holdings = Holdings::of(facts);
    if ports.iter().any(|port| port.is_used() && holdings.has(port)) {
        return Vec::new();
    }
    let is_rail = holdings.rails(facts);
    let is_idle = |port: &&Candidate| {
        matches!(port.verdict, Verdict::LeftOut(SkipReason::OtherLinkLayer(..))) && is_rail(port)
    };
    ports.iter().filter(is_idle).collect()
}

/// Returns whether the Pod holds one of these ports as a rail, as far as that is known.
pub(crate) fn holds_rails_of<'a, 'b: 'a>(
    facts: &Facts,
    mut ports: impl Iterator<Item = &'a Candidate<'b>>,
) -> bool {
    let holdings = Holdings::of(facts);
    ports.any(holdings.rails(facts))
}

/// Returns the ports that the Pod holds and that have no link now.
pub(crate) fn held_without_link<'a, 'b>(
    facts: &Facts,
    ports: &'b [Candidate<'a>],
) -> impl Iterator<Item = &'b Candidate<'a>> {
    let holdings = Holdings::of(facts);
    ports.iter().filter(move |port| has_no_link(port) && holdings.has(port))
}

/// Returns the link layer of the HCAs that the Pod holds, if none of them has a link and others do.
pub(super) fn link_layer_without_link(facts: &Facts, ports: &[Candidate]) -> Option<LinkLayer> {
    let ports = without_unclaimed(facts, ports)?;
    if ports.iter().any(Candidate::is_used) {
        return None;
    }
    let held: Vec<&LinkLayer> = held_without_link(facts, &ports).map(|port| &port.port.link_layer).collect();
    let count = |link_layer: &LinkLayer| held.iter().filter(|held| **held == link_layer).count();
    let known = [LinkLayer::Ethernet, LinkLayer::InfiniBand];
    known.into_iter().filter(|link_layer| count(link_layer) > 0).max_by_key(count)
}

/// Returns the ports, each with the reason if another Pod may hold it; `None` if nothing shows what the Pod holds, or
/// that there are others.
fn without_unclaimed<'a>(facts: &Facts, ports: &[Candidate<'a>]) -> Option<Vec<Candidate<'a>>> {
    if facts.dra.is_empty() && facts.given.is_empty() {
        return None;
    }
    let mut ports = ports.to_vec();
    leave_out_unclaimed(facts, &mut ports).is_some().then_some(ports)
}

/// Returns the usable ports that Kubernetes has given to other Pods, as far as is known, each with the reason.
pub(crate) fn of_other_pods(facts: &Facts) -> Vec<(String, SkipReason)> {
    let ports = without_unclaimed(facts, &candidates(facts)).unwrap_or_default();
    let of_others = ports.into_iter().filter(Candidate::is_of_others);
    let reason = |port: Candidate| match &port.verdict {
        Verdict::LeftOut(reason) => Some((port.name(), reason.clone())),
        Verdict::Used => None,
    };
    of_others.filter_map(reason).collect()
}

/// Returns the ports as other libraries than NCCL must get them if none of the Pod's own has a link: as if these had one,
/// so that the libraries' lists name them, and not the ports of other Pods. Returns `None` in any other case.
pub(crate) fn as_if_linked<'a>(facts: &Facts, ports: &[Candidate<'a>]) -> Option<Vec<Candidate<'a>>> {
    if ports.iter().any(Candidate::is_used) || !ports.iter().any(Candidate::is_of_others) {
        return None;
    }
    let held: Vec<String> = held_without_link(facts, ports).map(Candidate::name).collect();
    let mut ports = ports.to_vec();
    for port in ports.iter_mut().filter(|port| held.contains(&port.name())) {
        port.verdict = Verdict::Used;
    }
    (!held.is_empty()).then_some(ports)
}

fn has_no_link(port: &Candidate) -> bool {
    matches!(port.verdict, Verdict::LeftOut(SkipReason::PortState(_)))
}

/// Skips the ports in use that no claim holds, if claims hold others. A claim for the front-end NIC alone
/// says nothing about the rails, which the Pod may have from a device plugin.
pub(crate) fn leave_out_unclaimed(facts: &Facts, ports: &mut [Candidate]) -> Option<NarrowingStep> {
    let holdings = Holdings::of(facts);
    if holdings.claims.is_empty() && holdings.given.is_empty() {
        return None;
    }
    // If all that the Pod holds has no link, the others may still belong to other Pods.
    let is_up = |port: &Candidate| {
        port.is_used() || matches!(port.verdict, Verdict::LeftOut(SkipReason::OtherLinkLayer(..)))
    };
    let all_are_down = !ports.iter().any(|port| is_up(port) && holdings.has(port));
    let counts =
        |port: &&Candidate| port.is_used() || all_are_down && has_no_link(port) && holdings.has(port);
    let has_claims = ports.iter().filter(counts).any(|port| holdings.has_claim_for(port));
    let is_claimed = |port: &Candidate| holdings.has(port);
    let carries_default_route = default_route::wanted(facts, OnDefaultRoute::Used);
    let is_front_end =
        |port: &&Candidate| port.port.link_layer == LinkLayer::Ethernet && carries_default_route(port);
    let (claimed, others): (Vec<&Candidate>, Vec<&Candidate>) =
        ports.iter().filter(counts).partition(|port| is_claimed(port));
    if claimed.is_empty() || (claimed.iter().all(is_front_end) && !others.iter().all(is_front_end)) {
        return None;
    }
    // If a plugin has given only NICs that are slower than the others, they are for storage, so they say
    // nothing about the rails either. The front-end NIC does not count: it is not a rail, however fast it is.
    let fastest = |ports: &[&Candidate]| {
        let rails = ports.iter().copied().filter(|port| !is_front_end(port));
        rails.map(|port| port.port.gigabits()).fold(0.0, f64::max)
    };
    if !has_claims && fastest(&claimed) < fastest(&others) {
        return None;
    }
    // Nor does a single NIC beside several GPUs.
    if !has_claims && holdings.is_one_beside_gpus(facts) {
        return None;
    }
    // If a Pod uses the node's network, CNI does not configure the functions that Kubernetes has given, so
    // they have no address.
    let own = gid::OwnAddresses::of(facts);
    let has_own_gid =
        |port: &&Candidate| port.port.link_layer != LinkLayer::Ethernet || !own.slots(port.port).is_empty();
    if !has_claims && !claimed.iter().any(has_own_gid) && others.iter().any(has_own_gid) {
        return None;
    }
    let mut names = Vec::new();
    for port in ports.iter_mut().filter(|port| port.is_used()) {
        if !is_claimed(port) {
            names.push(port.name());
            port.leave_out(if has_claims { SkipReason::NotClaimed } else { SkipReason::NotGiven });
        }
    }
    let step = if has_claims { NarrowingStep::Unclaimed } else { NarrowingStep::NotGiven };
    (!names.is_empty()).then(|| step(names))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ipnet::IpNet;

    use super::*;
    use crate::fabric::fake;
    use crate::facts::gid::{Gid, GidType};
    use crate::facts::net::Interface;
    use crate::facts::process::CapabilitySet;

    fn facts(claims: &[(&str, &str)]) -> Facts {
        let hca = |n| Hca { pci_address: (n != 3).then(|| format!("0000:{n}d:00.0")), ..fake::hca(n) };
        let device = |(name, value): &(&str, &str)| ClaimedDevice {
            driver: "dra.net".to_owned(),
            attributes: [((*name).to_owned(), (*value).to_owned())].into(),
            ..ClaimedDevice::default()
        };
        Facts {
            rdma: (0..4).map(hca).collect(),
            dra: claims.iter().map(device).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn claims_of_some_hcas_leave_out_the_others() {
        const PCI: &str = "resource.kubernetes.io/pciBusID";
        for (claims, left_out) in [
            (&[][..], &[][..]),
            (&[(PCI, "0000:1D:00.0"), ("dra.net/pciAddress", "0000:2d:00.0")], &["mlx5_0:1", "mlx5_3:1"]),
            // Without a PCI address on one side, the name decides.
            (&[("rdmaDevice", "mlx5_3")], &["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]),
            // A GPU, and a NIC of another machine.
            (&[(PCI, "0000:99:00.0"), ("dra.net/rdmaDevice", "mlx5_9")], &[]),
            (
                &[
                    (PCI, "0000:0d:00.0"),
                    (PCI, "0000:1d:00.0"),
                    (PCI, "0000:2d:00.0"),
                    ("rdmaDevice", "mlx5_3"),
                ],
                &[],
            ),
        ] {
            let facts = facts(claims);
            let mut ports = candidates(&facts);
            let step = leave_out_unclaimed(&facts, &mut ports);
            let unclaimed: Vec<String> = ports
                .iter()
                .filter(|port| port.verdict == Verdict::LeftOut(SkipReason::NotClaimed))
                .map(Candidate::name)
                .collect();
            assert_eq!(unclaimed, left_out, "{claims:?}");
            let names = left_out.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(step, (!left_out.is_empty()).then_some(NarrowingStep::Unclaimed(names)));
        }
    }

    #[test]
    fn held_hcas_without_a_link_do_not_free_those_of_other_pods() {
        let with = |is_claim: bool, down: &[usize]| {
            let mut facts = facts(if is_claim {
                &[("dra.net/pciAddress", "0000:0d:00.0"), ("dra.net/pciAddress", "0000:1d:00.0")]
            } else {
                &[]
            });
            if !is_claim {
                let device =
                    |address: &str| GivenDevice { address: address.to_owned(), ..GivenDevice::default() };
                facts.given = vec![device("0000:0d:00.0"), device("0000:1d:00.0")];
                facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
            }
            for hca in down {
                facts.rdma[*hca].ports[0].state = "DOWN".to_owned();
            }
            let mut ports = candidates(&facts);
            let _ = leave_out_unclaimed(&facts, &mut ports);
            ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect::<Vec<String>>()
        };
        for is_claim in [true, false] {
            assert_eq!(with(is_claim, &[0, 1]), [""; 0], "{is_claim}");
            assert_eq!(with(is_claim, &[0]), ["mlx5_1:1"], "{is_claim}");
            assert_eq!(with(is_claim, &[2, 3]), ["mlx5_0:1", "mlx5_1:1"], "{is_claim}");
        }
    }

    /// The Pod holds mlx5_0 and mlx5_1, of InfiniBand; the others are of RoCE, and together as fast or faster.
    #[test]
    fn one_held_hca_without_a_link_does_not_take_the_job_off_rdma() {
        let used = |rate: &str, down: &[usize]| {
            let mut facts =
                facts(&[("dra.net/pciAddress", "0000:0d:00.0"), ("dra.net/pciAddress", "0000:1d:00.0")]);
            for (number, hca) in facts.rdma.iter_mut().enumerate() {
                let is_held = number < 2;
                let (link_layer, rate) = match is_held {
                    true => (LinkLayer::InfiniBand, "400 Gb/sec (4X NDR)"),
                    false => (LinkLayer::Ethernet, rate),
                };
                (hca.ports[0].link_layer, hca.ports[0].rate) = (link_layer, rate.to_owned());
                if down.contains(&number) {
                    hca.ports[0].state = "DOWN".to_owned();
                }
            }
            let mut ports = candidates(&facts);
            crate::fabric::choose(&facts, &mut ports, &crate::fabric::Wanted::Rails(OnDefaultRoute::Judged));
            ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect::<Vec<String>>()
        };
        let same = "400 Gb/sec (4X NDR)";
        assert_eq!(used(same, &[]), ["mlx5_0:1", "mlx5_1:1"]);
        assert_eq!(used(same, &[0]), ["mlx5_2:1", "mlx5_3:1"], "more bandwidth, and the job keeps RDMA");
        assert_eq!(used("200 Gb/sec (4X HDR)", &[0]), ["mlx5_1:1"]);
        assert_eq!(used(same, &[0, 1]), [""; 0], "the others may belong to other Pods");
    }

    /// The Pod holds mlx5_0 and mlx5_1, of RoCE; the others are of InfiniBand.
    #[test]
    fn the_link_layer_is_that_of_the_held_hcas_even_if_none_has_a_link() {
        let found = |claims: &[(&str, &str)], down: &[usize]| {
            let mut facts = facts(claims);
            for (number, hca) in facts.rdma.iter_mut().enumerate() {
                let link_layer = if number < 2 { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
                (hca.ports[0].link_layer, hca.ports[0].rate) = (link_layer, "400 Gb/sec (4X NDR)".to_owned());
                if down.contains(&number) {
                    hca.ports[0].state = "DOWN".to_owned();
                }
            }
            let ports = candidates(&facts);
            let names = |ports: Vec<Candidate>| {
                ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect::<Vec<String>>()
            };
            let mut chosen = ports.clone();
            let wanted = crate::fabric::Wanted::Rails(OnDefaultRoute::Judged);
            crate::fabric::choose(&facts, &mut chosen, &wanted);
            let of_others: Vec<String> = of_other_pods(&facts).into_iter().map(|(name, _)| name).collect();
            let for_libraries = as_if_linked(&facts, &chosen).map(names).unwrap_or_default();
            (crate::fabric::link_layer_of_job(&facts, &ports), of_others, for_libraries)
        };
        let own = [("dra.net/pciAddress", "0000:0d:00.0"), ("dra.net/pciAddress", "0000:1d:00.0")];
        let (roce, infiniband) = (Some(LinkLayer::Ethernet), Some(LinkLayer::InfiniBand));
        let none = Vec::<String>::new;
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let others = || all(&["mlx5_2:1", "mlx5_3:1"]);
        assert_eq!(found(&own, &[0, 1]), (roce.clone(), others(), all(&["mlx5_0:1", "mlx5_1:1"])));
        assert_eq!(found(&own, &[0]), (infiniband.clone(), others(), none()), "one has a link");
        assert_eq!(found(&own, &[]), (roce, others(), none()));
        assert_eq!(found(&[], &[0, 1]), (infiniband, none(), none()), "nothing is known");
        assert_eq!(found(&own, &[0, 1, 2, 3]), (None, none(), none()), "there are no others");
    }

    #[test]
    fn the_given_ports_of_another_link_layer_are_told_if_no_given_one_is_used() {
        let told = |given: &[&str], claims: &[(&str, &str)]| {
            let mut facts = facts(claims);
            // Two of RoCE, and two of InfiniBand with more bandwidth.
            for (number, hca) in facts.rdma.iter_mut().enumerate() {
                let (link_layer, rate) = match number {
                    0 | 1 => (LinkLayer::Ethernet, "25 Gb/sec (1X EDR)"),
                    _ => (LinkLayer::InfiniBand, "400 Gb/sec (4X NDR)"),
                };
                (hca.ports[0].link_layer, hca.ports[0].rate) = (link_layer, rate.to_owned());
            }
            let device =
                |address: &&str| GivenDevice { address: (*address).to_owned(), ..GivenDevice::default() };
            facts.given = given.iter().map(device).collect();
            facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
            let mut ports = candidates(&facts);
            let wanted = crate::fabric::Wanted::Rails(OnDefaultRoute::Judged);
            crate::fabric::choose(&facts, &mut ports, &wanted);
            of_other_link_layer(&facts, &ports).into_iter().map(Candidate::name).collect::<Vec<String>>()
        };
        assert_eq!(told(&["0000:0d:00.0", "0000:1d:00.0"], &[]), ["mlx5_0:1", "mlx5_1:1"]);
        assert_eq!(told(&[], &[("rdmaDevice", "mlx5_3"), ("dra.net/pciAddress", "0000:1d:00.0")]), [""; 0]);
        assert_eq!(told(&[], &[("dra.net/pciAddress", "0000:1d:00.0")]), ["mlx5_1:1"]);
        assert_eq!(told(&["0000:0d:00.0", "0000:2d:00.0"], &[]), [""; 0]);
        assert_eq!(told(&[], &[]), [""; 0]);
    }

    #[test]
    fn a_device_plugin_narrows_a_privileged_container_alone() {
        let with = |given: &[&str], rates: [&str; 4], is_privileged: bool| {
            let mut facts = facts(&[]);
            for (hca, rate) in facts.rdma.iter_mut().zip(rates) {
                hca.ports[0].rate = rate.to_owned();
            }
            let device =
                |address: &&str| GivenDevice { address: (*address).to_owned(), ..GivenDevice::default() };
            facts.given = given.iter().map(device).collect();
            if is_privileged {
                facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
            }
            let mut ports = candidates(&facts);
            leave_out_unclaimed(&facts, &mut ports)
        };
        const FAST: [&str; 4] = ["400 Gb/sec (4X NDR)"; 4];
        let two = ["0000:0d:00.0", "0000:1d:00.0"];
        let others = vec!["mlx5_2:1".to_owned(), "mlx5_3:1".to_owned()];
        assert_eq!(with(&two, FAST, true), Some(NarrowingStep::NotGiven(others)));
        assert_eq!(with(&two, FAST, false), None);
        assert_eq!(with(&["0000:99:00.0"], FAST, true), None);
        let slow = "100 Gb/sec (4X EDR)";
        assert_eq!(with(&two, [slow, slow, FAST[0], FAST[0]], true), None);
    }

    #[test]
    fn one_nic_beside_several_gpus_is_for_storage() {
        for (gpus, is_narrowed) in [(None, true), (Some(1), true), (Some(8), false)] {
            let mut facts = facts(&[]);
            facts.given = vec![GivenDevice { address: "0000:0d:00.0".to_owned(), ..GivenDevice::default() }];
            facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
            facts.gpu.count = gpus;
            let mut ports = candidates(&facts);
            assert_eq!(leave_out_unclaimed(&facts, &mut ports).is_some(), is_narrowed, "{gpus:?}");
        }
    }

    /// As in the node's network: the other HCAs' interfaces have addresses, but those of the given HCAs have
    /// none.
    #[test]
    fn hcas_without_an_address_do_not_replace_those_with_one() {
        let mut facts = facts(&[]);
        let device = |address: &str| GivenDevice { address: address.to_owned(), ..GivenDevice::default() };
        facts.given = vec![device("0000:0d:00.0"), device("0000:1d:00.0")];
        facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
        for hca in &mut facts.rdma {
            hca.ports[0].link_layer = LinkLayer::Ethernet;
        }
        let mut ports = candidates(&facts);
        assert!(leave_out_unclaimed(&facts, &mut ports).is_some(), "none of them has an address");
        let address = Ipv4Addr::new(10, 1, 0, 2);
        let gid = Gid { index: 3, gid: address.to_ipv6_mapped(), kind: GidType::RoceV2, netdev: None };
        facts.rdma[2].ports[0].gids.slots = vec![gid];
        let addresses = vec![IpNet::new(address.into(), 24).unwrap()];
        facts.net.interfaces = vec![Interface { name: "eth2".to_owned(), addresses, ..Interface::default() }];
        let mut ports = candidates(&facts);
        assert!(leave_out_unclaimed(&facts, &mut ports).is_none());
    }
}
