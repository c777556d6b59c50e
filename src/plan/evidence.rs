//! Whether the conditions of a profile hold on a host, one by one.

use std::fmt;

use crate::fabric::{Candidate, candidates, link_layer_of_job};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::version::Version;
use crate::profiles::{
    AttributeEvidence, Condition, HcaEvidence, Only, Profile, Profiles, fits, fits_model, maker_of,
};

/// One thing that a condition requires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    Hca(&'a HcaEvidence),
    HcaName(&'a str),
    NoHca,
    LinkLayer(&'a str),
    Interface(&'a str),
    InterfaceUp(&'a str),
    InterfaceDriver(&'a str),
    DmiVendor(&'a str),
    DmiProduct(&'a str),
    DmiAssetTag(&'a str),
    /// The firmware names another maker than this one.
    DmiOtherThan(&'a str),
    GpuModel(&'a str),
    GpuVendor(&'a str),
    Variable(&'a str),
    MasterAddr(&'a str),
    /// A file or a directory has this path.
    File(&'a str),
    /// The same for a path that becomes a value: a directory in its place is no such file.
    RegularFile(&'a str),
    ClaimedAttribute(&'a AttributeEvidence),
    /// This condition must not hold.
    Not(&'a Condition),
    /// The job's NCCL has this release or a later one.
    NcclMin(&'a str),
}

/// Whether a requirement is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    No,
    /// By this, in words.
    By(String),
    /// The unwanted thing is absent, which is not evidence of anything.
    ByAbsence,
}

/// Returns the requirements of a condition, in the order of a profile's file.
pub(crate) fn asked(condition: &Condition) -> impl Iterator<Item = Asked<'_>> {
    let Condition {
        hca,
        hca_name,
        no_hca,
        link_layer,
        interface,
        interface_up,
        interface_driver,
        dmi_vendor,
        dmi_product,
        dmi_asset_tag,
        dmi_other_than,
        gpu_model,
        gpu_vendor,
        environment,
        master_addr,
        file,
        claimed_attribute,
        not,
    } = condition;
    let all = [
        hca.as_ref().map(Asked::Hca),
        hca_name.as_deref().map(Asked::HcaName),
        no_hca.then_some(Asked::NoHca),
        link_layer.as_deref().map(Asked::LinkLayer),
        interface.as_deref().map(Asked::Interface),
        interface_up.as_deref().map(Asked::InterfaceUp),
        interface_driver.as_deref().map(Asked::InterfaceDriver),
        dmi_vendor.as_deref().map(Asked::DmiVendor),
        dmi_product.as_deref().map(Asked::DmiProduct),
        dmi_asset_tag.as_deref().map(Asked::DmiAssetTag),
        dmi_other_than.as_deref().map(Asked::DmiOtherThan),
        gpu_model.as_deref().map(Asked::GpuModel),
        gpu_vendor.as_deref().map(Asked::GpuVendor),
        environment.as_deref().map(Asked::Variable),
        master_addr.as_deref().map(Asked::MasterAddr),
        file.as_deref().map(Asked::File),
        claimed_attribute.as_ref().map(Asked::ClaimedAttribute),
    ];
    all.into_iter().flatten().chain(not.iter().map(Asked::Not))
}

/// Returns the requirements of a table of constants for some hosts.
pub(crate) fn asked_by(only: &Only) -> impl Iterator<Item = Asked<'_>> {
    let is_value = |path: &str| only.variables.values().any(|value| value == path);
    let of_condition = asked(&only.condition).map(move |asked| match asked {
        Asked::File(path) if is_value(path) => Asked::RegularFile(path),
        asked => asked,
    });
    of_condition.chain(only.nccl_min.as_deref().map(Asked::NcclMin))
}

/// Returns whether the constants of a table apply to this host.
pub(crate) fn counts(facts: &Facts, candidates: &[Candidate], only: &Only) -> bool {
    asked_by(only).all(|asked| asked.held(facts, candidates) != Held::No)
}

/// A profile, and the results of its conditions on a host.
pub(crate) struct Fit<'a> {
    pub profile: &'a Profile,
    /// One for each table `auto`; empty for a profile that can only be chosen by name.
    pub tables: Vec<Table>,
    /// One for each table `only`.
    pub only: Vec<Table>,
}

impl Fit<'_> {
    pub(crate) fn holds(&self) -> bool {
        self.tables.iter().any(Table::holds)
    }
}

/// A table of conditions, which must all hold.
pub(crate) struct Table {
    pub conditions: Vec<CheckedCondition>,
}

impl Table {
    pub(crate) fn holds(&self) -> bool {
        self.conditions.iter().all(|condition| condition.held != Held::No)
    }
}

/// One condition, in the form of the profile's file.
pub(crate) struct CheckedCondition {
    pub asked: String,
    pub held: Held,
    /// The conditions of a `not`, one by one; empty for any other condition.
    pub unwanted: Vec<CheckedCondition>,
    /// The host's facts may lack the answer, because only a user's own profile asks for it: facts that were captured
    /// without this profile do not have it.
    pub may_be_unasked: bool,
}

/// Returns the results of every profile's conditions: profiles that fit come first, then the order is by
/// name. `is_known` returns whether every capture has the answer to a condition.
pub(crate) fn fits_of<'a>(
    facts: &Facts,
    profiles: &'a Profiles,
    is_known: impl Fn(Asked) -> bool,
) -> Vec<Fit<'a>> {
    let candidates = candidates(facts);
    let table = |asked: Vec<Asked>| Table { conditions: checked(facts, &candidates, asked, &is_known) };
    let mut fits: Vec<Fit> = profiles
        .iter()
        .map(|profile| Fit {
            profile,
            tables: profile.evidence.iter().map(|condition| table(asked(condition).collect())).collect(),
            only: profile.only.iter().map(|only| table(asked_by(only).collect())).collect(),
        })
        .collect();
    fits.sort_by_key(|fit| std::cmp::Reverse(fit.holds().then_some(fit.profile.priority)));
    fits
}

fn checked(
    facts: &Facts,
    candidates: &[Candidate],
    all: Vec<Asked>,
    is_known: &dyn Fn(Asked) -> bool,
) -> Vec<CheckedCondition> {
    let one = |requirement: Asked| {
        let unwanted = match requirement {
            Asked::Not(condition) => checked(facts, candidates, asked(condition).collect(), is_known),
            _ => Vec::new(),
        };
        let held = requirement.held(facts, candidates);
        let may_be_unasked = match requirement {
            Asked::Not(_) => false,
            _ => held == Held::No && !is_known(requirement),
        };
        CheckedCondition { asked: requirement.to_string(), held, unwanted, may_be_unasked }
    };
    all.into_iter().map(one).collect()
}

/// Returns what matched, if all requirements of the condition are met.
pub(crate) fn signs(facts: &Facts, candidates: &[Candidate], condition: &Condition) -> Option<Vec<String>> {
    let mut signs = Vec::new();
    for asked in asked(condition) {
        match asked.held(facts, candidates) {
            Held::No => return None,
            Held::By(sign) => signs.push(sign),
            Held::ByAbsence => {}
        }
    }
    Some(signs)
}

impl Asked<'_> {
    /// Returns whether this host meets the requirement.
    pub(crate) fn held(self, facts: &Facts, candidates: &[Candidate]) -> Held {
        let interfaces = &facts.net.interfaces;
        let sign = match self {
            Asked::Hca(wanted) => matching_hcas(facts, |hca| is_such(hca, wanted)),
            Asked::HcaName(pattern) => matching_hcas(facts, |hca| fits(pattern, &hca.name)),
            Asked::NoHca => facts.rdma.is_empty().then(|| "no HCA".to_owned()),
            Asked::LinkLayer(wanted) => link_layer_of_job(facts, candidates)
                .map(String::from)
                .filter(|dominant| dominant == wanted)
                .map(|link_layer| format!("usable HCAs of link layer {link_layer}")),
            Asked::Interface(pattern) => interfaces
                .iter()
                .find(|interface| fits(pattern, &interface.name))
                .map(|interface| format!("interface {}", interface.name)),
            Asked::InterfaceUp(pattern) => interfaces
                .iter()
                .find(|interface| fits(pattern, &interface.name) && interface.is_up())
                .map(|interface| format!("interface {} up", interface.name)),
            Asked::InterfaceDriver(pattern) => interfaces.iter().find_map(|interface| {
                let driver = interface.driver.as_ref().filter(|driver| fits(pattern, driver))?;
                Some(format!("interface {} (driver {driver})", interface.name))
            }),
            Asked::DmiVendor(pattern) => text("DMI vendor", pattern, facts.dmi.vendor.as_deref()),
            Asked::DmiProduct(pattern) => text("DMI product", pattern, facts.dmi.product.as_deref()),
            Asked::DmiAssetTag(pattern) => text("DMI asset tag", pattern, facts.dmi.asset_tag.as_deref()),
            Asked::DmiOtherThan(own) => {
                let other = maker_of(&facts.dmi).filter(|maker| *maker != own);
                other.map(|maker| format!("DMI of {maker}"))
            }
            Asked::GpuModel(pattern) => {
                let found = facts.gpu.models.iter().find(|model| fits_model(pattern, model));
                found.map(|model| format!("GPU {model}"))
            }
            Asked::GpuVendor(pattern) => {
                let make = facts.gpu.count.and_then(|_| facts.gpu.make.name());
                text("GPU vendor", pattern, make)
            }
            Asked::Variable(pattern) => {
                let mut markers = facts.platform.markers.iter();
                markers.find(|marker| fits(pattern, marker)).map(|marker| format!("variable {marker}"))
            }
            Asked::MasterAddr(pattern) => text("MASTER_ADDR", pattern, facts.platform.master_addr.as_deref()),
            Asked::File(path) => facts.platform.files.iter().find(|file| *file == path).cloned(),
            Asked::RegularFile(path) => facts.platform.has_file(path).then(|| path.to_owned()),
            Asked::ClaimedAttribute(wanted) => claimed_attribute(facts, wanted),
            Asked::NcclMin(least) => {
                let release = installed::release(facts).filter(|found| Some(*found) >= Version::parse(least));
                release.map(|found| format!("NCCL {found}"))
            }
            Asked::Not(condition) => {
                let holds = signs(facts, candidates, condition).is_some();
                return if holds { Held::No } else { Held::ByAbsence };
            }
        };
        sign.map_or(Held::No, Held::By)
    }
}

/// Writes the requirement in the form of the profile's file.
impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (key, value) = match self {
            Asked::Hca(HcaEvidence { driver, name, pci, virtual_function }) => {
                write!(f, "hca = {{ driver = {driver:?}, name = {name:?}")?;
                if let Some(pci) = pci {
                    write!(f, ", pci = {pci:?}")?;
                }
                if let Some(virtual_function) = virtual_function {
                    write!(f, ", virtual = {virtual_function}")?;
                }
                return f.write_str(" }");
            }
            Asked::ClaimedAttribute(AttributeEvidence { name, value }) => {
                write!(f, "claimed-attribute = {{ name = {name:?}")?;
                if let Some(value) = value {
                    write!(f, ", value = {value:?}")?;
                }
                return f.write_str(" }");
            }
            Asked::NoHca => return f.write_str("no-hca = true"),
            Asked::Not(condition) => {
                let all: Vec<String> = asked(condition).map(|asked| asked.to_string()).collect();
                return write!(f, "not = [{{ {} }}]", all.join(", "));
            }
            Asked::HcaName(value) => ("hca-name", value),
            Asked::LinkLayer(value) => ("link-layer", value),
            Asked::Interface(value) => ("interface", value),
            Asked::InterfaceUp(value) => ("interface-up", value),
            Asked::InterfaceDriver(value) => ("interface-driver", value),
            Asked::DmiVendor(value) => ("dmi-vendor", value),
            Asked::DmiProduct(value) => ("dmi-product", value),
            Asked::DmiAssetTag(value) => ("dmi-asset-tag", value),
            Asked::DmiOtherThan(value) => ("dmi-other-than", value),
            Asked::GpuModel(value) => ("gpu-model", value),
            Asked::GpuVendor(value) => ("gpu-vendor", value),
            Asked::Variable(value) => ("environment", value),
            Asked::MasterAddr(value) => ("master-addr", value),
            Asked::File(value) | Asked::RegularFile(value) => ("file", value),
            Asked::NcclMin(value) => ("nccl-min", value),
        };
        write!(f, "{key} = {value:?}")
    }
}

/// Looks for a device with this attribute. A driver may omit its own domain from an attribute's name.
fn claimed_attribute(facts: &Facts, wanted: &AttributeEvidence) -> Option<String> {
    let fits_value = |value: &str| wanted.value.as_ref().is_none_or(|pattern| fits(pattern, value));
    facts.dra.iter().find_map(|device| {
        let whole = |name: &str| match name.contains('/') {
            true => name.to_owned(),
            false => format!("{}/{name}", device.driver),
        };
        let named = device.attributes.iter().map(|(name, value)| (whole(name), value));
        let (name, value) =
            named.into_iter().find(|(name, value)| fits(&wanted.name, name) && fits_value(value))?;
        Some(format!("claimed device with {name} = {value}"))
    })
}

fn text(what: &str, pattern: &str, found: Option<&str>) -> Option<String> {
    let found = found.filter(|found| fits(pattern, found))?;
    Some(format!("{what} {found}"))
}

fn is_such(hca: &Hca, wanted: &HcaEvidence) -> bool {
    let has_id = |pattern| hca.pci_id.as_ref().is_some_and(|id| fits(pattern, id));
    let is_of_driver = match &hca.driver {
        Some(driver) => fits(&wanted.driver, driver),
        None => fits(&wanted.name, &hca.name),
    };
    is_of_driver
        && wanted.pci.as_ref().is_none_or(|pattern| has_id(pattern))
        && wanted.virtual_function.is_none_or(|wanted| hca.is_virtual_function() == wanted)
}

/// Returns whether a condition asks for an HCA such as this one.
pub(super) fn is_hca_of(condition: &Condition, hca: &Hca) -> bool {
    condition.hca.as_ref().is_some_and(|wanted| is_such(hca, wanted))
}

/// Returns what a condition asks for, as a profile has it.
pub(crate) fn of_hca(wanted: &HcaEvidence) -> String {
    Asked::Hca(wanted).to_string()
}

/// Returns whether a profile is recognized by HCAs, and this is none of these.
pub(crate) fn is_for_others(profile: &Profile, hca: &Hca) -> bool {
    let mut of_hcas = profile.evidence.iter().filter(|condition| condition.hca.is_some()).peekable();
    of_hcas.peek().is_some() && !of_hcas.any(|condition| is_hca_of(condition, hca))
}

fn matching_hcas(facts: &Facts, is_it: impl Fn(&Hca) -> bool) -> Option<String> {
    let mut matching = facts.rdma.iter().filter(|hca| is_it(hca));
    let first = matching.next()?;
    let how = first.driver.as_ref().map_or("by name".to_owned(), |driver| format!("driver {driver}"));
    let more = match matching.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("HCA {} ({how}){more}", first.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::dra::ClaimedDevice;
    use crate::facts::gpu::{Gpus, Make};
    use crate::facts::net::{Interface, Net};
    use crate::facts::platform::Platform;

    fn condition(text: &str) -> Condition {
        toml::from_str(text).unwrap()
    }

    fn held(facts: &Facts, text: &str) -> Option<Vec<String>> {
        signs(facts, &candidates(facts), &condition(text))
    }

    #[test]
    fn each_kind_of_evidence_holds_on_its_host_alone() {
        let empty = Facts::default();
        let hca = Hca {
            name: "ibp0".to_owned(),
            driver: Some("mlx5_core".to_owned()),
            pci_id: Some("15b3:101e".to_owned()),
            ..Hca::default()
        };
        let mut host = Facts {
            rdma: vec![hca],
            net: Net {
                interfaces: vec![Interface {
                    name: "eth0".to_owned(),
                    driver: Some("gve".to_owned()),
                    ..Interface::default()
                }],
                ..Net::default()
            },
            gpu: Gpus { make: Make::Amd, count: Some(8), ..Gpus::default() },
            platform: Platform {
                markers: vec!["SITE_NAME".to_owned()],
                files: vec!["/etc/site".to_owned()],
                ..Platform::default()
            },
            ..Facts::default()
        };
        host.dra = vec![ClaimedDevice {
            driver: "dra.net".to_owned(),
            attributes: [("rdma", "true"), ("azure.dra.net/vmSize", "Standard_ND96isr_H100_v5")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..ClaimedDevice::default()
        }];
        host.dmi.asset_tag = Some("OracleCloud.com".to_owned());
        for (text, sign) in [
            ("hca-name = \"ibp0\"", "HCA ibp0 (driver mlx5_core)"),
            ("hca = { driver = \"mlx5*\", name = \"x\", pci = \"15b3:*\" }", "HCA ibp0 (driver mlx5_core)"),
            ("hca = { driver = \"mlx5*\", name = \"x\", virtual = true }", "HCA ibp0 (driver mlx5_core)"),
            ("interface-driver = \"gve\"", "interface eth0 (driver gve)"),
            ("dmi-asset-tag = \"OracleCloud.com\"", "DMI asset tag OracleCloud.com"),
            ("dmi-other-than = \"Crusoe\"", "DMI of Oracle Cloud"),
            ("gpu-vendor = \"amd\"", "GPU vendor amd"),
            ("environment = \"SITE_*\"", "variable SITE_NAME"),
            ("file = \"/etc/site\"", "/etc/site"),
            (
                "claimed-attribute = { name = \"azure.dra.net/vmSize\", value = \"Standard_ND*\" }",
                "claimed device with azure.dra.net/vmSize = Standard_ND96isr_H100_v5",
            ),
            ("claimed-attribute = { name = \"dra.net/*\" }", "claimed device with dra.net/rdma = true"),
        ] {
            assert_eq!(held(&host, text), Some(vec![sign.to_owned()]), "{text}");
            assert_eq!(held(&empty, text), None, "{text}");
            let both = format!("{text}\nnot = [{{ no-hca = true }}]");
            assert_eq!(held(&host, &both), Some(vec![sign.to_owned()]), "{text}");
            let neither = format!("{text}\nnot = [{{ no-hca = true }}, {{ interface = \"eth*\" }}]");
            assert_eq!(held(&host, &neither), None, "{text}");
        }
        for other in ["pci = \"15b3:1021\"", "virtual = false"] {
            let wrong = format!("hca = {{ driver = \"mlx5*\", name = \"x\", {other} }}");
            assert_eq!(held(&host, &wrong), None);
        }
        assert_eq!(held(&host, "dmi-other-than = \"Oracle Cloud\""), None);
    }

    #[test]
    fn a_file_that_becomes_a_value_is_not_a_directory() {
        let only: Only = toml::from_str(
            "if = { file = \"/topo.xml\", not = [{ file = \"/other\" }] }\nvariables = { NCCL_TOPO_FILE = \"/topo.xml\" }",
        )
        .unwrap();
        let mut host = Facts::default();
        assert!(!counts(&host, &[], &only));
        host.platform.files = vec!["/topo.xml".to_owned()];
        assert!(counts(&host, &[], &only));
        host.platform.directories = host.platform.files.clone();
        assert!(!counts(&host, &[], &only));
        assert_eq!(held(&host, "file = \"/topo.xml\""), Some(vec!["/topo.xml".to_owned()]), "as evidence");
        assert_eq!(
            asked_by(&only).next().map(|asked| asked.to_string()),
            Some("file = \"/topo.xml\"".to_owned())
        );
    }

    #[test]
    fn a_condition_is_shown_as_a_profile_has_it() {
        let text = "hca = { driver = \"a\", name = \"b\", pci = \"c\", virtual = true }\nfile = \"/d\"\nclaimed-attribute = { name = \"f\", value = \"g\" }\nnot = [{ no-hca = true, gpu-model = \"e\" }]";
        let shown: Vec<String> = asked(&condition(text)).map(|asked| asked.to_string()).collect();
        assert_eq!(condition(&shown.join("\n")), condition(text));
        assert_eq!(shown.join("\n"), text);
    }
}
