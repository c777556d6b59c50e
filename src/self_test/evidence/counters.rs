//! The errors that the ports in use have counted.

use std::collections::BTreeMap;

use super::Evidence;
use super::ports::{each_used, used};
use crate::facts::Facts;
use crate::facts::counters::OF_LINK;
use crate::plan::Plan;

/// Returns the counted errors. Only trouble on a link is a warning: a congested fabric and peers that
/// exited also cause late and missing packets.
pub(crate) fn counters(facts: &Facts, plan: &Plan) -> Evidence {
    let evidence = each_used(facts, plan, &|_, port| {
        let counts = port.counters.as_ref().filter(|counts| !counts.is_empty())?;
        Some(shown(counts, |_| true).unwrap_or_else(|| "no errors since the driver was loaded".to_owned()))
    });
    if evidence.lines.is_empty() {
        let mut ports = used(facts, plan);
        return match ports.any(|(_, port)| port.counters.is_some()) {
            true => Evidence::skip(
                "the counters cannot be read here (a container that shares the host's HCAs has none)",
            ),
            false if used(facts, plan).next().is_some() => Evidence::skip("the facts do not say"),
            false => evidence,
        };
    }
    let links =
        each_used(facts, plan, &|_, port| shown(port.counters.as_ref()?, |name| OF_LINK.contains(&name)));
    match links.lines.is_empty() {
        true => evidence,
        false => evidence.warn(
            format!("Links have counted errors since the driver was loaded: {}.", links.lines.join("; ")),
            "If the counts grow, check the cable, the transceiver and the switch port (mlxlink, ethtool -S).",
        ),
    }
}

/// Returns the counters above 0, such as `link_downed 3, symbol_error 12`; `None` if there are none.
fn shown(counts: &BTreeMap<String, u64>, matters: impl Fn(&str) -> bool) -> Option<String> {
    let counted = counts.iter().filter(|(name, count)| **count > 0 && matters(name));
    let list: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::check::Outcome;
    use crate::self_test::evidence::tests::host;

    fn evidence(ports: &[Option<&[(&str, u64)]>]) -> Evidence {
        let (mut facts, plan) = host(ports.len(), ports.len());
        for (hca, counts) in facts.rdma.iter_mut().zip(ports) {
            let counts = counts.map(|counts| counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect());
            hca.ports[0].counters = counts;
        }
        counters(&facts, &plan)
    }

    #[test]
    fn the_absence_of_errors_is_reported() {
        let found = evidence(&[Some(&[("symbol_error", 0)]), Some(&[("link_downed", 0)]), None]);
        assert_eq!(found.lines, ["mlx5_0, mlx5_1: no errors since the driver was loaded"]);
        assert_eq!(found.wrong, None);
    }

    #[test]
    fn errors_of_a_link_are_a_warning_and_lost_packets_are_not() {
        let found = evidence(&[
            Some(&[("link_downed", 3), ("out_of_sequence", 9), ("symbol_error", 1)]),
            Some(&[("packet_seq_err", 7)]),
        ]);
        assert_eq!(
            found.lines,
            ["mlx5_0: link_downed 3, out_of_sequence 9, symbol_error 1", "mlx5_1: packet_seq_err 7"]
        );
        let (outcome, message, _) = found.wrong.unwrap();
        assert_eq!(outcome, Outcome::Warning);
        assert!(message.ends_with(": mlx5_0: link_downed 3, symbol_error 1."), "{message}");
        assert_eq!(evidence(&[Some(&[("packet_seq_err", 7), ("local_ack_timeout_err", 2)])]).wrong, None);
    }

    #[test]
    fn unreadable_counters_are_skipped_and_not_zero() {
        assert!(evidence(&[Some(&[]), None]).skip.unwrap().starts_with("the counters cannot be read here"));
        assert_eq!(evidence(&[None]).skip.as_deref(), Some("the facts do not say"));
        assert_eq!(evidence(&[]).skip.as_deref(), Some("no port is in use"));
    }
}
