//! The HCAs that the Pod's resource claims hold, or that variables of Kubernetes name. A container that may
//! use all devices of its node, such as a privileged one, sees more of them than the scheduler gave to its Pod.

use std::collections::HashSet;

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
        (Some(claimed), Some(own)) => own.eq_ignore_ascii_case(&claimed),
        _ => device.rdma_device() == Some(&hca.name),
    }
}

/// Returns whether a function that a variable names is this HCA.
fn is_given(device: &GivenDevice, hca: &Hca) -> bool {
    hca.pci_address.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(&device.address))
}

/// Returns whether the container may open the HCAs of other Pods.
pub(crate) fn sees_those_of_others(facts: &Facts) -> bool {
    facts.process.capabilities.bounding.has(CAP_SYS_ADMIN)
}

/// What the scheduler gave to the Pod, as far as this narrows its job.
struct Holdings<'a> {
    claims: &'a [ClaimedDevice],
    given: &'a [GivenDevice],
}

impl Holdings<'_> {
    fn of(facts: &Facts) -> Holdings<'_> {
        // Only a container with the rights of a privileged one can open more uverbs nodes than it was given. In any
        // other, each of them was given, by this plugin or driver or by one that leaves no trace.
        match sees_those_of_others(facts) {
            true => Holdings::all(facts),
            false => Holdings { claims: &[], given: &[] },
        }
    }

    fn all(facts: &Facts) -> Holdings<'_> {
        Holdings { claims: &facts.dra, given: facts.given.get(..MOST).unwrap_or(&facts.given) }
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

/// Returns the ports as other libraries than NCCL must get them if none of the Pod's own has a link: as if these had
/// one, so that the libraries' lists name them, and not the ports of other Pods. Returns `None` in any other case.
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

/// Returns the used ports if the container may open the HCAs of other Pods, and Kubernetes has given none of these
/// ports to this Pod, as far as claims and variables show.
pub(crate) fn used_without_a_claim<'a, 'b>(
    facts: &Facts,
    ports: &'b [Candidate<'a>],
) -> Vec<&'b Candidate<'a>> {
    let holdings = Holdings::all(facts);
    let used: Vec<&Candidate> = ports.iter().filter(|port| port.is_used()).collect();
    let is_so = sees_those_of_others(facts) && !used.iter().any(|port| holdings.has(port));
    if is_so { used } else { Vec::new() }
}

/// Returns the RDMA devices of claims, each once, as far as an HCA can be recognized by them.
fn claimed(facts: &Facts) -> Vec<&ClaimedDevice> {
    // A device without an address can be any HCA that shows none.
    let has_no_address = facts.rdma.iter().any(|hca| hca.pci_address.is_none());
    let can_be_told = |device: &ClaimedDevice| {
        device.rdma_device().is_some() || !has_no_address && device.pci_address().is_some()
    };
    let mut known = HashSet::new();
    let claimed = facts.dra.iter().filter(|device| device.is_rdma() && can_be_told(device));
    claimed.filter(|device| known.insert(identity(device))).collect()
}

fn is_here(device: &ClaimedDevice, facts: &Facts) -> bool {
    facts.rdma.iter().any(|hca| is_it(device, hca))
}

/// Returns whether the claimed devices that are not here are the HCAs that no claim names, under other names: a claim names
/// one of the others, there are as many of both, and no PCI addresses tell them apart. The name in a claim is the one on
/// the node, and in the exclusive mode of the RDMA namespaces, a Pod sees its own devices alone.
fn are_renamed(facts: &Facts, missing: &[&ClaimedDevice]) -> bool {
    let is_claimed = |hca: &&Hca| facts.dra.iter().any(|device| is_it(device, hca));
    let unclaimed: Vec<&Hca> = facts.rdma.iter().filter(|hca| !is_claimed(hca)).collect();
    let have_addresses = unclaimed.iter().any(|hca| hca.pci_address.is_some());
    let has_name_alone = |device: &&ClaimedDevice| !have_addresses || device.pci_address().is_none();
    unclaimed.len() < facts.rdma.len()
        && unclaimed.len() == missing.len()
        && missing.iter().all(has_name_alone)
}

