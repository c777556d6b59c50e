//! What Kubernetes has given to this container, and the job does not get.

use crate::fabric::{Candidate, claims};
use crate::facts::dra::ClaimedDevice;
use crate::facts::given::MOST;
use crate::facts::{Facts, Unreadable};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST;
use crate::text::{condensed, counted, grouped, visible};

/// So many addresses, and so many variables, are named, at most.
const ADDRESSES: usize = 16;
const VARIABLES: usize = 3;

pub(super) fn findings(facts: &Facts, ports: &[Candidate]) -> Vec<Finding> {
    let mut findings = Vec::from_iter(missing(facts));
    findings.extend(missing_claims(facts));
    let last = findings.pop();
    findings.extend(last.map(|last| with_used(last, facts, ports)));
    findings.extend(other_link_layer(facts, ports));
    findings.extend(one_beside_gpus(facts, ports));
    findings
}

/// Adds what follows to a finding about missing devices: the job uses HCAs of which nothing shows that they are the
/// Pod's. To keep off them would be worse: the variables may be copies from another node.
fn with_used(mut finding: Finding, facts: &Facts, ports: &[Candidate]) -> Finding {
    let used: Vec<String> =
        claims::used_without_a_claim(facts, ports).into_iter().map(Candidate::name).collect();
    if used.is_empty() {
        return finding;
    }
    let (none, they) = match used.len() {
        1 => ("which Kubernetes did not give", "it"),
        _ => ("none of which Kubernetes gave", "they"),
    };
    let names = condensed(&used);
    finding.message += &format!(
        " The job uses {names}, {none} to this Pod, as far as is known: {they} may belong to other Pods."
    );
    finding.about_ports(used)
}

/// Returns the first of the texts, so many of them, and a phrase for the rest.
fn first(mut all: Vec<String>, most: usize, rest: &str) -> (Vec<String>, String) {
    all.sort_unstable();
    all.dedup();
    let more = match all.len().saturating_sub(most) {
        0 => String::new(),
        more => format!(" and {more} {rest}"),
    };
    all.truncate(most);
    (all, more)
}

/// Reports the PCI devices that do not exist here, all in one line.
fn missing(facts: &Facts) -> Option<Finding> {
    let missing = facts.given.iter().take(MOST).filter(|device| device.class.is_none());
    let by_variable = grouped(missing.map(|device| (device.variable.clone(), device.address.clone())));
    let (variables, addresses): (Vec<String>, Vec<Vec<String>>) = by_variable.into_iter().unzip();
    let says = if variables.len() == 1 { "says" } else { "say" };
    let (variables, others) = first(variables, VARIABLES, "more");
    let (addresses, more) = first(addresses.concat(), ADDRESSES, "more");
    let has = if addresses.len() == 1 { "has no such device" } else { "does not have them" };
    let message = format!(
        "{}{others} {says} that Kubernetes has given this container {}{more}, but the PCI bus {has}.",
        variables.join(", "),
        addresses.join(", ")
    );
    (!variables.is_empty()).then(|| {
        Finding::warning(Id::GivenDeviceMissing, message)
            .about_variables(variables)
            .with_fix(Id::GivenDeviceMissing.remedy())
    })
}

/// Reports the RDMA devices of claims that do not exist here.
fn missing_claims(facts: &Facts) -> Option<Finding> {
    // If this container has the node of a device that it cannot see, that has its own finding.
    let shows_none = facts.rdma.is_empty() && facts.unreadable.iter().any(Unreadable::is_of_rdma);
    let is_hidden = shows_none || !facts.rdma_elsewhere.is_empty();
    let name = |device: &ClaimedDevice| match (device.rdma_device(), device.pci_address()) {
        (Some(name), Some(address)) => Some(format!("{} ({address})", visible(name))),
        (name, address) => name.map(visible).or(address),
    };
    let names: Vec<String> = claims::missing(facts).into_iter().filter_map(name).collect();
    if names.is_empty() || is_hidden {
        return None;
    }
    let (names, more) = first(names, ADDRESSES, "more");
    let is = match (facts.rdma.is_empty(), names.len()) {
        (true, _) => "this container has no RDMA device",
        (false, 1) => "it is none of the RDMA devices here",
        (false, _) => "they are none of the RDMA devices here",
    };
    let message = format!("The Pod's resource claims hold {}{more}, but {is}.", names.join(", "));
    Some(Finding::warning(Id::GivenDeviceMissing, message).with_fix(Id::GivenDeviceMissing.remedy()))
}

