//! Which ports NCCL combines into one NIC: up to 2.23 when it looks for HCAs (`ncclIbFindMatchingDev` in
//! `src/transport/net_ib.cc`), since 2.24 when it builds its topology (`ncclTopoAutoMerge` in
//! `src/graph/topo.cc`). NCCL calls this merging or fusing.

use super::data_direct::{GpuPaths, ways};
use super::list::Pattern;
use super::number::integer;
use super::version::{
    FUSES_ALL_OR_NONE, FUSES_BY_TOPOLOGY, FUSES_EIGHT, FUSES_NICS, FUSES_RAILS, FUSION_MAY_FAIL,
    HAS_DATA_DIRECT, SORTS_DEVICES, Version,
};
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};

/// What NCCL makes of the ports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fusion<'a> {
    /// The ports of each NIC that has more than one.
    Nics(Vec<Vec<(&'a Hca, &'a Port)>>),
    /// NCCL's message. From 2.24 to 2.25 the job fails if ports cannot be merged.
    Fails(&'static str),
    /// The result depends on facts that are unknown here, or on rules that this model does not follow.
    Unknown,
}

/// The variable that limits how far apart the ports of one NIC may be.
pub(crate) const LEVEL: &str = "NCCL_NET_MERGE_LEVEL";
/// The variable that turns merging on or off.
pub(crate) const SWITCH: &str = "NCCL_IB_MERGE_NICS";

/// How far apart the ports of a NIC may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FusionLevel {
    /// Each port is a NIC.
    Loc,
    /// A NIC consists of the ports of one PCI device.
    Port,
    /// A NIC may include ports that are farther apart. NCCL's own topology decides, which is not modeled.
    Farther,
}

/// The words for the level, in the order in which NCCL compares them. NCCL compares prefixes, and takes any
/// other text as `LOC` (`kvConvertToInt`).
const LEVELS: &[(&str, FusionLevel)] = &[
    ("LOC", FusionLevel::Loc),
    ("PORT", FusionLevel::Port),
    ("PIX", FusionLevel::Farther),
    ("PXB", FusionLevel::Farther),
    ("P2C", FusionLevel::Farther),
    ("PXN", FusionLevel::Farther),
    ("PHB", FusionLevel::Farther),
    ("SYS", FusionLevel::Farther),
];

/// Returns the NICs that a release makes of the ports that it uses, given in the order in which it uses them.
pub(crate) fn fuse<'a, 'e>(
    facts: &Facts,
    ports: &[(&'a Hca, &'a Port)],
    get: &impl Fn(&str) -> Option<&'e str>,
    version: Version,
) -> Fusion<'a> {
    if ports.len() < 2 {
        return Fusion::Nics(Vec::new());
    }
    let ports = in_order(ports, get, version);
    let ports = ports.as_slice();
    let is_on = |name| is_on(name, get, version);
    // From 2.24 to 2.26, NCCL keeps the devices of a bus apart here regardless of the variable.
    let merges_vfs = is_on("NCCL_IB_MERGE_VFS") && !(FUSES_BY_TOPOLOGY..HAS_DATA_DIRECT).contains(&version);
    let places: Option<Vec<String>> =
        ports.iter().map(|(hca, _)| place(hca.pci_address.as_deref()?, merges_vfs)).collect();
    let Some(places) = places else {
        return Fusion::Unknown;
    };
    if version < FUSES_NICS {
        return Fusion::Nics(Vec::new());
    }
    let nics = match version < FUSES_BY_TOPOLOGY {
        true if !is_on(SWITCH) => Vec::new(),
        true => {
            let nics = while_looking(ports, &places);
            let is_mixed = nics.iter().any(|nic| nic.len() != nics[0].len());
            if is_mixed && version >= FUSES_ALL_OR_NONE { Vec::new() } else { nics }
        }
        false => {
            let level = get(LEVEL).map_or(FusionLevel::Port, |text| {
                LEVELS
                    .iter()
                    .find(|(word, _)| text.starts_with(word))
                    .map_or(FusionLevel::Loc, |(_, level)| *level)
            });
            let has_functions = !facts.data_direct.is_empty() && ways(get, version) != GpuPaths::Own;
            // With Data Direct, the PCI places of the functions count instead of the HCAs' places.
            if get("NCCL_NET_FORCE_MERGE").is_some() || level == FusionLevel::Farther || has_functions {
                return Fusion::Unknown;
            }
            if level == FusionLevel::Loc {
                return Fusion::Nics(Vec::new());
            }
            let rails = rails(ports, get, version);
            match by_topology(ports, &places, rails.as_deref(), is_on(SWITCH), version) {
                Ok(nics) => nics,
                Err(message) => return Fusion::Fails(message),
            }
        }
    };
    let several = nics.into_iter().filter(|nic| nic.len() > 1);
    Fusion::Nics(several.map(|nic| nic.into_iter().map(|index| ports[index]).collect()).collect())
}

