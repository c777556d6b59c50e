//! HCAs that libibverbs skips, because their provider in the image does not support the ABI of the node's
//! driver.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::image::kernel_abi::KernelAbi;
use crate::libraries::nccl::libibverbs::{Loaded, OtherAbi};
use crate::plan::{Plan, PortVerdict};
use crate::text::{condensed, grouped};

/// The ABI of the Linux kernel's own drivers, for vendors that also offer drivers with other ABIs
/// (`include/uapi/rdma/bnxt_re-abi.h`, `ionic-abi.h`).
const OF_LINUX: u32 = 1;

/// Returns one finding for each combination of provider and ABI.
pub(super) fn findings(facts: &Facts, verbs: &Loaded, plan: &Plan) -> Vec<Finding> {
    let used: Vec<&str> = plan.ports.iter().filter(|port| port.used).map(|port| port.hca.as_str()).collect();
    let left_out = facts.rdma.iter().filter(|hca| used.contains(&hca.name.as_str()));
    let left_out = left_out.filter_map(|hca| Some((verbs.other_abi(hca)?, hca.name.clone())));
    let is_left_out =
        |name: &&str| facts.rdma.iter().any(|hca| hca.name == **name && verbs.other_abi(hca).is_some());
    let consequence = match used.iter().all(is_left_out) {
        true => "the job runs on TCP",
        false => "the job runs on the other HCAs",
    };
    let ports = |names: &[String]| -> Vec<String> {
        plan.ports.iter().filter(|port| names.contains(&port.hca)).map(PortVerdict::full_name).collect()
    };
    grouped(left_out)
        .into_iter()
        .map(|(other, names)| finding(plan.library, &other, &names, consequence).about_ports(ports(&names)))
        .collect()
}

fn finding(library: Flavor, other: &OtherAbi, names: &[String], consequence: &str) -> Finding {
    let OtherAbi { provider, spoken, supported } = other;
    let KernelAbi { least, most } = supported;
    let message = format!(
        "The node's kernel driver for {names} speaks ABI {spoken}, but the image's provider {} supports only {}: libibverbs says \"does not support the kernel ABI of {spoken} (supports {least} to {most})\", {library} does not see {names}, and {consequence}.",
        provider.name,
        range(*supported),
        names = condensed(names),
    );
    Finding::error(Id::ProviderKernelAbi, message).with_fix(fix(other))
}

fn range(supported: KernelAbi) -> String {
    match supported {
        KernelAbi { least, most } if least == most => least.to_string(),
        KernelAbi { least, most } if most >= i32::MAX as u32 => format!("{least} and later"),
        KernelAbi { least, most } => format!("{least} to {most}"),
    }
}

fn fix(other: &OtherAbi) -> String {
    let OtherAbi { provider, spoken, supported } = other;
    let package = match provider.name.as_str() {
        "bnxt_re" if *spoken != OF_LINUX => {
            "Install in the image Broadcom's libbnxt_re of the same release as the node's driver"
        }
        "ionic" if *spoken != OF_LINUX => {
            "Install in the image AMD's libionic1 of the same release as the node's driver"
        }
        "ionic" => {
            "The node has the driver of the Linux kernel: install ibverbs-providers of rdma-core 61 or later in the image, in place of AMD's libionic1"
        }
        "bnxt_re" => {
            "The node has the driver of the Linux kernel: install the distribution's ibverbs-providers in the image, in place of Broadcom's libbnxt_re"
        }
        "erdma" => {
            "Install in the image the vendor's eRDMA packages of the same release as the node's driver"
        }
        _ if *spoken > supported.most => {
            "Install ibverbs-providers of a later rdma-core in the image, or the package of the vendor whose driver the node has"
        }
        _ => "Install ibverbs-providers of an earlier rdma-core in the image, or a later driver on the node",
    };
    let mount = match (&provider.path, provider.abi) {
        (Some(path), Some(abi)) => format!(
            "; or mount the node's lib{}-rdmav{abi}.so over {}",
            provider.name.rsplit('/').next().unwrap_or_default().trim_start_matches("lib"),
            path.display()
        ),
        _ => String::new(),
    };
    format!("{package}{mount}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::providers::Provider;

    #[test]
    fn the_fix_is_for_the_driver_that_the_node_has() {
        let fix = |name: &str, spoken: u32, least: u32, most: u32| {
            let provider = Provider {
                name: name.to_owned(),
                path: Some(format!("/usr/lib/lib{name}.so.1").into()),
                abi: Some(34),
                ..Provider::default()
            };
            fix(&OtherAbi { provider: &provider, spoken, supported: KernelAbi { least, most } })
        };
        for (name, spoken, supported, wanted) in [
            ("bnxt_re", 6, 1, "Broadcom's libbnxt_re of the same release as the node's driver"),
            ("bnxt_re", 1, 6, "in place of Broadcom's libbnxt_re"),
            ("ionic", 4, 1, "AMD's libionic1 of the same release"),
            ("ionic", 1, 4, "rdma-core 61 or later"),
            ("mlx5", 2, 1, "a later rdma-core"),
            ("mlx5", 0, 1, "an earlier rdma-core"),
        ] {
            let fix = fix(name, spoken, supported, supported);
            assert!(fix.contains(wanted), "{fix}");
            let mount = format!("mount the node's lib{name}-rdmav34.so over /usr/lib/lib{name}.so.1.");
            assert!(fix.ends_with(&mount), "{fix}");
        }
    }

    #[test]
    fn ranges_are_words() {
        let words = |least, most| range(KernelAbi { least, most });
        assert_eq!(words(1, 1), "1");
        assert_eq!(words(0, 5), "0 to 5");
        assert_eq!(words(3, i32::MAX as u32), "3 and later");
    }
}
