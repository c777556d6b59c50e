//! The clouds and makers whose machines the firmware names, in one place: the firmware's word counts more than a
//! mounted directory, a copied variable, or the name of an interface.

use super::fits;
use crate::facts::dmi::Dmi;

/// Where the firmware names the maker.
enum Field {
    Vendor,
    Product,
    AssetTag,
}

use Field::{AssetTag, Product, Vendor};

/// A maker's name, and what its firmware says (cloud-init, `tools/ds-identify`; aws-ofi-nccl for AWS). Asset tags
/// come first: a cloud marks machines with them that have the firmware of another maker. The vendors NVIDIA and Huawei
/// alone say nothing: clouds have NVIDIA's GB200 and GB300 machines, and anyone can buy Huawei's servers.
const MAKERS: [(&str, Field, &str); 13] = [
    ("Microsoft Azure", AssetTag, "7783-7084-3265-9085-8269-3286-77"),
    ("Oracle Cloud", AssetTag, "OracleCloud.com"),
    ("Huawei", AssetTag, "HUAWEICLOUD"),
    ("Amazon Web Services", Vendor, "Amazon EC2"),
    ("Google Cloud", Product, "Google Compute Engine"),
    ("Google Cloud", Vendor, "Google*"),
    ("Alibaba Cloud", Vendor, "Alibaba Cloud*"),
    ("Alibaba Cloud", Product, "Alibaba Cloud*"),
    ("DigitalOcean", Vendor, "DigitalOcean*"),
    ("Vultr", Vendor, "Vultr*"),
    ("NVIDIA DGX", Product, "DGX*"),
    ("NVIDIA DGX", Product, "NVIDIA DGX*"),
    ("NVIDIA DGX", Product, "NVIDIA_DGX*"),
];

/// Names that people write for these makers.
const ABBREVIATIONS: [(&str, &str); 4] = [
    ("AWS", "Amazon Web Services"),
    ("EC2", "Amazon Web Services"),
    ("GCP", "Google Cloud"),
    ("OCI", "Oracle Cloud"),
];

/// Returns the names of all makers in the table, each once, sorted.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = MAKERS.iter().map(|(maker, _, _)| *maker).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the makers that such a name can only mean, if it is none of their names: it differs in case or punctuation,
/// is a part of the name, continues it, or abbreviates it. A name that is like none of them may be a cloud's that the
/// firmware does not name.
pub(super) fn meant_by(name: &str) -> Vec<&'static str> {
    if names().contains(&name) {
        return Vec::new();
    }
    let words = words_of(name);
    let is_meant = |maker: &&str| {
        let of_maker = words_of(maker);
        let is_part =
            |whole: &[String], part: &[String]| whole.windows(part.len().max(1)).any(|some| some == part);
        let is_abbreviation =
            || ABBREVIATIONS.iter().any(|(short, whole)| whole == maker && short.eq_ignore_ascii_case(name));
        words.concat() == of_maker.concat()
            || is_part(&of_maker, &words)
            || words.starts_with(&of_maker)
            || is_abbreviation()
    };
    names().into_iter().filter(is_meant).collect()
}