/// Returns the ports in the order in which a release numbers them.
pub(crate) fn in_order<'a, 'e>(
    ports: &[(&'a Hca, &'a Port)],
    get: &impl Fn(&str) -> Option<&'e str>,
    version: Version,
) -> Vec<(&'a Hca, &'a Port)> {
    let mut ports = ports.to_vec();
    if version >= SORTS_DEVICES && is_on("NCCL_IB_DEVICE_PCI_ORDER", get, version) {
        ports.sort_by_key(|(hca, _)| hca.pci_address.as_deref().and_then(number));
    }
    ports
}

/// Returns whether a switch that is on by default is on.
fn is_on<'e>(name: &str, get: &impl Fn(&str) -> Option<&'e str>, version: Version) -> bool {
    get(name).and_then(|value| integer(value, version)).is_none_or(|number| number != 0)
}

/// Returns the PCI address that counts: NCCL treats all functions of a device as one, and with
/// `NCCL_IB_MERGE_VFS` all devices of a bus as one (`ncclIbGetPciPath`).
fn place(address: &str, merges_vfs: bool) -> Option<String> {
    let (device, _function) = address.split_once('.')?;
    let (bus, _device) = device.rsplit_once(':')?;
    Some(if merges_vfs { format!("{bus}:00.0") } else { format!("{device}.0") })
}

/// Returns the PCI address as the number by which NCCL sorts (`pciPathToInt64`).
fn number(address: &str) -> Option<u64> {
    u64::from_str_radix(&address.replace([':', '.'], ""), 16).ok()
}

/// Returns the NICs of releases 2.20 to 2.23: each port joins the first NIC with room whose first port has
/// the same place, NIC and link layer.
fn while_looking(ports: &[(&Hca, &Port)], places: &[String]) -> Vec<Vec<usize>> {
    const MOST: usize = 2;
    let mut nics: Vec<Vec<usize>> = Vec::new();
    for (index, (hca, port)) in ports.iter().enumerate() {
        let fits = |nic: &&mut Vec<usize>| {
            let first = nic[0];
            nic.len() < MOST
                && places[first] == places[index]
                && ports[first].0.system_guid == hca.system_guid
                && ports[first].1.link_layer == port.link_layer
        };
        match nics.iter_mut().find(fits) {
            Some(nic) => nic.push(index),
            None => nics.push(vec![index]),
        }
    }
    nics
}

