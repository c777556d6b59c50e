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
