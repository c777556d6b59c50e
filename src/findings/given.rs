//! What Kubernetes has given to this container, and the job does not get.

use crate::fabric::{Candidate, claims};
use crate::facts::Facts;
use crate::facts::dra::ClaimedDevice;
use crate::facts::given::MOST;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST;
use crate::text::{condensed, grouped, visible};

/// So many addresses, and so many variables, are named, at most.
const ADDRESSES: usize = 16;
const VARIABLES: usize = 3;

pub(super) fn findings(facts: &Facts, ports: &[Candidate]) -> Vec<Finding> {
    let missing = missing(facts).into_iter().chain(missing_claims(facts));
    missing.chain(other_link_layer(facts, ports)).collect()
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

/// Reports the RDMA devices of claims that do not exist here, beside others that do.
fn missing_claims(facts: &Facts) -> Option<Finding> {
    let is_here = |device: &ClaimedDevice| facts.rdma.iter().any(|hca| claims::is_it(device, hca));
    let missing = facts.dra.iter().filter(|device| !is_here(device));
    let names: Vec<String> = missing.filter_map(ClaimedDevice::rdma_device).map(visible).collect();
    if names.is_empty() || facts.rdma.is_empty() {
        return None;
    }
    let (names, more) = first(names, ADDRESSES, "more");
    let is = if names.len() == 1 { "it is none" } else { "they are none" };
    let message = format!(
        "The Pod's resource claims hold {}{more}, but {is} of the RDMA devices here.",
        names.join(", ")
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::given::GivenDevice;
    use crate::facts::rdma::Hca;

    #[test]
    fn a_claimed_device_that_is_not_here_is_named() {
        let told = |claimed: &[&str], here: &[&str]| {
            let device = |name: &&str| ClaimedDevice {
                driver: "dra.net".to_owned(),
                attributes: [("dra.net/rdmaDevice".to_owned(), (*name).to_owned())].into(),
                ..ClaimedDevice::default()
            };
            let hca = |name: &&str| Hca { name: (*name).to_owned(), ..Hca::default() };
            let facts = Facts {
                dra: claimed.iter().map(device).collect(),
                rdma: here.iter().map(hca).collect(),
                ..Facts::default()
            };
            findings(&facts, &[]).into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert_eq!(told(&["mlx5_0"], &["mlx5_0", "mlx5_1"]), [""; 0]);
        assert_eq!(told(&["mlx5_9"], &[]), [""; 0], "that no device is here is another finding");
        assert_eq!(
            told(&["mlx5_9", "mlx5_0"], &["mlx5_0"]),
            ["The Pod's resource claims hold mlx5_9, but it is none of the RDMA devices here."]
        );
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
