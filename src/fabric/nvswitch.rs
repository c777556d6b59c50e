//! HCAs that connect to the machine's NVSwitches, and not to a network. HGX B100, B200, and B300 manage their
//! NVSwitches through a ConnectX-7. It has two ports with two PCI functions each, and all four functions are
//! InfiniBand, ACTIVE, and behind a GPU's switch (NVIDIA Fabric Manager User Guide, "Systems Using Fourth
//! Generation NVSwitches"). A virtual machine may have two of them, such as p6-b200 on Amazon EC2.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer};

/// Why rdma-init takes an HCA for one that connects to NVSwitches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvSwitch {
    /// Its vital product data contains `SMDL=SW_MNG`.
    ProductData,
    /// The vital product data of another function of the same NIC, the HCA with this name, contains it.
    SameNic(String),
    /// Inferred: Amazon EC2 has EFA and no InfiniBand.
    OnEc2,
    /// Inferred: on a machine with this GPU model, the HCA is one of the four InfiniBand functions of one
    /// NIC, and the other HCAs are enough for the GPUs.
    FourFunctions { model: String },
}

impl fmt::Display for NvSwitch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NvSwitch::ProductData => f.write_str("its VPD has SMDL=SW_MNG"),
            NvSwitch::SameNic(other) => {
                write!(f, "{other}, a function of the same NIC, has SMDL=SW_MNG in its VPD")
            }
            NvSwitch::OnEc2 => f.write_str("inferred: Amazon EC2 has EFA and no InfiniBand"),
            NvSwitch::FourFunctions { model } => write!(
                f,
                "inferred: with {model}, it is one of four InfiniBand functions of one NIC, and the other HCAs are enough for the GPUs; only root can read its VPD"
            ),
        }
    }
}

/// The GPUs of machines that manage their NVSwitches through an HCA. (GB200 and GB300 machines do not.)
const MODELS: [&str; 3] = ["B100", "B200", "B300"];

/// Returns why an HCA is taken to connect to NVSwitches; `None` if it does not, or if nothing shows it.
pub(crate) fn sign(facts: &Facts, hca: &Hca) -> Option<NvSwitch> {
    // Only a ConnectX with InfiniBand connects to NVSwitches.
    if hca.driver.as_deref() != Some("mlx5_core") || !is_infiniband(hca) {
        return None;
    }
    if hca.manages_nvswitches == Some(true) {
        return Some(NvSwitch::ProductData);
    }
    let of_nic = || facts.rdma.iter().filter(|other| is_infiniband(other) && are_of_one_nic(hca, other));
    // The vital product data of a function that Fabric Manager does not use lacks the field.
    if let Some(other) = of_nic().find(|other| other.manages_nvswitches == Some(true)) {
        return Some(NvSwitch::SameNic(other.name.clone()));
    }
    if is_ec2(facts) {
        return Some(NvSwitch::OnEc2);
    }
    let model = facts.gpu.model_of_whole(&MODELS)?;
    let functions = of_nic().count();
    let is_known = of_nic().any(|other| other.manages_nvswitches.is_some());
    let gpus = facts.gpu.count.filter(|count| *count > 0)?;
    let others = facts.rdma.iter().filter(|other| !are_of_one_nic(hca, other) && may_be_rail(other));
    (functions == 4 && !is_known && others.count() >= gpus as usize)
        .then(|| NvSwitch::FourFunctions { model: model.to_owned() })
}

