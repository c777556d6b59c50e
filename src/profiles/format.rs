//! The format of a profile.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

// The build script has this file in another module.
#[path = "reading.rs"]
pub(super) mod reading;

use reading::{Table, some_table, table, tables, unwanted};

/// A text from a file, or from the program itself.
pub type Text = Cow<'static, str>;

/// What a platform publishes, and how to recognize the platform.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// The name that the user types.
    pub name: String,
    /// A single line for people.
    pub title: String,
    /// Where the platform publishes the values.
    pub source: String,
    /// The profile that this one extends: its values apply where this profile has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// If several profiles have evidence on the host, the one with the highest priority wins.
    #[serde(default)]
    pub priority: i32,
    /// What carries the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Whether the HCA that carries the default route is used for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_route_hca: Option<DefaultRouteHca>,
    /// Variables, or prefixes that end in `*`, that rdma-init must not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hands_off: Vec<String>,
    /// Variables that the platform says to leave unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
    /// Variables of other libraries to fill in along with NCCL's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// What to check if the fabric is missing, in the platform's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The platform's script that sets the variables in `hands_off`, if there is one.
    #[serde(default, deserialize_with = "some_table", skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The published constants, in the published order.
    #[serde(default, deserialize_with = "values", skip_serializing_if = "IndexMap::is_empty")]
    pub variables: IndexMap<String, String>,
    /// Published variables that get the value of one of the platform's variables, if that one is set.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub from_environment: IndexMap<String, String>,
    /// Published constants for some hosts only. A later table overrides earlier ones.
    #[serde(default, deserialize_with = "tables", skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Only>,
    #[serde(default, deserialize_with = "table", skip_serializing_if = "Constraints::is_empty")]
    pub constraints: Constraints,
    /// Evidence for this profile: any one of these is enough, and each requires all of its conditions.
    #[serde(default, rename = "auto", deserialize_with = "tables", skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Condition>,
    /// Whether the profile comes from a file of the user, and not from this program.
    #[serde(skip)]
    pub is_of_user: bool,
    /// Whether a file of the user names the HCAs in `NCCL_IB_HCA`.
    #[serde(skip)]
    pub lists_own_hcas: bool,
}

/// The value of a variable, which TOML would also take as a number or a Boolean.
#[derive(Deserialize)]
#[serde(transparent)]
struct Value(#[serde(deserialize_with = "value")] String);

/// Reads the values of variables. The error for anything but a text says what to write.
fn values<'de, D: Deserializer<'de>>(from: D) -> Result<IndexMap<String, String>, D::Error> {
    let values = IndexMap::<String, Value>::deserialize(from)?;
    Ok(values.into_iter().map(|(variable, Value(value))| (variable, value)).collect())
}

fn value<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    struct Quoted;
    impl Visitor<'_> for Quoted {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a text in quotes, such as \"106\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    from.deserialize_str(Quoted)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's built-in InfiniBand and RoCE transport.
    Verbs,
    /// A network interface with this name. NCCL must not use verbs.
    Interface(String),
    /// A net plugin over HCAs that verbs programs cannot use.
    Plugin,
    /// A net plugin over those of these network interfaces that exist, without an HCA.
    PluginOverInterfaces(Vec<String>),
}

/// A script of the platform that a job runs before its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Script {
    /// The possible paths of the script; the first one that exists counts. Empty if the platform's manifest for a job
    /// sets the variables.
    pub paths: Vec<String>,
    /// A variable that only this script sets.
    pub sets: String,
    /// Variables that it sets as well in each release so far: if some are missing, it has not run as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// Constants that apply under a condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Only {
    /// All parts of the condition must hold.
    #[serde(default, rename = "if", deserialize_with = "table")]
    pub condition: Condition,
    /// The job's NCCL has this release or a later one. If the release is unknown, this does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_min: Option<String>,
    #[serde(deserialize_with = "values")]
    pub variables: IndexMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultRouteHca {
    Use,
    /// The HCA is not used if the other HCAs are as fast, and enough for the GPUs.
    Avoid,
    /// The HCA is not a rail: it is not used if another HCA is as fast.
    NoRail,
}

