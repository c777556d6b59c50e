//! The facts that a decision can depend on. A start does not read other facts, because the user waits for it:
//! on a host without RDMA, reading the network and the image would double the time that the start adds
//! (docs/architecture.md).

use super::{Options, ProfileOption, User, over_tcp};
use crate::facts::{Facts, Need};
use crate::profiles::{Condition, Profiles, Text};

/// Returns whether the network and the image can matter, based on everything that is known before they are
/// read: the RDMA devices, the GPUs, the user's settings, and the names of the network devices.
///
/// Without an HCA, three things require interfaces and routes: a profile, GPUs of a job that may have several
/// nodes, and a user's variable that names an interface. In case of doubt, they matter.
pub fn need(facts: &Facts, devices: &[String], profiles: &Profiles, options: &Options) -> Need {
    if !facts.rdma.is_empty()
        || User::new(facts, options).get("NCCL_SOCKET_IFNAME").is_some()
        || may_have_profile(facts, devices, profiles, options)
        || is_of_plugin(facts, profiles, options)
    {
        return Need::NetworkAndImage;
    }
    match over_tcp::nodes(facts) {
        Some(over_tcp::Nodes::Several) => Need::NetworkAndImage,
        // In this case, the plan decides only the interface, and every release of NCCL uses the same one.
        Some(over_tcp::Nodes::PerhapsSeveral) if options.profile != ProfileOption::None => Need::Network,
        Some(over_tcp::Nodes::PerhapsSeveral) | None => Need::Nothing,
    }
}

/// Returns whether the firmware shows a machine with devices for a net plugin, which the image may contain.
fn is_of_plugin(facts: &Facts, profiles: &Profiles, options: &Options) -> bool {
    options.profile == ProfileOption::Auto
        && over_tcp::nodes(facts).is_some()
        && super::profile::of_instance(facts, profiles).is_some()
}

/// Returns whether a profile may fit, judging by the names of the network devices.
fn may_have_profile(facts: &Facts, devices: &[String], profiles: &Profiles, options: &Options) -> bool {
    match &options.profile {
        ProfileOption::None => false,
        ProfileOption::Named(_) => true,
        ProfileOption::Auto => {
            let mut conditions = profiles.outlines().flat_map(|outline| outline.evidence.iter());
            conditions.any(|condition| may_hold(condition, facts, devices))
        }
    }
}

/// Returns whether a condition can hold without an HCA, judging by the names of the network devices.
fn may_hold(condition: &Condition, facts: &Facts, devices: &[String]) -> bool {
    let is_there = |file: &Text| facts.platform.files.iter().any(|known| *known == *file);
    let may_be_there = |pattern: &Option<Text>| {
        pattern.as_ref().is_none_or(|pattern| devices.iter().any(|device| may_fit(pattern, device)))
    };
    condition.hca.is_none()
        && condition.hca_name.is_none()
        && condition.link_layer.is_none()
        && condition.file.as_ref().is_none_or(is_there)
        && may_be_there(&condition.interface)
        && may_be_there(&condition.interface_up)
}

/// Returns whether a device or one of its labels may match a pattern. The label of an address (`eth0:1`)
/// counts as an interface, and its name begins with the device's name.
fn may_fit(pattern: &str, device: &str) -> bool {
    let start = pattern.split('*').next().unwrap_or_default();
    device.starts_with(start) || start.starts_with(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::Gpus;
    use crate::facts::launchers::Nodes;
    use crate::facts::platform::Platform;
    use crate::facts::rdma::Hca;
    use crate::facts::settings::{Settings, UserSetting};

    fn need(facts: &Facts, devices: &[&str], profile: ProfileOption) -> Need {
        let devices: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { profile, ..Options::default() };
        super::need(facts, &devices, &Profiles::load(None).unwrap(), &options)
    }

    #[test]
    fn without_an_hca_little_needs_the_network() {
        let nothing = Facts::default();
        let hca = Facts { rdma: vec![Hca::default()], ..Facts::default() };
        let name = |variable: &str| UserSetting::new(variable, "eth0", crate::finding::Source::Environment);
        let set = |variable| Facts { settings: Settings(vec![name(variable)]), ..Facts::default() };
        let usual = ["lo", "eth0"];
        assert_eq!(need(&nothing, &usual, ProfileOption::Auto), Need::Nothing);
        assert_eq!(need(&nothing, &[], ProfileOption::Auto), Need::Nothing);
        assert_eq!(need(&set("NCCL_DEBUG"), &usual, ProfileOption::Auto), Need::Nothing);
        assert_eq!(need(&nothing, &["lo", "hpn0"], ProfileOption::None), Need::Nothing);

        assert_eq!(need(&hca, &usual, ProfileOption::None), Need::NetworkAndImage);
        assert_eq!(need(&set("NCCL_SOCKET_IFNAME"), &usual, ProfileOption::None), Need::NetworkAndImage);
        assert_eq!(need(&nothing, &usual, ProfileOption::Named("erdma".to_owned())), Need::NetworkAndImage);
        assert_eq!(need(&nothing, &["lo", "hpn0"], ProfileOption::Auto), Need::NetworkAndImage);
    }

    #[test]
    fn gpus_need_the_network_unless_the_job_has_one_node() {
        let with_gpu = |nodes: Option<u32>| Facts {
            gpu: Gpus { count: Some(1), ..Gpus::default() },
            platform: Platform { nodes: nodes.map(|count| Nodes { count, this: 0 }), ..Platform::default() },
            ..Facts::default()
        };
        let usual = ["lo", "eth0"];
        for (nodes, auto, none) in [
            (Some(1), Need::Nothing, Need::Nothing),
            (None, Need::Network, Need::Nothing),
            (Some(2), Need::NetworkAndImage, Need::NetworkAndImage),
        ] {
            assert_eq!(need(&with_gpu(nodes), &usual, ProfileOption::Auto), auto, "{nodes:?}");
            assert_eq!(need(&with_gpu(nodes), &usual, ProfileOption::None), none, "{nodes:?}");
        }
    }

    #[test]
    fn an_instance_with_devices_for_a_plugin_needs_the_image() {
        let on_ec2 = |product: &str, gpus: Option<u32>| {
            let mut facts = Facts { gpu: Gpus { count: gpus, ..Gpus::default() }, ..Facts::default() };
            facts.dmi.vendor = Some("Amazon EC2".to_owned());
            facts.dmi.product = Some(product.to_owned());
            need(&facts, &["lo", "eth0"], ProfileOption::Auto)
        };
        assert_eq!(on_ec2("p5.48xlarge", Some(8)), Need::NetworkAndImage);
        assert_eq!(on_ec2("p5.48xlarge", None), Need::Nothing);
        assert_eq!(on_ec2("g6.xlarge", Some(1)), Need::Network);
    }

    #[test]
    fn an_interface_label_matches_its_device() {
        for (pattern, device) in [("hpn*", "hpn0"), ("eth0", "eth0"), ("eth0:1", "eth0"), ("*", "lo")] {
            assert!(may_fit(pattern, device), "{pattern} {device}");
        }
        assert!(!may_fit("hpn*", "eth0"));
        assert!(!may_fit("eth1", "eth0"));
    }
}
