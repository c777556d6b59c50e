//! Which facts a decision can depend on. The start-up does not read the others, because the
//! user waits for it: on a host without RDMA, the network takes 0.2 ms to read, and the image
//! another 1.4 ms, where all else that the start adds takes 1.3 ms (docs/decisions.md).

use super::{Options, ProfileOption, User};
use crate::facts::Facts;
use crate::profiles::{Condition, Profiles, Text};

/// Whether the network can matter, judged by all that is known before it is read:
/// the RDMA devices, the user's settings, and the names of the network devices.
///
/// Where no HCA is, only a profile asks for interfaces and routes, and a value of
/// the user's that names an interface. In doubt it matters.
pub fn needs_network(facts: &Facts, devices: &[String], profiles: &Profiles, options: &Options) -> bool {
    if !facts.rdma.is_empty() || User::new(facts, options).get("NCCL_SOCKET_IFNAME").is_some() {
        return true;
    }
    match &options.profile {
        ProfileOption::None => false,
        ProfileOption::Named(_) => true,
        ProfileOption::Auto => {
            let mut conditions = profiles.outlines().flat_map(|outline| outline.evidence.iter());
            conditions.any(|condition| may_hold(condition, devices))
        }
    }
}

/// Whether a condition can hold without an HCA, as far as the names tell.
fn may_hold(condition: &Condition, devices: &[String]) -> bool {
    let may_be_there = |pattern: &Option<Text>| {
        pattern.as_ref().is_none_or(|pattern| devices.iter().any(|device| may_fit(pattern, device)))
    };
    condition.hca.is_none()
        && condition.link_layer.is_none()
        && may_be_there(&condition.interface)
        && may_be_there(&condition.interface_up)
}

/// An address may have a label (`eth0:1`), and is then an interface of that name,
/// which the device's name begins.
fn may_fit(pattern: &str, device: &str) -> bool {
    let start = pattern.split('*').next().unwrap_or_default();
    device.starts_with(start) || start.starts_with(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::rdma::Hca;
    use crate::facts::settings::{Settings, UserSetting};

    fn needs(facts: &Facts, devices: &[&str], profile: ProfileOption) -> bool {
        let devices: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { profile, ..Options::default() };
        needs_network(facts, &devices, &Profiles::load(None).unwrap(), &options)
    }

    #[test]
    fn without_an_hca_only_what_names_an_interface_needs_the_network() {
        let nothing = Facts::default();
        let hca = Facts { rdma: vec![Hca::default()], ..Facts::default() };
        let name = |variable: &str| UserSetting::new(variable, "eth0", crate::finding::Source::Environment);
        let set = |variable| Facts { settings: Settings(vec![name(variable)]), ..Facts::default() };
        let usual = ["lo", "eth0"];
        assert!(!needs(&nothing, &usual, ProfileOption::Auto));
        assert!(!needs(&nothing, &[], ProfileOption::Auto));
        assert!(!needs(&set("NCCL_DEBUG"), &usual, ProfileOption::Auto));
        assert!(!needs(&nothing, &["lo", "hpn0"], ProfileOption::None));

        assert!(needs(&hca, &usual, ProfileOption::None));
        assert!(needs(&set("NCCL_SOCKET_IFNAME"), &usual, ProfileOption::None));
        assert!(needs(&nothing, &usual, ProfileOption::Named("erdma".to_owned())));
        assert!(needs(&nothing, &["lo", "hpn0"], ProfileOption::Auto));
    }

    #[test]
    fn a_label_counts_for_its_device() {
        for (pattern, device) in [("hpn*", "hpn0"), ("eth0", "eth0"), ("eth0:1", "eth0"), ("*", "lo")] {
            assert!(may_fit(pattern, device), "{pattern} {device}");
        }
        assert!(!may_fit("hpn*", "eth0"));
        assert!(!may_fit("eth1", "eth0"));
    }
}