/// What the platform says RDMA needs. If a requirement is not met, a finding reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Constraints {
    /// The right numbers of GPUs in a container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<u32>,
    /// Numbers of GPUs that are right under a condition, which `cards_note` describes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards_elsewhere: Vec<u32>,
    /// What else to know about the number of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards_note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_min: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_min: Option<String>,
    /// Interfaces that must exist, be up, and have an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces_up: Vec<String>,
    /// The number of RDMA NICs, by instance type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<String, u32>,
    /// Whether there are instance types other than those in `nics`, where any number of NICs is right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_types: bool,
    /// The NICs of the platform's machines by GPU model, for platforms whose containers do not show the
    /// instance type. The first row that matches counts.
    #[serde(default, deserialize_with = "tables", skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRow>,
}

/// The RDMA NICs of a machine with these GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuRow {
    /// A pattern, as in the condition `gpu-model`.
    pub model: String,
    /// The number of GPUs in the whole machine. Containers with fewer GPUs are not checked.
    pub count: u32,
    pub nics: u32,
    /// The rate of each NIC in Gbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

impl Constraints {
    fn is_empty(&self) -> bool {
        *self == Constraints::default()
    }
}

/// Conditions that must all hold. Names may contain `*`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Condition {
    /// The host has an HCA of this kind.
    #[serde(default, deserialize_with = "some_table", skip_serializing_if = "Option::is_none")]
    pub hca: Option<HcaEvidence>,
    /// The host has no HCA at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_hca: bool,
    /// The host has an HCA with this name, whatever its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hca_name: Option<Text>,
    /// The HCAs that NCCL can use have this link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<Text>,
    /// The host has an interface with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Text>,
    /// The host has an interface with this name, and it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_up: Option<Text>,
    /// The host has an interface with this kernel driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_driver: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_vendor: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_product: Option<Text>,
    /// The asset tag of the chassis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_asset_tag: Option<Text>,
    /// The firmware names another cloud than this one, or an NVIDIA DGX; meant for `not`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_other_than: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<Text>,
    /// The host has GPUs of this make: `nvidia` or `amd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_vendor: Option<Text>,
    /// The environment contains a variable with this name, whatever its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Text>,
    /// `MASTER_ADDR` has this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_addr: Option<Text>,
    /// The file or directory with this path exists. The path must not contain `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Text>,
    /// A device in one of the Pod's resource claims has this attribute.
    #[serde(default, deserialize_with = "some_table", skip_serializing_if = "Option::is_none")]
    pub claimed_attribute: Option<AttributeEvidence>,
    /// None of these conditions holds.
    #[serde(default, deserialize_with = "unwanted", skip_serializing_if = "<[_]>::is_empty")]
    pub not: Cow<'static, [Condition]>,
}

impl Condition {
    /// Returns whether the condition requires anything to be present.
    pub fn has_positive(&self) -> bool {
        Condition { not: Cow::Borrowed(&[]), ..self.clone() } != Condition::default()
    }

    /// Returns the files that the condition checks.
    pub fn files(&self) -> Vec<&Text> {
        let of_others = self.not.iter().flat_map(Condition::files);
        self.file.iter().chain(of_others).collect()
    }

    /// Returns the variables that the condition checks.
    pub fn markers(&self) -> Vec<&Text> {
        let of_others = self.not.iter().flat_map(Condition::markers);
        self.environment.iter().chain(of_others).collect()
    }
}

impl Profile {
    /// Returns every variable that the profile may fill in.
    pub fn may_fill(&self) -> impl Iterator<Item = &str> {
        let always = self.variables.keys().chain(&self.companions).chain(self.from_environment.keys());
        always.chain(self.only.iter().flat_map(|only| only.variables.keys())).map(String::as_str)
    }

