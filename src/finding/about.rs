//! What a finding is about, so that no code has to search messages for names.

use serde::Serialize;

/// Names without duplicates, in the finding's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// Environment variables, set or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// HCA ports, in the form `mlx5_0:1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Network interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Ranks of the job's NCCL, by their numbers in the largest communicator with a fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
}

impl About {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == About::default()
    }

    pub(super) fn add(list: &mut Vec<String>, names: impl IntoIterator<Item = impl Into<String>>) {
        for name in names.into_iter().map(Into::into) {
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
}