/// Returns the used ports that may connect to NVSwitches, although nothing proves it: on a machine that
/// manages its NVSwitches through an HCA, two or four InfiniBand ports that share one NIC, or a rate that no
/// other such port has, if there are enough other ports for the GPUs. Returns an empty list if there are
/// none.
#[must_use]
pub(crate) fn suspects<'a, 'b>(facts: &Facts, ports: &'b [Candidate<'a>]) -> Vec<&'b Candidate<'a>> {
    let used: Vec<&Candidate> = ports.iter().filter(|port| port.is_used()).collect();
    let may_be = |port: &&&Candidate| {
        let hca = port.hca;
        is_infiniband(hca) && hca.driver.as_deref() == Some("mlx5_core") && hca.manages_nvswitches.is_none()
    };
    let Some(gpus) = facts.gpu.count.filter(|count| *count > 0) else { return Vec::new() };
    if facts.gpu.model_of_whole(&MODELS).is_none() {
        return Vec::new();
    }
    let mut groups: BTreeMap<String, Vec<&Candidate>> = BTreeMap::new();
    for port in used.iter().filter(may_be) {
        if !port.port.rate.is_empty() {
            groups.entry(port.port.rate.clone()).or_default().push(port);
        }
        if let Some(nic) = &port.hca.system_guid {
            groups.entry(nic.clone()).or_default().push(port);
        }
    }
    let is_like_bridges = |group: &&Vec<&Candidate>| {
        let hcas: BTreeSet<&str> = group.iter().map(|port| port.hca.name.as_str()).collect();
        matches!(hcas.len(), 2 | 4)
            && group.len() == hcas.len()
            && used.len().saturating_sub(group.len()) >= gpus as usize
    };
    groups.values().find(is_like_bridges).cloned().unwrap_or_default()
}

fn is_ec2(facts: &Facts) -> bool {
    facts.dmi.vendor.as_deref() == Some("Amazon EC2")
        || facts.rdma.iter().any(|hca| hca.driver.as_deref() == Some("efa"))
}

fn is_infiniband(hca: &Hca) -> bool {
    !hca.ports.is_empty() && hca.ports.iter().all(|port| port.link_layer == LinkLayer::InfiniBand)
}

/// Returns whether an HCA may be a rail: it has an active InfiniBand or Ethernet port.
fn may_be_rail(hca: &Hca) -> bool {
    let is_of_network =
        |link_layer: &LinkLayer| matches!(link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet);
    hca.ports.iter().any(|port| port.is_active() && is_of_network(&port.link_layer))
}

