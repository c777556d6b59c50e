//! Ports that are DOWN: missing rails, and ports that never had a cable.

use super::ports::RAIL_IS_DOWN;
use crate::fabric::own_interface::Index;
use crate::fabric::{Candidate, SkipReason, Verdict, enough, twin};
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};
use crate::plan::Context;
use crate::text::{condensed, counted};

/// What rdma-init assumes about a port that is DOWN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DownKind {
    /// The port is a rail that does not work.
    Rail,
    /// The port is the other half of a used port's cable, which has a link.
    OtherHalf,
    /// The GPUs have all their rails without this port.
    Spare,
    /// Each adapter on this host uses only one cable.
    SecondPort,
    /// An administrator has turned the port off.
    TurnedOff,
    /// The port has no link, or its interface is down.
    Unplugged,
}

pub(super) fn findings(context: &Context, interfaces: &Index, ports: &[Candidate]) -> Vec<Finding> {
    let Context { facts, user, .. } = context;
    let listed = user.hcas();
    let is_wanted = |port: &Candidate| {
        let number = Some(port.port.number);
        listed.as_ref().is_none_or(|(pattern, _)| pattern.selects(&port.hca.name, number))
    };
    let down: Vec<&Candidate> = ports.iter().filter(|port| is_down(port) && is_wanted(port)).collect();
    let mut kinds: Vec<(DownKind, Vec<String>)> = Vec::new();
    for port in &down {
        let kind = kind(facts, interfaces, ports, port, down.len());
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(port.name()),
            None => kinds.push((kind, vec![port.name()])),
        }
    }
    kinds.into_iter().map(|(kind, names)| finding(facts, ports, kind, &names)).collect()
}

fn is_down(port: &Candidate) -> bool {
    matches!(&port.verdict, Verdict::LeftOut(SkipReason::PortState(state)) if state == "DOWN")
}

fn kind(facts: &Facts, interfaces: &Index, ports: &[Candidate], port: &Candidate, down: usize) -> DownKind {
    if !ports.iter().any(Candidate::is_used) {
        return DownKind::Rail;
    }
    if twin::in_use(ports, port).is_some() {
        return DownKind::OtherHalf;
    }
    let enough = enough(facts, ports, down);
    if enough == Some(true) {
        return DownKind::Spare;
    }
    if is_second_port(ports, port) {
        return DownKind::SecondPort;
    }
    let is_disabled = port.port.physical_state == "Disabled";
    match port.port.link_layer {
        LinkLayer::InfiniBand if is_disabled => DownKind::TurnedOff,
        // Ethernet drivers report Disabled both for a port without a link and for a port whose interface is
        // down (`mlx5_query_port_roce`, `bnxt_re_query_port`). If the interface is in this container, its
        // flags show which of the two it is.
        LinkLayer::Ethernet if is_disabled && enough.is_none() => {
            match interfaces.find(port.hca, port.port) {
                Some(interface) if interface.has_flag("UP") => DownKind::Rail,
                _ => DownKind::Unplugged,
            }
        }
        _ => DownKind::Rail,
    }
}

/// Returns whether another port of the same adapter is used, and no adapter has two used ports.
fn is_second_port(ports: &[Candidate], port: &Candidate) -> bool {
    let used_ports = |of: &Candidate| {
        let others = ports.iter().filter(|other| other.is_used() && card(other) == card(of));
        others.count()
    };
    used_ports(port) == 1 && ports.iter().all(|other| used_ports(other) < 2)
}

/// Returns the adapter of a port: the PCI device, which may have a function for each port; without one, the
/// HCA.
fn card<'a>(port: &Candidate<'a>) -> &'a str {
    let address = port.hca.pci_address.as_deref().and_then(|address| address.rsplit_once('.'));
    address.map_or(port.hca.name.as_str(), |(device, _)| device)
}

fn finding(facts: &Facts, ports: &[Candidate], kind: DownKind, names: &[String]) -> Finding {
    let skipped = format!("{} skipped: the port is DOWN, not ACTIVE", condensed(names));
    let note = |why: String| Finding::info(Id::PortDown, format!("{skipped}. {why}"));
    let used = ports.iter().filter(|port| port.is_used()).count();
    let finding = match kind {
        DownKind::Rail => Finding::warning(Id::PortDown, format!("{skipped}.")).with_fix(RAIL_IS_DOWN),
        DownKind::OtherHalf => Finding::warning(
            Id::PortDown,
            format!("{skipped}. It is the other half of a cable whose first half is in use: without it, the job has half of the cable's bandwidth."),
        )
        .with_fix("Bring up its interface on the node, and give it an address in its own network, as the other half has one."),
        DownKind::Spare => note(format!(
            "The {} in use {} enough for {}.",
            counted(used, "port"),
            if used == 1 { "is" } else { "are" },
            counted(facts.gpu.count.unwrap_or(0) as usize, "GPU")
        )),
        DownKind::SecondPort => {
            note("Another port of the same adapter is in use, and no adapter here uses two ports.".to_owned())
        }
        DownKind::TurnedOff => {
            note("The physical state is Disabled: the port was turned off.".to_owned())
        }
        DownKind::Unplugged => {
            note("The port has no link, or its interface is down (physical state Disabled).".to_owned())
                .with_fix("If the job should use the port, check its interface and its cable on the node.")
        }
    };
    finding.about_ports(names)
}
