//! HCAs that share a cable. On DGX Spark (GB10), each socket of the ConnectX-7 is behind two PCIe links, so
//! each cable appears as two HCAs with the same function in two PCI domains, such as `rocep1s0f0` and
//! `roceP2p1s0f0`. Each of the two has half of the bandwidth and its own interface.

use super::port::Candidate;

/// Returns a used port that is the other half of this port's cable.
#[must_use]
pub(crate) fn in_use<'a, 'b>(ports: &'b [Candidate<'a>], port: &Candidate) -> Option<&'b Candidate<'a>> {
    let (domain, device) = port.hca.pci_address.as_deref()?.split_once(':')?;
    let is_twin = |other: &&Candidate| {
        let address = other.hca.pci_address.as_deref().and_then(|address| address.split_once(':'));
        // Other machines, too, have NICs with the same address in several domains.
        let is_of_nic = port.hca.system_guid.is_some() && port.hca.system_guid == other.hca.system_guid;
        is_of_nic && address.is_some_and(|(other, same)| other != domain && same == device)
    };
    ports.iter().filter(|other| other.is_used()).find(is_twin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{SkipReason, Verdict};
    use crate::facts::rdma::{Hca, Port};

    #[test]
    fn the_same_function_of_one_nic_in_another_domain_is_the_other_half() {
        let hca = |name: &str, address: &str, nic: Option<&str>| Hca {
            name: name.to_owned(),
            pci_address: Some(address.to_owned()),
            system_guid: nic.map(str::to_owned),
            ..Hca::default()
        };
        let port = Port::default();
        let twin = |others: &[Hca], own: &Hca| {
            let used = others.iter().map(|hca| Candidate { hca, port: &port, verdict: Verdict::Used });
            let used: Vec<Candidate> = used.collect();
            let verdict = Verdict::LeftOut(SkipReason::NoOwnGid);
            in_use(&used, &Candidate { hca: own, port: &port, verdict }).map(|twin| twin.hca.name.clone())
        };
        let nic = Some("4821:0b03");
        let used = [hca("rocep1s0f1", "0000:01:00.1", nic), hca("rocep1s0f0", "0000:01:00.0", nic)];
        assert_eq!(twin(&used, &hca("a", "0002:01:00.0", nic)).as_deref(), Some("rocep1s0f0"));
        assert_eq!(twin(&used, &hca("a", "0002:01:00.1", nic)).as_deref(), Some("rocep1s0f1"));
        // The other port of the same link, another NIC, and an HCA without a system GUID.
        assert_eq!(twin(&used[..1], &hca("a", "0000:01:00.0", nic)), None);
        assert_eq!(twin(&used, &hca("a", "0002:01:00.0", Some("4821:0b04"))), None);
        assert_eq!(twin(&used, &hca("a", "0002:01:00.0", None)), None);
    }
}