/// Returns the words of a name in lower case.
fn words_of(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns the maker that the firmware names; `None` if it names none of those in the table.
pub(crate) fn maker_of(dmi: &Dmi) -> Option<&'static str> {
    let found = |field: &Field| match field {
        Vendor => dmi.vendor.as_deref(),
        Product => dmi.product.as_deref(),
        AssetTag => dmi.asset_tag.as_deref(),
    };
    let says = |field: &Field, pattern: &str| found(field).is_some_and(|text| fits(pattern, text));
    MAKERS.iter().find(|(_, field, pattern)| says(field, pattern)).map(|(maker, _, _)| *maker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::{Profile, Profiles};

    #[test]
    fn the_firmware_names_its_maker() {
        let dmi = |vendor: &str, product: &str, tag: Option<&str>| Dmi {
            vendor: Some(vendor.to_owned()),
            product: Some(product.to_owned()),
            asset_tag: tag.map(str::to_owned),
        };
        for (dmi, maker) in [
            (dmi("NVIDIA", "DGXH100", Some("Unknown")), Some("NVIDIA DGX")),
            (dmi("NVIDIA", "DGXA100 920-23687-2530-000", None), Some("NVIDIA DGX")),
            (dmi("NVIDIA", "NVIDIA_DGX_Spark", None), Some("NVIDIA DGX")),
            (dmi("NVIDIA", "DGXH100", Some("OracleCloud.com")), Some("Oracle Cloud")),
            (dmi("NVIDIA", "GB200 NVL", None), None),
            (dmi("Vultr", "HFT", None), Some("Vultr")),
            (dmi("Huawei", "KVM", Some("HUAWEICLOUD")), Some("Huawei")),
            (dmi("Amazon EC2", "p5.48xlarge", None), Some("Amazon Web Services")),
            (dmi("Google", "Google Compute Engine", None), Some("Google Cloud")),
            (dmi("Alibaba Cloud", "Alibaba Cloud ECS", None), Some("Alibaba Cloud")),
            (dmi("Microsoft Corporation", "Virtual Machine", None), None),
            (dmi("Supermicro", "SYS-821GE-TNHR", Some("To be filled by O.E.M.")), None),
            (Dmi::default(), None),
        ] {
            assert_eq!(maker_of(&dmi), maker, "{dmi:?}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_a_makers_means_that_maker() {
        for (name, meant) in [
            ("oracle cloud", &["Oracle Cloud"][..]),
            ("OracleCloud", &["Oracle Cloud"]),
            ("Oracle", &["Oracle Cloud"]),
            ("Oracle Cloud Infrastructure", &["Oracle Cloud"]),
            ("Azure", &["Microsoft Azure"]),
            ("aws", &["Amazon Web Services"]),
            ("Amazon", &["Amazon Web Services"]),
            ("DGX", &["NVIDIA DGX"]),
            ("Cloud", &["Alibaba Cloud", "Google Cloud", "Oracle Cloud"]),
            ("Oracle Cloud", &[]),
            ("Crusoe", &[]),
            ("CoreWeave", &[]),
            ("Orac", &[]),
            ("IBM Cloud", &[]),
            ("-", &[]),
        ] {
            assert_eq!(meant_by(name), meant, "{name}");
        }
        for (short, maker) in ABBREVIATIONS {
            assert_eq!(meant_by(short), [maker]);
        }
    }

    #[test]
    fn the_manual_lists_the_makers() {
        let manual = include_str!("../../docs/configuration.md");
        let start = "The firmware's names that `dmi-other-than` knows: ";
        let list = manual.split_once(start).and_then(|(_, rest)| rest.split_once('.')).map(|(list, _)| list);
        let names: Vec<String> = names().iter().map(|name| format!("`{name}`")).collect();
        assert_eq!(list.map(|list| list.replace('\n', " ")), Some(names.join(", ")));
    }

    #[test]
    fn each_row_is_of_its_maker_alone() {
        for (maker, field, pattern) in MAKERS {
            let text = Some(pattern.replace('*', ""));
            let dmi = match field {
                Vendor => Dmi { vendor: text, ..Dmi::default() },
                Product => Dmi { product: text, ..Dmi::default() },
                AssetTag => Dmi { asset_tag: text, ..Dmi::default() },
            };
            assert_eq!(maker_of(&dmi), Some(maker), "{dmi:?}");
        }
    }

    /// The name of an interface or of an mlx5 HCA, a mounted directory and a copied variable may be on any machine.
    #[test]
    fn weak_evidence_does_not_stand_against_the_firmware() {
        let profiles = Profiles::load(None).unwrap();
        let is_generic = |profile: &&Profile| profile.name.starts_with("generic-");
        for profile in profiles.iter().filter(|profile| !is_generic(profile)) {
            for condition in &profile.evidence {
                let of_firmware = [&condition.dmi_vendor, &condition.dmi_product, &condition.dmi_asset_tag];
                let of_own_device = condition.hca.as_ref().is_some_and(|hca| hca.driver != "mlx5*");
                let yields = condition.not.iter().any(|not| not.dmi_other_than.is_some());
                assert!(
                    yields || of_own_device || of_firmware.iter().any(|text| text.is_some()),
                    "{}: {condition:?}",
                    profile.name
                );
            }
        }
    }
}
