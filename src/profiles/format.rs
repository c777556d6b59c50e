//! The format of a profile.

use std::borrow::Cow;
use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Read from a file, or part of the program.
pub type Text = Cow<'static, str>;

/// What a platform publishes, and how to know the platform.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// As the user types it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Where the values are published.
    pub source: String,
    /// The profile that this one extends: its values count where this one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Of several profiles with evidence on the host, the one of the highest priority wins.
    #[serde(default)]
    pub priority: i32,
    /// What carries the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Whether the HCA that carries the default route is used for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_route_hca: Option<DefaultRouteHca>,
    /// Variables, or prefixes that end in `*`, that this program must not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hands_off: Vec<String>,
    /// Variables that the platform says to leave unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
    /// Variables of other libraries to fill along with NCCL's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// What to check when the fabric is missing, in the platform's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The published constants, in the published order.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub variables: IndexMap<String, String>,
    #[serde(default, skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Evidence for this profile: any of these, each with all its conditions.
    #[serde(default, rename = "auto", skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's built-in InfiniBand and RoCE transport.
    Verbs,
    /// A network interface with this name; NCCL must not use verbs.
    Interface(String),
    /// A net plugin over HCAs that verbs programs cannot use.
    Plugin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultRouteHca {
    Use,
    /// It is not used where the other HCAs are as fast, and enough for the GPUs.
    Avoid,
}

/// What the platform says RDMA needs. A condition that does not hold is a finding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Constraints {
    /// Numbers of GPUs in a container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<u32>,
    /// What else to know about the number of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards_note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_min: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_min: Option<String>,
    /// Interfaces that have to be there, up, and with an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces_up: Vec<String>,
    /// RDMA NICs by instance type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<String, u32>,
}

impl Constraints {
    fn is_empty(&self) -> bool {
        *self == Constraints::default()
    }
}

/// Conditions that must all hold. Names may hold `*`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Condition {
    /// An HCA of this kind is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hca: Option<HcaEvidence>,
    /// No HCA at all is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_hca: bool,
    /// The HCAs that NCCL can use have this link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<Text>,
    /// An interface of this name is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Text>,
    /// An interface of this name is there and up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_up: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_vendor: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_product: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<Text>,
    /// A variable of this name is in the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Text>,
    /// `MASTER_ADDR` has this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_addr: Option<Text>,
}

/// An HCA is known by its kernel driver; by its name only where it has no driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HcaEvidence {
    pub driver: Text,
    pub name: Text,
}

/// Whether `text` has the form of `pattern`, where `*` stands for any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in [
            ("hpn*", "hpn0"),
            ("hpn*", "hpn"),
            ("*", ""),
            ("a*b", "ab"),
            ("a*b*c", "axbxbc"),
            ("dlc*-master-0", "dlc1x2-master-0"),
            ("erdma", "erdma"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("hpn*", "eth0"), ("erdma", "erdma_0"), ("a*a", "a"), ("*b", "ab c")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