/// Returns the NICs of releases since 2.24: each port in turn takes the nearby ports that no other port has
/// taken. If these cannot form one NIC, NCCL treats them as far apart and tries again.
fn by_topology(
    ports: &[(&Hca, &Port)],
    places: &[String],
    rails: Option<&[Option<i64>]>,
    may_fuse: bool,
    version: Version,
) -> Result<Vec<Vec<usize>>, &'static str> {
    let most = if version >= FUSES_EIGHT { 8 } else { 4 };
    let link_layer = |index: usize| -> &LinkLayer { &ports[index].1.link_layer };
    let is_same_rail =
        |a: usize, b: usize| rails.is_none_or(|rails| rails[a].is_some() && rails[a] == rails[b]);
    let mut apart: Vec<(usize, usize)> = Vec::new();
    let mut taken = vec![false; ports.len()];
    let mut nics: Vec<Vec<usize>> = Vec::new();
    let mut index = 0;
    while index < ports.len() {
        if taken[index] {
            index += 1;
            continue;
        }
        let mut nic = vec![index];
        for other in 0..ports.len() {
            let is_near = places[other] == places[index] && !apart.contains(&(index, other));
            if nic.len() < most && other != index && !taken[other] && is_near && is_same_rail(index, other) {
                nic.push(other);
            }
        }
        let is_possible = may_fuse && nic.iter().all(|other| link_layer(*other) == link_layer(index));
        if nic.len() > 1 && !is_possible {
            if version < FUSION_MAY_FAIL {
                return Err(
                    "TOPO/NET : Tried merging multiple devices together and failed. Try setting NCCL_NET_MERGE_LEVEL=LOC",
                );
            }
            for &other in &nic[1..] {
                apart.extend([(index, other), (other, index)]);
            }
            // NCCL restarts with the second port, not with the first.
            index = 1;
            continue;
        }
        nic.iter().for_each(|&port| taken[port] = true);
        nics.push(nic);
        index += 1;
    }
    Ok(nics)
}

