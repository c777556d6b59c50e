//! How many GPUs and RDMA NICs there are, and the kind of machine.

use super::Evidence;
use super::ports::used;
use crate::facts::Facts;
use crate::plan::{Fabric, Plan};
use crate::text::counted;

pub(crate) fn count(facts: &Facts, plan: &Plan) -> Evidence {
    let nics = match plan.fabric {
        Fabric::Plugin(count) => count,
        _ => {
            let mut names: Vec<&str> = used(facts, plan).map(|(hca, _)| hca.name.as_str()).collect();
            names.dedup();
            names.len()
        }
    };
    if facts.gpu.count.is_none() && nics == 0 {
        return Evidence::skip("no GPU and no RDMA NIC");
    }
    let mut lines = vec![counted(facts.gpu.count.unwrap_or(0) as usize, "GPU"), counted(nics, "RDMA NIC")];
    // On AWS this is the instance type.
    lines.extend(facts.dmi.product.as_ref().map(|product| format!("{product} (DMI)")));
    Evidence::of(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::evidence::tests::host;

    #[test]
    fn cards_nics_and_the_machine_are_named() {
        let (mut facts, plan) = host(3, 2);
        assert_eq!(count(&facts, &plan).lines, ["0 GPUs", "2 RDMA NICs"]);
        facts.gpu.count = Some(1);
        facts.dmi.product = Some("p5.48xlarge".to_owned());
        assert_eq!(count(&facts, &plan).lines, ["1 GPU", "2 RDMA NICs", "p5.48xlarge (DMI)"]);
        let (facts, plan) = host(0, 0);
        assert!(count(&facts, &plan).skip.is_some());
    }
}