/// Reports HCAs that the Pod has been given, and that are idle beside faster ones of another link layer.
fn other_link_layer(facts: &Facts, ports: &[Candidate]) -> Option<Finding> {
    let idle: Vec<String> =
        claims::of_other_link_layer(facts, ports).into_iter().map(Candidate::name).collect();
    let used: Vec<String> = ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect();
    if idle.is_empty() || used.is_empty() {
        return None;
    }
    let message = format!(
        "The Pod has been given {}, but the job uses {}, which have another link layer and more bandwidth, and which another Pod may hold.",
        condensed(&idle),
        condensed(&used)
    );
    let fix = format!("If these are not rails of this Pod, name its own HCAs in {LIST}.");
    Some(Finding::info(Id::GivenHcasIdle, message).about_ports(idle.into_iter().chain(used)).with_fix(fix))
}

/// Reports a job that uses a single HCA for several GPUs because claims hold no other.
fn one_beside_gpus(facts: &Facts, ports: &[Candidate]) -> Option<Finding> {
    let (used, left) = claims::one_beside_gpus(facts, ports)?;
    let message = format!(
        "The Pod's resource claims hold one HCA, {used}, for {}: the job uses it alone, and leaves {} to other Pods.",
        counted(facts.gpu.count? as usize, "GPU"),
        condensed(&left)
    );
    let fix = format!("If {used} is for storage, claim the rails, too, or name them in {LIST}.");
    let used = ports.iter().filter(|port| port.is_used()).map(Candidate::name);
    Some(Finding::info(Id::OneHcaClaimed, message).about_ports(used.chain(left)).with_fix(fix))
}

#[cfg(test)]
mod tests {
    use caps::Capability::CAP_SYS_ADMIN;

    use super::*;
    use crate::fabric::Verdict;
    use crate::facts::given::GivenDevice;
    use crate::facts::process::CapabilitySet;
    use crate::facts::rdma::{Hca, Port};

    fn nic(attributes: &[(&str, &str)]) -> ClaimedDevice {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ClaimedDevice { driver: "dra.net".to_owned(), attributes: attributes.collect(), ..Default::default() }
    }

