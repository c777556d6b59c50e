//! What each quick check examines, and what it adds to the findings.

pub(crate) mod address;
pub(crate) mod count;
pub(crate) mod counters;
pub(crate) mod gpu_nic;
pub(crate) mod image;
pub(crate) mod job;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod mtu;
pub(crate) mod nvlink;
pub(crate) mod pci;
pub(crate) mod ports;

use super::check::Outcome;
use crate::facts::Facts;
use crate::plan::Plan;

pub(super) use mtu::of_roce;
pub(super) use ports::{rails, used};

/// What a check found when it examined something.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    pub lines: Vec<String>,
    /// Why there is nothing to check here.
    pub skip: Option<String>,
    /// What is wrong, with the fix.
    pub wrong: Option<(Outcome, String, String)>,
}

impl Evidence {
    fn of(lines: impl IntoIterator<Item = String>) -> Evidence {
        Evidence { lines: lines.into_iter().collect(), ..Evidence::default() }
    }

    fn skip(why: &str) -> Evidence {
        Evidence { skip: Some(why.to_owned()), ..Evidence::default() }
    }

    pub fn fail(self, message: String) -> Evidence {
        Evidence { wrong: Some((Outcome::Failed, message, String::new())), ..self }
    }

    pub fn warn(self, message: String, fix: &str) -> Evidence {
        Evidence { wrong: Some((Outcome::Warning, message, fix.to_owned())), ..self }
    }
}

/// Returns no evidence, for a check that has nothing of its own to show: its findings say it all.
pub(super) fn findings_alone(_: &Facts, _: &Plan) -> Evidence {
    Evidence::default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::rdma::{Hca, LinkLayer, Port};
    use crate::plan::{Fabric, PortVerdict};

    /// Returns a host with HCAs of one port each; the first `used` of them are in use.
    pub fn host(hcas: usize, used: usize) -> (Facts, Plan) {
        let name = |number: usize| format!("mlx5_{number}");
        let port = Port { number: 1, link_layer: LinkLayer::Ethernet, ..Port::default() };
        let hca = |number| Hca { name: name(number), ports: vec![port.clone()], ..Hca::default() };
        let verdict = |number| PortVerdict {
            hca: name(number),
            port: 1,
            used: number < used,
            left_idle: false,
            to_nvswitch: false,
            of_several: false,
            link_layer: LinkLayer::Ethernet,
            rate: String::new(),
            reason: (number >= used).then(|| "the port is DOWN".to_owned()),
        };
        let facts = Facts { rdma: (0..hcas).map(hca).collect(), ..Facts::default() };
        let plan = Plan {
            profile: None,
            fabric: Fabric::Verbs,
            ports: (0..hcas).map(verdict).collect(),
            settings: Vec::new(),
            nccl: None,
            library: Default::default(),
            env_plugin: crate::plan::EnvPlugin::Used,
            late: Vec::new(),
            libraries: Vec::new(),
            forecasts: Vec::new(),
            findings: Vec::new(),
            tried: Vec::new(),
        };
        (facts, plan)
    }
}
