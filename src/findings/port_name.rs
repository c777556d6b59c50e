//! How lines for people and documents name a port of the job.

use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::text::visible;

/// A port of the job, by the HCA's name at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RailId {
    pub hca: String,
    /// The name that the HCA has now, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    pub port: u32,
    /// Whether the job uses several ports of the HCA. Otherwise, lines do not name the port's number.
    #[serde(default)]
    pub is_one_of_several: bool,
}

impl RailId {
    pub(crate) fn new(hca: &str, port: u32) -> RailId {
        RailId { hca: hca.to_owned(), port, ..RailId::default() }
    }

    /// Returns the name in documents, with the HCA's current name: `mlx5_1:1`.
    pub(crate) fn id(&self) -> String {
        port_id(self.now.as_ref().unwrap_or(&self.hca), self.port)
    }

    /// Returns the name in lines as it was at the start: `mlx5_1`, `mlx5_1:2`.
    pub(crate) fn first_name(&self) -> String {
        self.with_name(&self.hca)
    }

    fn with_name(&self, hca: &str) -> String {
        visible(&if self.is_one_of_several { port_id(hca, self.port) } else { hca.to_owned() })
    }
}

/// Writes both names if the HCA has another one now: `mlx5_1 (now roce1)`.
impl Display for RailId {
    fn fmt(&self, out: &mut Formatter) -> std::fmt::Result {
        out.write_str(&self.first_name())?;
        match &self.now {
            Some(now) => write!(out, " (now {})", self.with_name(now)),
            None => Ok(()),
        }
    }
}

fn port_id(hca: &str, port: u32) -> String {
    format!("{hca}:{port}")
}

/// Returns whether the job uses several ports of this HCA, whose HCAs, one for each port, are these.
pub(crate) fn has_several<'a>(hca: &str, hcas: impl Iterator<Item = &'a str>) -> bool {
    hcas.filter(|other| *other == hca).count() > 1
}
