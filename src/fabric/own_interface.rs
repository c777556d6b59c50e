//! The interfaces of ports, if they are in this network namespace.

use std::collections::HashMap;
use std::net::IpAddr;

use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::{Hca, LinkLayer, Port};

/// Interfaces in an order of preference, indexed so that many ports can be looked up: a host may have
/// hundreds of both.
pub(crate) struct Index<'a> {
    interfaces: Vec<&'a Interface>,
    /// Positions in `interfaces`; if several interfaces share a key, the first one.
    by_name: HashMap<(&'a str, IpAddr), usize>,
    by_address: HashMap<IpAddr, usize>,
    by_device: HashMap<&'a str, usize>,
}

impl<'a> Index<'a> {
    /// Returns all interfaces, in the kernel's order.
    pub(crate) fn of(facts: &'a Facts) -> Index<'a> {
        Index::of_these(facts.net.interfaces.iter().collect())
    }

    pub(crate) fn of_these(interfaces: Vec<&'a Interface>) -> Index<'a> {
        let (mut by_name, mut by_address) = (HashMap::new(), HashMap::new());
        let mut by_device = HashMap::new();
        for (position, interface) in interfaces.iter().enumerate() {
            for address in interface.addresses.iter().map(|net| net.addr()) {
                by_name.entry((interface.name.as_str(), address)).or_insert(position);
                by_address.entry(address).or_insert(position);
            }
            if let Some(device) = &interface.pci_address {
                by_device.entry(device.as_str()).or_insert(position);
            }
        }
        Index { interfaces, by_name, by_address, by_device }
    }

    /// Returns the interface that has the address of one of the port's GIDs (link-local ones included), or
    /// that is on the same PCI device.
    pub(crate) fn find(&self, hca: &Hca, port: &Port) -> Option<&'a Interface> {
        // A GID may lack the netdev's name, and an address may have a label in place of it.
        let found = self.by_name(port).or_else(|| self.by_address(port)).or_else(|| self.by_device(hca));
        found.map(|position| self.interfaces[position])
    }

    /// Returns whether a port is in this network namespace, which means that its interface is here.
    /// InfiniBand ports are in every namespace.
    pub(crate) fn is_here(&self, port: &Candidate) -> bool {
        port.port.link_layer != LinkLayer::Ethernet
            // No interfaces are listed, so it is unknown which ones exist.
            || self.interfaces.is_empty()
            || self.find(port.hca, port.port).is_some()
    }

    /// Returns the position of the first interface whose name and address match one of the port's GIDs.
    pub(crate) fn by_name(&self, port: &Port) -> Option<usize> {
        let slots = port.gids.slots.iter();
        let keys = slots.filter_map(|gid| Some((gid.netdev.as_deref()?, gid.address())));
        keys.filter_map(|key| self.by_name.get(&key)).min().copied()
    }

    fn by_address(&self, port: &Port) -> Option<usize> {
        port.gids.slots.iter().filter_map(|gid| self.by_address.get(&gid.address())).min().copied()
    }

    /// Returns the position of the first interface that is on the HCA's PCI device.
    pub(crate) fn by_device(&self, hca: &Hca) -> Option<usize> {
        self.by_device.get(hca.pci_address.as_deref()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Verdict;
    use crate::facts::gid::{Gid, GidTable};

    const ADDRESS: &str = "fe80::9/64";

    fn interface(name: &str, address: Option<&str>, pci: Option<&str>) -> Interface {
        Interface {
            name: name.to_owned(),
            addresses: address.iter().map(|address| address.parse().unwrap()).collect(),
            pci_address: pci.map(str::to_owned),
            ..Interface::default()
        }
    }

    /// Returns the interface that is found for a RoCE port whose single GID has this netdev.
    fn found(interfaces: &[Interface], netdev: Option<&str>) -> Option<String> {
        let mut facts = Facts::default();
        facts.net.interfaces = interfaces.to_vec();
        let netdev = netdev.map(str::to_owned);
        let gid = Gid { index: 1, gid: "fe80::9".parse().unwrap(), kind: Default::default(), netdev };
        let gids = GidTable { slots: vec![gid], ..GidTable::default() };
        let port = Port { link_layer: LinkLayer::Ethernet, gids, ..Port::default() };
        let hca = Hca { pci_address: Some("0000:01:00.0".to_owned()), ..Hca::default() };
        let index = Index::of(&facts);
        let name = index.find(&hca, &port).map(|interface| interface.name.clone());
        let candidate = Candidate { hca: &hca, port: &port, verdict: Verdict::Used };
        assert_eq!(index.is_here(&candidate), interfaces.is_empty() || name.is_some());
        name
    }

    #[test]
    fn the_name_decides_before_the_address_and_the_pci_device() {
        let [label, eth1] = ["eth1:0", "eth1"].map(|name| interface(name, Some(ADDRESS), None));
        let card = interface("eth2", None, Some("0000:01:00.0"));
        let other = interface("eth3", Some("fe80::8/64"), Some("0000:02:00.0"));
        let all = [other.clone(), card.clone(), label.clone(), eth1];
        assert_eq!(found(&all, Some("eth1")).as_deref(), Some("eth1"));
        assert_eq!(found(&all, None).as_deref(), Some("eth1:0"));
        assert_eq!(found(&[card.clone(), label], Some("eth1")).as_deref(), Some("eth1:0"));
        assert_eq!(found(&[other.clone(), card], Some("eth1")).as_deref(), Some("eth2"));
        assert_eq!(found(&[other], Some("eth3")), None);
        assert_eq!(found(&[], Some("eth1")), None);
    }
}
