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
    let mut facts = Facts {
        rdma: (0..4).map(hca).collect(),
        dra: claims.iter().map(device).collect(),
        ..Facts::default()
    };
    facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
    facts
}

#[test]
fn claims_of_some_hcas_leave_out_the_others() {
    const PCI: &str = "resource.kubernetes.io/pciBusID";
    for (claims, left_out) in [
        (&[][..], &[][..]),
        (&[(PCI, "0000:1D:00.0"), ("dra.net/pciAddress", "0000:2d:00.0")], &["mlx5_0:1", "mlx5_3:1"]),
        // Without a PCI address on one side, the name decides.
        (&[("rdmaDevice", "mlx5_3")], &["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]),
        // An address that is none counts as absent.
        (&[(PCI, ""), ("rdmaDevice", "mlx5_3"), (PCI, "00000000:2D:00.0")], &["mlx5_0:1", "mlx5_1:1"]),
        // A GPU, and a NIC of another machine.
        (&[(PCI, "0000:99:00.0"), ("dra.net/rdmaDevice", "mlx5_9")], &[]),
        (
            &[(PCI, "0000:0d:00.0"), (PCI, "0000:1d:00.0"), (PCI, "0000:2d:00.0"), ("rdmaDevice", "mlx5_3")],
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
        let own = Ipv4Addr::new(10, 1, 0, 2);
        let addresses = vec![IpNet::new(own.into(), 24).unwrap()];
        facts.net.interfaces = vec![Interface { name: "eth1".to_owned(), addresses, ..Interface::default() }];
        for (number, hca) in facts.rdma.iter_mut().enumerate() {
            let link_layer = if number < 2 { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
            if link_layer == LinkLayer::Ethernet {
                let gid = Gid { index: 3, gid: own.to_ipv6_mapped(), kind: GidType::RoceV2, netdev: None };
                hca.ports[0].gids.slots = vec![gid];
            }
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
        if !is_privileged {
            facts.process.capabilities.bounding = CapabilitySet::default();
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

/// Claims narrow the job whatever the claimed HCAs are, as variables of a device plugin do not.
#[test]
fn claims_narrow_a_privileged_container_alone_and_also_to_slower_hcas() {
    let own = [("dra.net/pciAddress", "0000:0d:00.0")];
    let is_narrowed = |change: &dyn Fn(&mut Facts)| {
        let mut facts = facts(&own);
        facts.gpu.count = Some(8);
        for hca in &mut facts.rdma {
            hca.ports[0].rate = "400 Gb/sec (4X NDR)".to_owned();
        }
        change(&mut facts);
        let mut ports = candidates(&facts);
        let step = leave_out_unclaimed(&facts, &mut ports);
        (step.is_some(), one_beside_gpus(&facts, &ports).map(|(used, left)| (used.to_owned(), left.len())))
    };
    assert_eq!(is_narrowed(&|_| ()), (true, Some(("mlx5_0".to_owned(), 3))));
    assert_eq!(is_narrowed(&|facts| facts.gpu.count = Some(1)), (true, None));
    assert_eq!(
        is_narrowed(&|facts| facts.process.capabilities.bounding = CapabilitySet::default()),
        (false, None)
    );
    let slower = |facts: &mut Facts| facts.rdma[0].ports[0].rate = "25 Gb/sec (1X EDR)".to_owned();
    assert_eq!(is_narrowed(&slower), (true, Some(("mlx5_0".to_owned(), 3))));
    assert_eq!(
        is_narrowed(&|facts| {
            slower(facts);
            facts.rdma[0].ports[0].state = "DOWN".to_owned();
        }),
        (true, None),
        "a port without a link shows no rate"
    );
}

#[test]
fn used_ports_that_nothing_gave_to_the_pod_are_those_of_a_privileged_container() {
    let names = |claims: &[(&str, &str)], is_privileged: bool| {
        let mut facts = facts(claims);
        if !is_privileged {
            facts.process.capabilities.bounding = CapabilitySet::default();
        }
        let ports = candidates(&facts);
        used_without_a_claim(&facts, &ports).into_iter().map(Candidate::name).collect::<Vec<String>>()
    };
    let elsewhere = [("dra.net/pciAddress", "0000:99:00.0")];
    assert_eq!(names(&elsewhere, true), ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"]);
    assert_eq!(names(&elsewhere, false), [""; 0]);
    assert_eq!(names(&[("dra.net/pciAddress", "0000:1d:00.0")], true), [""; 0]);
}

#[test]
fn the_nics_of_claims_are_counted_whether_or_not_they_work() {
    let device = |address: &str| {
        let attributes = [("dra.net/pciAddress", address), ("dra.net/rdma", "true")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        ClaimedDevice { driver: "dra.net".to_owned(), attributes, ..ClaimedDevice::default() }
    };
    let count = |addresses: &[&str], down: &[usize]| {
        let mut facts = facts(&[]);
        facts.rdma.truncate(3);
        facts.dra = addresses.iter().map(|address| device(address)).collect();
        for hca in down {
            facts.rdma[*hca].ports[0].state = "DOWN".to_owned();
        }
        let mut ports = candidates(&facts);
        let _ = leave_out_unclaimed(&facts, &mut ports);
        let missing: Vec<String> =
            missing(&facts).into_iter().filter_map(ClaimedDevice::pci_address).collect();
        (nics(&facts, &ports), missing.join(" "))
    };
    assert_eq!(count(&["0000:0d:00.0", "0000:1D:00.0"], &[]), (Some(2), String::new()));
    assert_eq!(count(&["0000:0d:00.0", "0000:1d:00.0"], &[1]), (Some(2), String::new()));
    let twice = ["0000:0d:00.0", "0000:99:00.0", "0000:99:00.0"];
    assert_eq!(count(&twice, &[]), (Some(2), "0000:99:00.0".to_owned()));
    assert_eq!(count(&["0000:99:00.0"], &[]), (None, "0000:99:00.0".to_owned()), "the job uses others");
    assert_eq!(count(&[], &[]), (None, String::new()));
}
