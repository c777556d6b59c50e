//! Conditions that can hold on no host, because they ask for what their own `not` rules out.

use super::format::{AttributeEvidence, Condition, HcaEvidence, Text, fits};

/// Returns whether `unwanted` holds on each host on which the rest of `condition` holds. If in doubt, it does not.
pub(super) fn follows(condition: &Condition, unwanted: &Condition) -> bool {
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
    } = unwanted;
    let patterns = [
        (&condition.hca_name, hca_name),
        (&condition.interface, interface),
        (&condition.interface_up, interface_up),
        (&condition.interface_driver, interface_driver),
        (&condition.dmi_vendor, dmi_vendor),
        (&condition.dmi_product, dmi_product),
        (&condition.dmi_asset_tag, dmi_asset_tag),
        (&condition.environment, environment),
        (&condition.master_addr, master_addr),
        (&condition.gpu_vendor, gpu_vendor),
    ];
    // These contain no pattern, or one that matches words.
    let texts = [
        (&condition.link_layer, link_layer),
        (&condition.dmi_other_than, dmi_other_than),
        (&condition.gpu_model, gpu_model),
        (&condition.file, file),
    ];
    patterns.iter().all(|(own, wanted)| is_as_narrow(own.as_ref(), wanted.as_ref()))
        && texts.iter().all(|(own, wanted)| wanted.is_none() || own == wanted)
        && (!no_hca || condition.no_hca)
        && hca.as_ref().is_none_or(|wanted| condition.hca.as_ref().is_some_and(|own| is_such(own, wanted)))
        && claimed_attribute.as_ref().is_none_or(|wanted| {
            condition.claimed_attribute.as_ref().is_some_and(|own| has_attribute(own, wanted))
        })
        && not.iter().all(|inner| condition.not.contains(inner))
}

/// Returns whether each text that fits the own pattern fits the other one.
fn is_as_narrow(own: Option<&Text>, wanted: Option<&Text>) -> bool {
    let Some(wanted) = wanted else { return true };
    own.is_some_and(|own| own == wanted || !own.contains('*') && fits(wanted, own))
}

fn is_such(own: &HcaEvidence, wanted: &HcaEvidence) -> bool {
    let HcaEvidence { driver, name, pci, virtual_function } = wanted;
    is_as_narrow(Some(&own.driver), Some(driver))
        && is_as_narrow(Some(&own.name), Some(name))
        && is_as_narrow(own.pci.as_ref(), pci.as_ref())
        && (virtual_function.is_none() || own.virtual_function == *virtual_function)
}

fn has_attribute(own: &AttributeEvidence, wanted: &AttributeEvidence) -> bool {
    let AttributeEvidence { name, value } = wanted;
    is_as_narrow(Some(&own.name), Some(name)) && is_as_narrow(own.value.as_ref(), value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds_nowhere(text: &str) -> bool {
        let condition: Condition = toml::from_str(text).unwrap();
        condition.not.iter().any(|unwanted| follows(&condition, unwanted))
    }

    #[test]
    fn a_condition_against_itself_holds_nowhere() {
        for text in [
            "environment = \"A\"\nnot = [{ environment = \"A\" }]",
            "interface = \"eth0\"\nnot = [{ environment = \"A\" }, { interface = \"eth*\" }]",
            "no-hca = true\nfile = \"/a\"\nnot = [{ no-hca = true }]",
            "gpu-model = \"*H100*\"\nfile = \"/a\"\nnot = [{ gpu-model = \"*H100*\", file = \"/a\" }]",
            "hca = { driver = \"mlx5_core\", name = \"mlx5_*\", pci = \"15b3:1021\" }\n\
             not = [{ hca = { driver = \"mlx5*\", name = \"mlx5_*\" } }]",
            "claimed-attribute = { name = \"a/b\", value = \"1\" }\nnot = [{ claimed-attribute = { name = \"a/*\" } }]",
            "link-layer = \"Ethernet\"\nnot = [{ link-layer = \"Ethernet\" }]",
            "file = \"/a\"\nnot = [{ environment = \"A\" }, { file = \"/a\", not = [{ environment = \"A\" }] }]",
        ] {
            assert!(holds_nowhere(text), "{text}");
        }
    }

    #[test]
    fn a_condition_that_some_host_can_meet_is_kept() {
        for text in [
            "environment = \"A\"\nnot = [{ environment = \"B\" }]",
            "environment = \"A\"\nnot = [{ environment = \"A\", file = \"/a\" }]",
            "interface = \"eth*\"\nnot = [{ interface = \"eth0\" }]",
            "interface = \"eth0\"\nnot = [{ interface-up = \"eth0\" }]",
            "hca = { driver = \"mlx5*\", name = \"mlx5_*\" }\n\
             not = [{ hca = { driver = \"mlx5*\", name = \"mlx5_*\", virtual = true } }]",
            "claimed-attribute = { name = \"a/b\" }\nnot = [{ claimed-attribute = { name = \"a/b\", value = \"1\" } }]",
            "file = \"/a\"\nnot = [{ file = \"/a\", not = [{ environment = \"A\" }] }]",
        ] {
            assert!(!holds_nowhere(text), "{text}");
        }
    }
}
