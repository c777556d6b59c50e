//! What carries the job's traffic.

use serde::Serialize;

use super::devices::{Candidate, Reason, Verdict};
use super::{Finding, ProfileChoice, User};
use crate::facts::Facts;
use crate::facts::rdma::{Access, LinkLayer};
use crate::profiles::{self, Profile};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's InfiniBand and RoCE transport over the used ports.
    Verbs,
    /// RDMA behind this network interface, without verbs.
    Interface(String),
    /// A net plugin over this number of HCAs.
    Plugin(usize),
    /// TCP, and why.
    None(String),
}

impl Fabric {
    pub fn is_there(&self) -> bool {
        !matches!(self, Fabric::None(_))
    }

    /// Whether programs register memory with the HCAs themselves.
    pub fn pins_memory(&self) -> bool {
        matches!(self, Fabric::Verbs | Fabric::Plugin(_))
    }
}

pub fn find(facts: &Facts, ports: &[Candidate], profile: &Profile, user: &User) -> Fabric {
    match profile.fabric.as_ref().unwrap_or(&profiles::Fabric::Verbs) {
        profiles::Fabric::Verbs => match user.ib_disabled() {
            Some(setting) => {
                Fabric::None(format!("NCCL_IB_DISABLE={} ({}) turns RDMA off", setting.value, setting.origin))
            }
            None if ports.iter().any(Candidate::is_used) => Fabric::Verbs,
            None => Fabric::None(why_none(ports)),
        },
        profiles::Fabric::Interface(name) => match facts.net.interface(name) {
            Some(interface) if interface.is_up() => Fabric::Interface(name.clone()),
            Some(_) => Fabric::None(format!("the interface {name} is down")),
            None => Fabric::None(format!("there is no interface {name}")),
        },
        profiles::Fabric::Plugin => {
            let open = facts.rdma.iter().filter(|hca| {
                hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
                    && hca.ports.iter().any(|port| {
                        port.is_active()
                            && !matches!(port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet)
                    })
            });
            match open.count() {
                0 => Fabric::None("no HCA of the plugin's kind can be opened".to_owned()),
                count => Fabric::Plugin(count),
            }
        }
    }
}

/// `no RDMA device is here`, or what stands in the way of those that are.
fn why_none(ports: &[Candidate]) -> String {
    if ports.is_empty() {
        return "there is no RDMA device in this container".to_owned();
    }
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for port in ports {
        if let Verdict::LeftOut(reason) = &port.verdict {
            let reason = reason.to_string();
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(&port.hca.name),
                None => reasons.push((reason, vec![&port.hca.name])),
            }
        }
    }
    let list: Vec<String> =
        reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
    format!("no RDMA device here is usable ({})", list.join("; "))
}

pub fn findings(
    fabric: &Fabric,
    ports: &[Candidate],
    profile: &Profile,
    choice: Option<&ProfileChoice>,
    user: &User,
) -> Vec<Finding> {
    let Fabric::None(why) = fabric else { return interface_findings(fabric, ports, profile) };
    let with_hint = |finding: Finding| match &profile.hint {
        Some(hint) => finding.with_fix(hint.clone()),
        None => finding,
    };
    let named = choice.filter(|choice| choice.is_named());
    if let Some(setting) = user.ib_disabled().filter(|_| ports.iter().any(Candidate::is_used)) {
        return vec![
            Finding::warning(
                "ib-disabled",
                format!("{why}, and usable RDMA devices are here: the job will run on TCP."),
            )
            .with_fix(format!("Remove NCCL_IB_DISABLE from the {}.", setting.origin)),
        ];
    }
    if let Some(choice) = named {
        return vec![with_hint(Finding::error(
            "no-fabric",
            format!(
                "Profile {} was asked for, but {why}. Nothing is filled in; the job will run on TCP.",
                choice.name
            ),
        ))];
    }
    // Devices that sysfs shows but that are nobody's here are the normal sight of
    // a container without RDMA on a host with it.
    let not_ours = |port: &Candidate| port.verdict == Verdict::LeftOut(Reason::NotAllotted);
    if ports.is_empty() {
        Vec::new()
    } else if ports.iter().all(not_ours) {
        vec![
            Finding::warning("not-allotted", format!("RDMA devices of the host show, but none is allotted to this container: {why}."))
                .with_fix("Request them: rdma/... or the platform's resource in Kubernetes, docker run --device /dev/infiniband."),
        ]
    } else {
        vec![with_hint(Finding::error("no-usable-hca", format!("The job will run on TCP: {why}.")))]
    }
}

fn interface_findings(fabric: &Fabric, ports: &[Candidate], profile: &Profile) -> Vec<Finding> {
    let usable = ports.iter().filter(|port| port.is_used()).count();
    if matches!(fabric, Fabric::Interface(_)) && usable > 0 {
        vec![Finding::warning(
            "unexpected-hcas",
            format!(
                "Profile {} is for hosts without verbs, and {usable} usable ports are here; they will not be used.",
                profile.name
            ),
        )]
    } else {
        Vec::new()
    }
}