/// Returns the RDMA devices of claims that do not exist here, each once.
pub(crate) fn missing(facts: &Facts) -> Vec<&ClaimedDevice> {
    let claimed = claimed(facts);
    let number = claimed.len();
    let missing: Vec<&ClaimedDevice> = claimed.into_iter().filter(|device| !is_here(device, facts)).collect();
    // A container that can open only what it was given, and sees as many HCAs, has them under other names or addresses:
    // in a virtual machine of its own, or renamed.
    let sees_its_own = !sees_those_of_others(facts) && facts.rdma.len() >= number;
    if sees_its_own && missing.len() == number || are_renamed(facts, &missing) {
        return Vec::new();
    }
    missing
}

/// Returns what is the same for a device in several claims.
fn identity(device: &ClaimedDevice) -> (Option<String>, Option<&str>) {
    (device.pci_address(), device.rdma_device())
}

/// Returns how many RDMA NICs the Pod's claims hold for the job, whether or not they work; `None` if the job uses
/// a port that no claim holds, because that one shows that claims are not all that the Pod has.
pub(crate) fn nics(facts: &Facts, ports: &[Candidate]) -> Option<usize> {
    let holdings = Holdings::all(facts);
    let mut used = ports.iter().filter(|port| port.is_used()).peekable();
    used.peek()?;
    if !used.all(|port| holdings.has_claim_for(port)) {
        return None;
    }
    // Those that the job leaves alone for another reason, such as the front-end NIC, do not count.
    let counts = |port: &&Candidate| (port.is_used() || has_no_link(port)) && holdings.has_claim_for(port);
    let here: HashSet<&str> = ports.iter().filter(counts).map(|port| port.hca.name.as_str()).collect();
    Some(here.len() + missing(facts).len())
}

/// Returns the HCA that the job uses alone because claims hold no other, beside several GPUs, and the HCAs that it
/// leaves to others.
pub(crate) fn one_beside_gpus<'a>(facts: &Facts, ports: &'a [Candidate]) -> Option<(&'a str, Vec<String>)> {
    let name = |port: &&'a Candidate| port.hca.name.as_str();
    let used: HashSet<&str> = ports.iter().filter(|port| port.is_used()).map(|port| name(&port)).collect();
    let left = ports.iter().filter(|port| port.verdict == Verdict::LeftOut(SkipReason::NotClaimed));
    let left: Vec<String> = left.map(Candidate::name).collect();
    let is_so = used.len() == 1 && facts.gpu.count.is_some_and(|count| count > 1) && !left.is_empty();
    used.into_iter().next().filter(|_| is_so).map(|used| (used, left))
}

/// Skips the ports in use that no claim holds, if claims hold others. A claim for the front-end NIC alone
/// says nothing about the rails, which the Pod may have from a device plugin.
pub(crate) fn leave_out_unclaimed(facts: &Facts, ports: &mut [Candidate]) -> Option<NarrowingStep> {
    let holdings = Holdings::of(facts);
    if holdings.claims.is_empty() && holdings.given.is_empty() {
        return None;
    }
    let absent: Vec<&ClaimedDevice> =
        claimed(facts).into_iter().filter(|device| !is_here(device, facts)).collect();
    if !absent.is_empty() && are_renamed(facts, &absent) {
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
    // A claim names the device that the scheduler has chosen for this Pod, so it counts whatever the device is.
    let fastest = |ports: &[&Candidate]| {
        let rails = ports.iter().copied().filter(|port| !is_front_end(port));
        rails.map(|port| port.port.gigabits()).fold(0.0, f64::max)
    };
    if !has_claims && fastest(&claimed) < fastest(&others) {
        return None;
    }
    // Nor does a single NIC beside several GPUs, unless a claim names it.
    if !has_claims && holdings.is_one_beside_gpus(facts) {
        return None;
    }
    // If a Pod uses the node's network, CNI does not configure the functions that Kubernetes has given, so
    // they have no address.
    let own = gid::OwnAddresses::of(facts);
    let has_own_gid =
        |port: &&Candidate| port.port.link_layer != LinkLayer::Ethernet || own.has_own(port.port);
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
mod tests;