    /// Returns the messages for these claims, beside HCAs with these names and PCI addresses.
    fn told(claims: &[&[(&str, &str)]], here: &[(&str, &str)]) -> Vec<String> {
        let hca = |(name, address): &(&str, &str)| Hca {
            name: (*name).to_owned(),
            pci_address: (!address.is_empty()).then(|| (*address).to_owned()),
            ..Hca::default()
        };
        let facts = Facts {
            dra: claims.iter().map(|attributes| nic(attributes)).collect(),
            rdma: here.iter().map(hca).collect(),
            ..Facts::default()
        };
        findings(&facts, &[]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_claimed_device_that_is_not_here_is_named() {
        const NAME: &str = "dra.net/rdmaDevice";
        assert_eq!(told(&[&[(NAME, "mlx5_0")]], &[("mlx5_0", ""), ("mlx5_1", "")]), [""; 0]);
        assert_eq!(
            told(&[&[(NAME, "mlx5_9")]], &[]),
            ["The Pod's resource claims hold mlx5_9, but this container has no RDMA device."]
        );
        assert_eq!(
            told(&[&[(NAME, "mlx5_9")], &[(NAME, "mlx5_0")]], &[("mlx5_0", "")]),
            ["The Pod's resource claims hold mlx5_9, but it is none of the RDMA devices here."]
        );
    }

    #[test]
    fn a_claimed_device_without_a_name_is_named_by_its_address() {
        const PCI: &str = "resource.kubernetes.io/pciBusID";
        let here = [("mlx5_0", "0000:28:00.0")];
        let rdma = ("dra.net/rdma", "true");
        assert_eq!(
            told(
                &[&[(PCI, "0000:9A:00.0"), rdma], &[(PCI, "0000:99:00.0"), ("dra.net/rdmaDevice", "mlx5_3")]],
                &here
            ),
            [
                "The Pod's resource claims hold 0000:9a:00.0, mlx5_3 (0000:99:00.0), but they are none of the RDMA devices here."
            ]
        );
        assert_eq!(
            told(
                &[&[(PCI, "0000:99:00.0"), ("sriovnetwork.k8snetworkplumbingwg.io/rdmaCapable", "true")]],
                &[]
            ),
            ["The Pod's resource claims hold 0000:99:00.0, but this container has no RDMA device."]
        );
        // A GPU; a NIC without RDMA; one without name and address; one that can be the HCA without an address; and
        // the HCA itself, in another spelling.
        for claim in [
            &[(PCI, "0000:99:00.0")][..],
            &[(PCI, "0000:99:00.0"), ("dra.net/rdma", "false")],
            &[rdma, ("dra.net/ifName", "ib0")],
            &[rdma, (PCI, "00000000:28:00.0")],
        ] {
            assert_eq!(told(&[claim], &here), [""; 0], "{claim:?}");
        }
        assert_eq!(
            told(&[&[(PCI, "0000:99:00.0"), rdma]], &[("mlx5_0", "0000:28:00.0"), ("rxe0", "")]),
            [""; 0]
        );
    }

    #[test]
    fn a_claimed_device_that_is_hidden_has_another_finding() {
        let mut facts = Facts { dra: vec![nic(&[("dra.net/rdmaDevice", "mlx5_9")])], ..Facts::default() };
        assert_eq!(findings(&facts, &[]).len(), 1);
        facts.rdma_elsewhere = vec!["uverbs0".to_owned()];
        assert_eq!(findings(&facts, &[]), []);
    }

    #[test]
    fn what_follows_from_missing_devices_is_told_once() {
        let mut facts = Facts {
            dra: vec![nic(&[
                ("dra.net/rdmaDevice", "mlx5_9"),
                ("resource.kubernetes.io/pciBusID", "0000:99:00.0"),
            ])],
            given: vec![GivenDevice { variable: "PCIDEVICE_A".to_owned(), ..GivenDevice::default() }],
            rdma: vec![Hca { ports: vec![Port { number: 1, ..Port::default() }], ..Hca::default() }],
            ..Facts::default()
        };
        facts.rdma[0].name = "mlx5_0".to_owned();
        facts.rdma[0].pci_address = Some("0000:28:00.0".to_owned());
        let told = |facts: &Facts| {
            let port =
                Candidate { hca: &facts.rdma[0], port: &facts.rdma[0].ports[0], verdict: Verdict::Used };
            let follows = |finding: &Finding| finding.message.contains(" The job uses mlx5_0:1, which");
            findings(facts, &[port]).iter().map(follows).collect::<Vec<bool>>()
        };
        assert_eq!(
            told(&facts),
            [false],
            "an unprivileged container has as many as it claimed, under other names"
        );
        facts.process.capabilities.bounding = CapabilitySet::default().with(CAP_SYS_ADMIN);
        assert_eq!(told(&facts), [false, true]);
    }

    #[test]
    fn any_number_of_missing_devices_is_one_finding() {
        let told = |count: usize| {
            let device = |number: usize| GivenDevice {
                variable: format!("PCIDEVICE_{number:03}"),
                address: format!("0000:{number:02x}:00.0"),
                class: (number == 1).then(|| "0x020000".to_owned()),
            };
            let facts = Facts { given: (0..count).map(device).collect(), ..Facts::default() };
            findings(&facts, &[])
        };
        assert_eq!(told(0), []);
        let start = |count| {
            let mut findings = told(count);
            assert_eq!(findings.len(), 1);
            findings.remove(0).message
        };
        assert_eq!(
            start(2),
            "PCIDEVICE_000 says that Kubernetes has given this container 0000:00:00.0, but the PCI bus has no such device."
        );
        let many = start(200);
        assert!(
            many.starts_with("PCIDEVICE_000, PCIDEVICE_002, PCIDEVICE_003 and 196 more say that"),
            "{many}"
        );
        assert!(many.contains("0000:10:00.0 and 183 more, but the PCI bus does not have them."), "{many}");
    }
}
