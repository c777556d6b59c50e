//! The PCI links of the HCAs in use.

use super::Evidence;
use super::ports::{each_used, used};
use crate::facts::Facts;
use crate::facts::pci::PciLink;
use crate::facts::rdma::Hca;
use crate::plan::Plan;

pub(crate) fn pci_links(facts: &Facts, plan: &Plan) -> Evidence {
    let evidence = each_used(facts, plan, &|hca, _| {
        let link = hca.pci_link.as_ref()?;
        Some(format!("{} x{}", link.speed, link.width.unwrap_or(0)))
    });
    let slow: Vec<String> = used(facts, plan)
        .filter_map(|(hca, _)| {
            let link = hca.pci_link.as_ref().filter(|link| link.is_degraded())?;
            let lanes = |width: Option<u32>| width.map(|w| format!(" x{w}")).unwrap_or_default();
            Some(format!(
                "{} at {}{} of {}{}",
                hca.name,
                link.speed,
                lanes(link.width),
                link.most_speed,
                lanes(link.most_width)
            ))
        })
        .collect();
    match slow.is_empty() {
        true if differ(facts, plan) => {
            let list = evidence.lines.join("; ");
            evidence.warn(
                format!("The PCI links of cards of one kind differ: {list}."),
                "Check the slot, the riser and the firmware of the odd one: the slowest rail sets the pace.",
            )
        }
        true => evidence,
        false => evidence.warn(
            format!("PCI links run below their highest speed or width: {}.", slow.join("; ")),
            "Reseat the card, check the slot and the firmware; other nodes wait for it.",
        ),
    }
}

/// Returns whether two HCAs with the same possible speed have different links, although each runs at
/// the best that it reports.
fn differ(facts: &Facts, plan: &Plan) -> bool {
    let links: Vec<(&Hca, &PciLink)> =
        used(facts, plan).filter_map(|(hca, _)| Some((hca, hca.pci_link.as_ref()?))).collect();
    let mut pairs = links.iter().flat_map(|one| links.iter().map(move |other| (one, other)));
    pairs.any(|((hca, link), (other, its))| {
        hca.driver == other.driver
            && link.most_speed == its.most_speed
            && (&link.speed, link.width) != (&its.speed, its.width)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::evidence::tests::host;

    fn message(links: &[(&str, u32, u32)]) -> Option<String> {
        let (mut facts, plan) = host(links.len(), links.len());
        for (hca, (driver, width, most)) in facts.rdma.iter_mut().zip(links) {
            hca.driver = Some((*driver).to_owned());
            hca.pci_link = Some(PciLink {
                speed: "32.0 GT/s PCIe".to_owned(),
                most_speed: "32.0 GT/s PCIe".to_owned(),
                width: Some(*width),
                most_width: Some(*most),
            });
        }
        pci_links(&facts, &plan).wrong.map(|(_, message, _)| message)
    }

    #[test]
    fn links_of_one_kind_of_card_are_compared() {
        assert_eq!(message(&[("mlx5_core", 16, 16), ("mlx5_core", 16, 16)]), None);
        assert_eq!(message(&[("mlx5_core", 16, 16), ("erdma", 8, 8)]), None);
        assert_eq!(
            message(&[("mlx5_core", 16, 16), ("mlx5_core", 8, 8)]).as_deref(),
            Some(
                "The PCI links of cards of one kind differ: \
                 mlx5_0: 32.0 GT/s PCIe x16; mlx5_1: 32.0 GT/s PCIe x8."
            )
        );
        let degraded = message(&[("mlx5_core", 16, 16), ("mlx5_core", 8, 16)]).unwrap();
        assert!(
            degraded.starts_with("PCI links run below their highest speed or width: mlx5_1 at"),
            "{degraded}"
        );
    }
}
