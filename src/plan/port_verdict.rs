//! A port and its verdict, for the report.

use serde::Serialize;

use crate::fabric::{Candidate, Verdict};
use crate::facts::rdma::LinkLayer;

/// A port of an HCA, and why it is used or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortVerdict {
    pub hca: String,
    pub port: u32,
    /// Whether the HCA has other ports.
    #[serde(skip)]
    pub of_several: bool,
    pub link_layer: LinkLayer,
    pub rate: String,
    pub used: bool,
    /// Whether the job would use it if the user had not named other ports.
    #[serde(skip)]
    pub left_idle: bool,
    /// Whether the port is used although it leads to the machine's NVSwitches.
    #[serde(skip)]
    pub to_nvswitch: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PortVerdict {
    /// Returns a name such as `mlx5_0:1`, even if the HCA has only this port.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.hca, self.port)
    }

    /// Returns `mlx5_0`, or `mlx5_0:2` if the HCA has other ports.
    pub fn name(&self) -> String {
        match self.of_several {
            true => self.full_name(),
            false => self.hca.clone(),
        }
    }
}

impl From<&Candidate<'_>> for PortVerdict {
    fn from(candidate: &Candidate<'_>) -> PortVerdict {
        PortVerdict {
            hca: candidate.hca.name.clone(),
            port: candidate.port.number,
            of_several: candidate.hca.ports.len() > 1,
            link_layer: candidate.port.link_layer.clone(),
            rate: candidate.port.rate.clone(),
            used: candidate.is_used(),
            left_idle: false,
            to_nvswitch: false,
            reason: match &candidate.verdict {
                Verdict::Used => None,
                Verdict::LeftOut(reason) => Some(reason.to_string()),
            },
        }
    }
}