/// Returns the rail of each port if only ports of one rail may become a NIC; `None` if rails do not matter.
fn rails<'e>(
    ports: &[(&Hca, &Port)],
    get: &impl Fn(&str) -> Option<&'e str>,
    version: Version,
) -> Option<Vec<Option<i64>>> {
    let is_by_rail = version >= FUSES_RAILS && get("NCCL_NET_MERGE_POLICY")?.eq_ignore_ascii_case("RAIL");
    is_by_rail.then(|| {
        let list = Pattern::of_hcas(get("NCCL_IB_HCA").unwrap_or_default(), version);
        ports.iter().map(|(hca, port)| list.entry(&hca.name, port.number)?.rail).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Version = Version::new(2, 20, 5);
    const STRICT: Version = Version::new(2, 25, 1);
    const NEW: Version = Version::new(2, 28, 9);
    const NEWER: Version = Version::new(2, 30, 7);

    fn hca(name: &str, address: &str, link_layer: &str) -> Hca {
        let link_layer = link_layer.to_owned().into();
        Hca {
            name: name.to_owned(),
            pci_address: Some(address.to_owned()),
            ports: vec![Port { number: 1, link_layer, ..Port::default() }],
            ..Hca::default()
        }
    }

    fn ethernet(addresses: &[&str]) -> Vec<Hca> {
        addresses.iter().enumerate().map(|(n, address)| hca(&format!("m{n}"), address, "Ethernet")).collect()
    }

    /// Returns `m0+m1` for each NIC of several ports, or the other outcome.
    fn shown(hcas: &[Hca], variables: &[(&str, &str)], version: Version) -> String {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let ports: Vec<(&Hca, &Port)> =
            hcas.iter().flat_map(|hca| hca.ports.iter().map(move |port| (hca, port))).collect();
        match fuse(&Facts::default(), &ports, &get, version) {
            Fusion::Nics(nics) => {
                let names = |nic: &Vec<(&Hca, &Port)>| {
                    nic.iter().map(|(hca, _)| hca.name.as_str()).collect::<Vec<_>>().join("+")
                };
                nics.iter().map(names).collect::<Vec<_>>().join(" ")
            }
            Fusion::Fails(_) => "fails".to_owned(),
            Fusion::Unknown => "unknown".to_owned(),
        }
    }

    #[test]
    fn functions_of_one_device_are_one_nic() {
        let spark = ethernet(&["0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1"]);
        assert_eq!(shown(&spark, &[], Version::new(2, 19, 3)), "");
        for version in [OLD, STRICT, NEW, NEWER] {
            assert_eq!(shown(&spark, &[], version), "m0+m1 m2+m3", "{version}");
        }
        for (level, nics) in [
            ("LOC", ""),
            ("PORT", "m0+m1 m2+m3"),
            ("port", ""),
            ("", ""),
            ("PIX", "unknown"),
            ("PORTS", "m0+m1 m2+m3"),
        ] {
            assert_eq!(shown(&spark, &[(LEVEL, level)], NEW), nics, "{level}");
            assert_eq!(shown(&spark, &[(LEVEL, level)], OLD), "m0+m1 m2+m3", "the variable came with 2.24");
        }
        assert_eq!(shown(&spark, &[("NCCL_NET_FORCE_MERGE", "m0,m2")], NEW), "unknown");
    }

    #[test]
    fn virtual_functions_of_one_bus_are_one_nic_as_far_as_there_is_room() {
        let vfs = ethernet(&["0000:03:00.2", "0000:03:01.0", "0000:03:02.5", "0000:03:02.6", "0000:03:03.0"]);
        assert_eq!(shown(&vfs, &[], OLD), "m0+m1 m2+m3");
        assert_eq!(shown(&vfs, &[], Version::new(2, 26, 2)), "m2+m3");
        assert_eq!(shown(&vfs, &[], NEW), "m0+m1+m2+m3");
        assert_eq!(shown(&vfs, &[], NEWER), "m0+m1+m2+m3+m4");
        let apart = [("NCCL_IB_MERGE_VFS", "0")];
        assert_eq!(shown(&vfs, &apart, OLD), "m2+m3");
        assert_eq!(shown(&vfs, &apart, NEW), "m2+m3");
    }

    #[test]
    fn some_releases_want_nics_of_one_size() {
        let mixed = ethernet(&["0000:01:00.0", "0000:01:00.1", "0000:02:00.0"]);
        for (minor, nics) in [(20, "m0+m1"), (21, "m0+m1"), (22, ""), (23, ""), (24, "m0+m1")] {
            assert_eq!(shown(&mixed, &[], Version::new(2, minor, 3)), nics, "2.{minor}");
        }
        assert_eq!(shown(&mixed[..2], &[], Version::new(2, 22, 3)), "m0+m1");
    }

    #[test]
    fn what_cannot_be_one_nic_stays_apart_or_ends_the_job() {
        let mut vpi = ethernet(&["0000:01:00.0", "0000:01:00.1", "0000:01:00.2"]);
        vpi[0].ports[0].link_layer = LinkLayer::InfiniBand;
        assert_eq!(shown(&vpi, &[], OLD), "m1+m2");
        assert_eq!(shown(&vpi, &[], STRICT), "fails");
        assert_eq!(shown(&vpi, &[], NEW), "m1+m2");
        let two = ethernet(&["0000:01:00.0", "0000:01:00.1"]);
        let off = [(SWITCH, "0")];
        assert_eq!([OLD, STRICT, NEW].map(|version| shown(&two, &off, version)), ["", "fails", ""]);
        let mut cards = two.clone();
        cards[0].system_guid = Some("1".to_owned());
        assert_eq!(shown(&cards, &[], OLD), "", "only 2.20 to 2.23 look at the card");
        assert_eq!(shown(&cards, &[], NEW), "m0+m1");
    }

    #[test]
    fn rails_keep_ports_apart_where_that_is_asked_for() {
        let two = ethernet(&["0000:01:00.0", "0000:01:00.1", "0000:01:00.2"]);
        let by_rail = |list| [("NCCL_NET_MERGE_POLICY", "rail"), ("NCCL_IB_HCA", list)];
        assert_eq!(shown(&two, &by_rail("=m0::1,m1::2,m2::1"), NEWER), "m0+m2");
        assert_eq!(shown(&two, &by_rail("=m0,m1,m2"), NEWER), "", "a port without a rail stays alone");
        assert_eq!(shown(&two, &by_rail("=m0::1,m1::2,m2::1"), NEW), "m0+m1+m2");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let mut two = ethernet(&["0000:01:00.0", "0000:01:00.1"]);
        two[1].pci_address = None;
        assert_eq!(shown(&two, &[], NEW), "unknown");
        assert_eq!(shown(&two[1..], &[], NEW), "", "one port is one NIC");
    }
}