/// Returns whether two HCAs are functions of one NIC, or the same one.
fn are_of_one_nic(one: &Hca, other: &Hca) -> bool {
    one.name == other.name || one.system_guid.is_some() && one.system_guid == other.system_guid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{candidates, fake};

    /// Returns a host with InfiniBand HCAs, each given as the number of its NIC and its rate.
    fn host(model: &str, hcas: &[(u32, u32)]) -> Facts {
        let mut facts = Facts::default();
        facts.gpu.count = Some(8);
        facts.gpu.models = vec![model.to_owned()];
        for (n, (nic, rate)) in hcas.iter().enumerate() {
            let mut hca = fake::hca(n);
            hca.driver = Some("mlx5_core".to_owned());
            hca.system_guid = Some(format!("0000:0000:0000:{nic:04x}"));
            hca.ports[0].rate = format!("{rate} Gb/sec");
            facts.rdma.push(hca);
        }
        facts
    }

    const RAILS: [(u32, u32); 8] =
        [(0, 400), (1, 400), (2, 400), (3, 400), (4, 400), (5, 400), (6, 400), (7, 400)];

    fn with(others: &[(u32, u32)]) -> Vec<(u32, u32)> {
        RAILS.iter().chain(others).copied().collect()
    }

    fn signs(facts: &Facts) -> Vec<Option<NvSwitch>> {
        facts.rdma.iter().map(|hca| sign(facts, hca)).collect()
    }

    fn found(facts: &Facts) -> Vec<usize> {
        signs(facts).iter().enumerate().filter(|(_, sign)| sign.is_some()).map(|(n, _)| n).collect()
    }

    fn suspected(facts: &Facts) -> usize {
        suspects(facts, &candidates(facts)).len()
    }

    #[test]
    fn the_product_data_decide_for_all_functions_of_a_nic() {
        let mut facts = host("NVIDIA B200", &with(&[(8, 400); 4]));
        for hca in &mut facts.rdma {
            hca.manages_nvswitches = Some(false);
        }
        assert_eq!(found(&facts), [0; 0], "they are known to be of a network");
        facts.rdma[9].manages_nvswitches = Some(true);
        facts.rdma[11].manages_nvswitches = Some(true);
        let same = || Some(NvSwitch::SameNic("mlx5_9".to_owned()));
        let own = || Some(NvSwitch::ProductData);
        assert_eq!(signs(&facts)[8..], [same(), own(), same(), own()]);
        assert_eq!(found(&facts), [8, 9, 10, 11]);
        // The vital product data counts on any machine, whatever its GPU model.
        facts.gpu.models.clear();
        assert_eq!(found(&facts), [8, 9, 10, 11]);
        facts.rdma[9].ports[0].link_layer = LinkLayer::Ethernet;
        assert!(!found(&facts).contains(&9));
    }

    #[test]
    fn four_functions_of_one_nic_reveal_nvswitches_without_product_data() {
        let bridges = with(&[(8, 400); 4]);
        for (model, hcas, wanted) in [
            ("NVIDIA B200", &bridges[..], 4),
            ("NVIDIA B300 SXM6 AC", &with(&[(8, 100); 4]), 4),
            // Other machines.
            ("NVIDIA H100 80GB HBM3", &bridges, 0),
            ("NVIDIA GB200", &bridges, 0),
            // A storage adapter with two ports, then two such adapters.
            ("NVIDIA B200", &with(&[(8, 200), (8, 200)]), 0),
            ("NVIDIA B200", &with(&[(8, 200), (8, 200), (9, 200), (9, 200)]), 0),
            // Without these four ports, there would be too few.
            ("NVIDIA B200", &[(0, 400), (8, 400), (8, 400), (8, 400), (8, 400)], 0),
        ] {
            assert_eq!(found(&host(model, hcas)).len(), wanted, "{model} {hcas:?}");
        }
        let mut facts = host("NVIDIA B200", &bridges);
        facts.gpu.count = None;
        assert_eq!(found(&facts), [0; 0]);
    }

    #[test]
    fn ec2_has_no_infiniband() {
        let mut facts = host("NVIDIA B200", &[(0, 100), (1, 100)]);
        assert_eq!(found(&facts), [0; 0]);
        facts.dmi.vendor = Some("Amazon EC2".to_owned());
        assert_eq!(signs(&facts), [Some(NvSwitch::OnEc2), Some(NvSwitch::OnEc2)]);
        facts.dmi.vendor = None;
        facts.rdma.push(Hca { driver: Some("efa".to_owned()), ..Hca::default() });
        assert_eq!(found(&facts), [0, 1]);
        facts.rdma[0].driver = Some("irdma".to_owned());
        assert_eq!(found(&facts), [1]);
    }

    #[test]
    fn uncertain_nvswitch_hcas_are_suspected() {
        for (model, hcas, wanted) in [
            ("NVIDIA B200", with(&[(8, 100), (9, 100)]), 2),
            ("NVIDIA B200", with(&[(8, 400), (8, 400)]), 2),
            ("NVIDIA B200", with(&[(8, 100), (9, 100), (10, 100), (11, 100)]), 4),
            ("NVIDIA B200", with(&[(8, 400)]), 0),
            ("NVIDIA B200", with(&[(8, 200), (9, 200), (10, 200)]), 0),
            ("NVIDIA H100 80GB HBM3", with(&[(8, 100), (9, 100)]), 0),
            // Too few other ports.
            ("NVIDIA B200", vec![(0, 400), (8, 100), (8, 100)], 0),
        ] {
            assert_eq!(suspected(&host(model, &hcas)), wanted, "{model} {hcas:?}");
        }
        let mut facts = host("NVIDIA B200", &with(&[(8, 100), (9, 100)]));
        facts.rdma[8].manages_nvswitches = Some(false);
        facts.rdma[9].manages_nvswitches = Some(false);
        assert_eq!(suspected(&facts), 0, "they are known to be of a network");
    }
}
