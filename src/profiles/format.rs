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
    /// The profile that this one extends: its values count if this one has none.
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
    /// The script of the platform that sets the variables of `hands_off`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The published constants, in the published order.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub variables: IndexMap<String, String>,
    /// Published variables that have the value of a variable of the platform, if that is set.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub from_environment: IndexMap<String, String>,
    /// Published constants for some hosts only. A later one counts more than those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Only>,
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
    /// A net plugin over those of these network interfaces that are there, without an HCA.
    PluginOverInterfaces(Vec<String>),
}

/// A script of the platform that a job runs before its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Script {
    /// Where it may be; the first that is there counts.
    pub paths: Vec<String>,
    /// A variable that it sets, and nothing else does.
    pub sets: String,
}

/// Constants that count under a condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Only {
    /// All of it must hold.
    #[serde(default, rename = "if")]
    pub condition: Condition,
    /// The job's NCCL is of this release or a later one. If the release is not known, this does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_min: Option<String>,
    pub variables: IndexMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultRouteHca {
    Use,
    /// It is not used if the other HCAs are as fast, and enough for the GPUs.
    Avoid,
}

/// What the platform says RDMA needs. A condition that does not hold is a finding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Constraints {
    /// Numbers of GPUs in a container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<u32>,
    /// Numbers of GPUs that are right under a condition, which `cards_note` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards_elsewhere: Vec<u32>,
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
    /// There are other instance types beside those of `nics`, and any number of NICs is right there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_types: bool,
    /// What the platform's machines with a GPU model have, for platforms whose containers do not show
    /// the instance type. The first row that fits counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRow>,
}

/// The RDMA NICs of a machine with these GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuRow {
    /// As `gpu-model` of a condition.
    pub model: String,
    /// GPUs of the whole machine. A container with fewer is not judged.
    pub count: u32,
    pub nics: u32,
    /// Of each NIC, in Gbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
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
    /// An HCA of this name is there, whatever its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hca_name: Option<Text>,
    /// The HCAs that NCCL can use have this link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<Text>,
    /// An interface of this name is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Text>,
    /// An interface of this name is there and up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_up: Option<Text>,
    /// An interface with this kernel driver is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_driver: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_vendor: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_product: Option<Text>,
    /// Of the chassis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_asset_tag: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<Text>,
    /// There are GPUs, and this is their make: `nvidia` or `amd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_vendor: Option<Text>,
    /// A variable of this name is in the environment, whatever its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Text>,
    /// `MASTER_ADDR` has this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_addr: Option<Text>,
    /// A file or directory with this path, which holds no `*`, is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Text>,
    /// A device of a resource claim of the Pod has this attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_attribute: Option<AttributeEvidence>,
    /// None of these conditions holds.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub not: Cow<'static, [Condition]>,
}

impl Condition {
    /// Returns whether it asks for something that has to be there.
    pub fn has_positive(&self) -> bool {
        Condition { not: Cow::Borrowed(&[]), ..self.clone() } != Condition::default()
    }

    /// Returns the files that it asks for.
    pub fn files(&self) -> Vec<&Text> {
        let of_others = self.not.iter().flat_map(Condition::files);
        self.file.iter().chain(of_others).collect()
    }

    /// Returns the variables that it asks for.
    pub fn markers(&self) -> Vec<&Text> {
        let of_others = self.not.iter().flat_map(Condition::markers);
        self.environment.iter().chain(of_others).collect()
    }
}

impl Profile {
    /// Every variable that it may fill.
    pub fn may_fill(&self) -> impl Iterator<Item = &str> {
        let always = self.variables.keys().chain(&self.companions).chain(self.from_environment.keys());
        always.chain(self.only.iter().flat_map(|only| only.variables.keys())).map(String::as_str)
    }

    /// Returns the files whose presence decides something.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let conditions = self.evidence.iter().chain(self.only.iter().map(|only| &only.condition));
        let asked = conditions.flat_map(|condition| condition.files().into_iter().map(|file| &**file));
        let scripts = self.script.iter().flat_map(|script| script.paths.iter().map(String::as_str));
        asked.chain(scripts)
    }

    /// Returns the variables whose presence decides something.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        let conditions = self.evidence.iter().chain(self.only.iter().map(|only| &only.condition));
        conditions.flat_map(|condition| condition.markers().into_iter().map(|name| &**name))
    }
}

/// An HCA is known by its kernel driver; by its name only if it has no driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HcaEvidence {
    pub driver: Text,
    pub name: Text,
    /// Vendor and device of its PCI function, as `15b3:101e`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text>,
}

/// An attribute that a DRA driver gives a device, such as `azure.dra.net/vmSize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeEvidence {
    pub name: Text,
    /// Any value if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Text>,
}

/// Returns whether `text` has the form of `pattern`, where `*` stands for any text.
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
