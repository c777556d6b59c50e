//! A traffic class that another platform publishes for its own network.

use super::{Decided, shown};
use crate::finding::{Finding, Id, Source};
use crate::libraries::traffic_class::{OF_NCCL, of_nccl};

/// A class that a platform or a project publishes, for switches with a lossless queue for it.
struct Published {
    class: u8,
    by: &'static str,
    /// A profile that has it.
    profile: Option<&'static str>,
}

const PUBLISHED: &[Published] = &[
    Published {
        class: 41,
        by: "Oracle publishes it for its own RoCE network, and AMD's cvs examples set it",
        profile: Some("oci-roce"),
    },
    Published { class: 52, by: "Google's gIB script sets it for Google's own network", profile: None },
    Published {
        class: 96,
        by: "It is the class of Spectrum-X, and AMD's container toolkit sets it",
        profile: Some("spectrum-x"),
    },
    Published { class: 104, by: "AMD's Primus sets it", profile: None },
    Published {
        class: 136,
        by: "Alibaba Cloud PAI publishes it for its Lingjun network",
        profile: Some("pai-lingjun"),
    },
];

/// Reports such a class on RoCE if nothing shows that this network has it: neither the profile nor the ports.
pub(super) fn findings(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(OF_NCCL).filter(|setting| setting.origin != Source::AtStart)?;
    let class = of_nccl(&setting.value)?;
    let published = PUBLISHED.iter().find(|published| published.class == class)?;
    // Other findings compare the value with what the profile publishes, and with the ports' class.
    let is_in_profile = decided.profile.variables.contains_key(OF_NCCL)
        || decided.profile.unset.iter().any(|name| name == OF_NCCL);
    let mut roce = decided.used_roce().peekable();
    if is_in_profile || roce.peek().is_none() || roce.any(|rail| rail.port.traffic_class.is_some()) {
        return None;
    }
    let message = format!(
        "{}: a traffic class helps only if the switches have a lossless queue for it, and nothing in this container shows which class this network has. ({}.)",
        shown(setting),
        published.by
    );
    let choose =
        published.profile.map(|name| format!(" If this is such a network, choose the profile {name}."));
    let fix = format!(
        "Ask the administrator for the class of this network, or remove {OF_NCCL}.{}",
        choose.unwrap_or_default()
    );
    Some(Finding::info(Id::ForeignTrafficClass, message).about_variables([OF_NCCL]).with_fix(fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profiles;

    #[test]
    fn the_classes_of_the_profiles_are_known() {
        let profiles = Profiles::load(None).unwrap();
        let known = |class: &str| PUBLISHED.iter().any(|published| published.class.to_string() == class);
        for profile in profiles.iter() {
            assert!(profile.variables.get(OF_NCCL).is_none_or(|class| known(class)), "{}", profile.name);
        }
        for Published { class, profile, .. } in PUBLISHED {
            let of_profile = profile.map(|name| profiles.get(name).unwrap().variables[OF_NCCL].clone());
            assert!(of_profile.is_none_or(|of_profile| of_profile == class.to_string()), "{class}");
        }
    }
}
