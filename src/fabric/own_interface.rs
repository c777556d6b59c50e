//! The interface of a port, where it is in this network namespace.

use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::net::Interface;
use crate::facts::rdma::{Hca, LinkLayer, Port};

/// The interface that has an address of one of the port's GIDs, link-local ones included, or
/// that is on the same PCI device.
pub fn of<'a>(facts: &'a Facts, hca: &Hca, port: &Port) -> Option<&'a Interface> {
    let has = |interface: &Interface, gid: &Gid| {
        interface.addresses.iter().any(|address| address.addr() == gid.address())
    };
    let slots = &port.gids.slots;
    let by_name = |interface: &&Interface| {
        slots.iter().any(|gid| gid.netdev.as_ref() == Some(&interface.name) && has(interface, gid))
    };
    // A GID may tell no name, and an address may have a label for its own name.
    let by_address = |interface: &&Interface| slots.iter().any(|gid| has(interface, gid));
    let by_device =
        |interface: &&Interface| hca.pci_address.is_some() && hca.pci_address == interface.pci_address;
    let find = |is_it: &dyn Fn(&&Interface) -> bool| facts.net.interfaces.iter().find(|one| is_it(one));
    find(&by_name).or_else(|| find(&by_address)).or_else(|| find(&by_device))
}

/// Whether a port is in this network namespace: its interface is here. An InfiniBand port is
/// in all of them.
pub fn is_here(facts: &Facts, port: &Candidate) -> bool {
    port.port.link_layer != LinkLayer::Ethernet
        // Nobody knows which interfaces there are.
        || facts.net.interfaces.is_empty()
        || of(facts, port.hca, port.port).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Verdict;
    use crate::facts::gid::GidTable;

    const ADDRESS: &str = "fe80::9/64";

    fn interface(name: &str, address: Option<&str>, pci: Option<&str>) -> Interface {
        Interface {
            name: name.to_owned(),
            addresses: address.iter().map(|address| address.parse().unwrap()).collect(),
            pci_address: pci.map(str::to_owned),
            ..Interface::default()
        }
    }

    /// The interface of a RoCE port with one GID, which tells this name.
    fn found(interfaces: &[Interface], netdev: Option<&str>) -> Option<String> {
        let mut facts = Facts::default();
        facts.net.interfaces = interfaces.to_vec();
        let netdev = netdev.map(str::to_owned);
        let gid = Gid { index: 1, gid: "fe80::9".parse().unwrap(), kind: Default::default(), netdev };
        let gids = GidTable { slots: vec![gid], ..GidTable::default() };
        let port = Port { link_layer: LinkLayer::Ethernet, gids, ..Port::default() };
        let hca = Hca { pci_address: Some("0000:01:00.0".to_owned()), ..Hca::default() };
        let name = of(&facts, &hca, &port).map(|interface| interface.name.clone());
        let candidate = Candidate { hca: &hca, port: &port, verdict: Verdict::Used };
        assert_eq!(is_here(&facts, &candidate), interfaces.is_empty() || name.is_some());
        name
    }

    #[test]
    fn the_name_tells_most_then_the_address_then_the_pci_device() {
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