    /// Returns the files whose presence affects a decision.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let conditions = self.evidence.iter().chain(self.only.iter().map(|only| &only.condition));
        let asked = conditions.flat_map(|condition| condition.files().into_iter().map(|file| &**file));
        let scripts = self.script.iter().flat_map(|script| script.paths.iter().map(String::as_str));
        asked.chain(scripts)
    }

    /// Returns the variables whose presence affects a decision.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        let conditions = self.evidence.iter().chain(self.only.iter().map(|only| &only.condition));
        conditions.flat_map(|condition| condition.markers().into_iter().map(|name| &**name))
    }
}

/// A kind of HCA, recognized by its kernel driver; by its name only if it has no driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HcaEvidence {
    pub driver: Text,
    pub name: Text,
    /// The vendor and device ID of the PCI function, such as `15b3:101e`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text>,
    /// Whether the HCA is a virtual function.
    #[serde(default, rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub virtual_function: Option<bool>,
}

/// An attribute that a DRA driver sets for a device, such as `azure.dra.net/vmSize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeEvidence {
    pub name: Text,
    /// The pattern for the value; `None` for any value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Text>,
}

impl Table for Script {
    const FORM: &'static str = "a table, such as { paths = [\"/opt/site/env.sh\"], sets = \"SITE_RELEASE\" }";
}
impl Table for Only {}
impl Table for Constraints {}
impl Table for GpuRow {}
impl Table for Condition {
    const FORM: &'static str = "a table, such as { environment = \"OUR_CLUSTER\" }";
}
impl Table for HcaEvidence {
    const FORM: &'static str = "a table, such as { driver = \"mlx5*\", name = \"mlx5_*\" }";
}
impl Table for AttributeEvidence {
    const FORM: &'static str = "a table, such as { name = \"dra.net/rdma\", value = \"true\" }";
}

/// Returns whether `text` matches `pattern`, where `*` stands for any text.
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

/// Does the same for the model of a GPU, where a word after `*` matches only the beginning of a word: `*H200*` is an
/// `NVIDIA H200`, but not an `NVIDIA GH200`.
pub fn fits_model(pattern: &str, model: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    if !model.starts_with(first) {
        return false;
    }
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return model == first;
    }
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let begins_word = |at: usize, part: &str| {
        let before = model.get(..at).and_then(|before| before.chars().next_back());
        !(is_word(part.chars().next()) && is_word(before))
    };
    let mut start = first.len();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let fits_at = |at: usize| begins_word(at, part) && (!is_last || at + part.len() == model.len());
        let rest = model.get(start..).unwrap_or_default();
        let mut found = rest.match_indices(part).map(|(at, _)| start + at);
        match found.find(|at| fits_at(*at)) {
            Some(at) => start = at + part.len(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{fits, fits_model};

    #[test]
    fn a_gpu_model_matches_whole_words() {
        for (pattern, model) in [
            ("*H200*", "NVIDIA H200"),
            ("*H200*", "NVIDIA H200 NVL"),
            ("*H100*", "NVIDIA H100 80GB HBM3"),
            ("*A100*80GB*", "NVIDIA A100-SXM4-80GB"),
            ("*A100*", "A100-SXM4-40GB"),
            ("*B200", "NVIDIA B200"),
            ("*GB200*", "NVIDIA GB200"),
            ("*MI300X*", "AMD Instinct MI300X"),
            ("NVIDIA*", "NVIDIA GH200 480GB"),
            ("*H200*", "NVIDIA GH200 with H200"),
            ("*", "NVIDIA L4"),
            ("*", ""),
            ("NVIDIA L4", "NVIDIA L4"),
            ("* *", "NVIDIA L4"),
        ] {
            assert!(fits_model(pattern, model), "{pattern} {model}");
        }
        for (pattern, model) in [
            ("*H200*", "NVIDIA GH200 480GB"),
            ("*B200*", "NVIDIA GB200"),
            ("*B200", "NVIDIA GB200"),
            ("*B300*", "NVIDIA GB300"),
            ("*B200", "NVIDIA B200 SXM"),
            ("NVIDIA L4", "NVIDIA L40"),
            ("*H100*", ""),
            ("AMD*", "NVIDIA H100"),
        ] {
            assert!(!fits_model(pattern, model), "{pattern} {model}");
        }
    }

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
