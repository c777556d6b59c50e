//! Findings about the choice of the HCAs.

use crate::fabric::KeptRails;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::libraries::nccl::version::{TAKES_32_HCAS, Version};
use crate::text::{counted, paired};

/// `publishes` names the publisher, as [`super::platform::publishes`] does.
pub(super) fn published_differ(publishes: &str, published: &str) -> Finding {
    Finding::info(
        Id::PublishedHcasDiffer,
        format!(
            "{publishes} {VARIABLE}={published}, which does not select exactly the HCAs to use here; the exact list is set instead."
        ),
    )
    .about_variables([VARIABLE])
}

pub(super) fn too_many(library: Flavor, version: Option<Version>, usable: usize, most: usize) -> Finding {
    let message = format!(
        "{usable} ports are usable, but {} takes only the first {most} that libibverbs lists.",
        library.of_release(version)
    );
    let fix = match version.is_some_and(|version| version < TAKES_32_HCAS) {
        true => format!(
            "Use {library} 2.19 or later, which takes 32, or name in {VARIABLE} the HCAs that are near the GPUs."
        ),
        false => format!("Name in {VARIABLE} the HCAs that are near the GPUs."),
    };
    Finding::warning(Id::TooManyHcas, message).with_fix(fix)
}

pub(super) fn rails(kept: &KeptRails) -> Finding {
    let KeptRails { rails, route, hcas, gpus } = kept;
    let list = paired(rails);
    let hcas = counted(*hcas, "HCA");
    let message = match rails.as_slice() {
        [_] => format!(
            "{list} carries {route}, and {VARIABLE} still uses it as a rail: it is as fast as the others, and without it there would be {hcas} for {gpus} GPUs."
        ),
        _ => format!(
            "{list} carry default routes, and {VARIABLE} still uses them as rails: they are as fast as the others, and without them there would be {hcas} for {gpus} GPUs."
        ),
    };
    let (ports, interfaces): (Vec<&String>, Vec<&String>) =
        rails.iter().map(|(port, interface)| (port, interface)).unzip();
    let finding = Finding::info(Id::DefaultRouteRail, message).about_variables([VARIABLE]);
    finding.about_ports(ports).about_interfaces(interfaces).with_fix(
        "To keep such HCAs only for TCP, set default-route-hca = \"skip\" (RDMA_INIT_DEFAULT_ROUTE_HCA=skip).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::WhichRoute;

    #[test]
    fn rails_that_carry_default_routes_are_named() {
        let message = |names: &[(&str, &str)], route, hcas, gpus| {
            let owned = |(port, interface): &(&str, &str)| ((*port).to_owned(), (*interface).to_owned());
            let rails = names.iter().map(owned).collect();
            super::rails(&KeptRails { rails, route, hcas, gpus }).message
        };
        assert_eq!(
            message(&[("mlx5_0:1", "eth0")], WhichRoute::Only, 1, 2),
            "mlx5_0:1 (eth0) carries the default route, and NCCL_IB_HCA still uses it as a rail: \
             it is as fast as the others, and without it there would be 1 HCA for 2 GPUs."
        );
        let one = message(&[("mlx5_1:1", "eth1")], WhichRoute::OneOfSeveral, 3, 4);
        assert!(one.starts_with("mlx5_1:1 (eth1) carries a default route, and"), "{one}");
        let two = message(&[("mlx5_0:1", "eth0"), ("mlx5_1:1", "eth1")], WhichRoute::OneOfSeveral, 3, 4);
        assert!(two.starts_with("mlx5_0:1 (eth0), mlx5_1:1 (eth1) carry default routes"), "{two}");
        assert!(two.ends_with("without them there would be 3 HCAs for 4 GPUs."), "{two}");
    }
}
