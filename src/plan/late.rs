//! Ports that are not ACTIVE yet, but that the plan would use if they were.

use super::{Options, Plan, Setting, SettingOutcome, decide_as_found};
use crate::facts::Facts;
use crate::facts::rdma::{Hca, Port};
use crate::finding::Source;
use crate::libraries::nccl::devices::LIST;
use crate::profiles::Profiles;

/// The most ports to examine: each needs a separate decision.
const MOST: usize = 16;

/// A port that NCCL is to use as well, if it is ACTIVE when NCCL asks the env plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatePort {
    /// The HCA's name now.
    pub hca: String,
    /// Counted from 1.
    pub number: u32,
    /// The port's entry in the list of HCAs: `mlx5_2` or `mlx5_2:1`.
    pub entry: String,
}

/// Returns the ports that would do nothing but add an entry to an exact list of HCAs. If a port would change
/// anything else for NCCL, the values from the start remain.
pub(super) fn ports(facts: &Facts, profiles: &Profiles, options: &Options, plan: &Plan) -> Vec<LatePort> {
    let Some(list) = exact_list(&plan.settings) else { return Vec::new() };
    let late = facts.rdma.iter().flat_map(|hca| hca.ports.iter().map(move |port| (hca, port)));
    let late = late.filter(|(_, port)| !port.is_active() && !port.state.is_empty());
    let added = |(hca, port): (&Hca, &Port)| {
        let facts = with_active(facts, plan, hca, port);
        let then = decide_as_found(&facts, profiles, options).plan;
        let entry = added_entry(list, exact_list(&then.settings)?)?;
        let stays = others(&plan.settings).eq(others(&then.settings));
        stays.then(|| LatePort { hca: hca.name.clone(), number: port.number, entry: entry.to_owned() })
    };
    late.take(MOST).filter_map(added).collect()
}

/// Returns the list of HCAs, if rdma-init chose it and it has exact names.
fn exact_list(settings: &[Setting]) -> Option<&str> {
    let is_own = |setting: &&Setting| {
        setting.variable == LIST
            && setting.outcome == SettingOutcome::Filled
            && setting.source == Source::Facts
    };
    settings.iter().find(is_own)?.value.as_deref()?.strip_prefix('=')
}

/// Returns NCCL's variables except the list of HCAs, with the job's values.
fn others(settings: &[Setting]) -> impl Iterator<Item = (&str, SettingOutcome, Option<&str>)> {
    let is_other = |setting: &&Setting| setting.variable.starts_with("NCCL_") && setting.variable != LIST;
    let settings = settings.iter().filter(is_other);
    settings.map(|setting| (setting.variable.as_str(), setting.outcome, setting.value.as_deref()))
}

/// Returns the only entry that is in the second list but not in the first.
fn added_entry<'a>(before: &str, after: &'a str) -> Option<&'a str> {
    let before: Vec<&str> = before.split(',').collect();
    let after: Vec<&str> = after.split(',').collect();
    let mut added = after.iter().filter(|entry| !before.contains(entry));
    let entry = added.next()?;
    (added.next().is_none() && after.len() == before.len() + 1).then_some(*entry)
}

/// Returns the facts as they will be when this port is ACTIVE. A port without a link reports neither its rate
/// nor its LID, so it gets those of a used port of the same kind.
fn with_active(facts: &Facts, plan: &Plan, hca: &Hca, port: &Port) -> Facts {
    let is_used = |hca: &str, number: u32| {
        plan.ports.iter().any(|found| found.used && found.hca == hca && found.port == number)
    };
    let of_kind = facts.rdma.iter().filter(|other| other.pci_id == hca.pci_id).flat_map(|other| {
        let used = other.ports.iter().filter(|port| is_used(&other.name, port.number));
        used.map(|port| (port.rate.clone(), port.lid))
    });
    let like = of_kind.into_iter().next();
    let mut facts = facts.clone();
    let ports = facts.rdma.iter_mut().filter(|other| other.name == hca.name).flat_map(|hca| &mut hca.ports);
    for late in ports.filter(|late| late.number == port.number) {
        late.state = "ACTIVE".to_owned();
        late.physical_state = "LinkUp".to_owned();
        if let Some((rate, lid)) = like.clone() {
            (late.rate, late.lid) = (rate, lid);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::document::Document;

    fn late(document: &str, spoil: impl Fn(&mut Port)) -> Vec<String> {
        let mut facts = Document::parse(document).unwrap();
        let last = facts.rdma.iter().rposition(|hca| hca.name.starts_with("mlx5")).unwrap();
        facts.rdma[last].ports.iter_mut().for_each(spoil);
        let (profiles, options) = (Profiles::load(None).unwrap(), Options::default());
        let plan = decide_as_found(&facts, &profiles, &options).plan;
        ports(&facts, &profiles, &options, &plan).into_iter().map(|late| late.entry).collect()
    }

    fn down(port: &mut Port) {
        port.state = "DOWN".to_owned();
        port.physical_state = "Polling".to_owned();
        port.rate = "10 Gb/sec (4X SDR)".to_owned();
        port.lid = Some(0);
    }

    #[test]
    fn a_port_without_a_link_is_late_if_it_would_only_join_the_list() {
        let infiniband = include_str!("../demo/infiniband.json");
        assert_eq!(late(infiniband, down), ["mlx5_8"]);
        assert_eq!(late(infiniband, |_| ()), <[String; 0]>::default());
        // A port without a GID table does not show how NCCL would use it.
        let without_gids = |port: &mut Port| {
            down(port);
            port.gids = Default::default();
        };
        assert_eq!(late(include_str!("../demo/cce-roce.json"), without_gids), <[String; 0]>::default());
    }

    #[test]
    fn a_change_counts_only_if_it_adds_one_entry() {
        for (before, after, added) in [
            ("mlx5_0,mlx5_1", "mlx5_0,mlx5_1,mlx5_2", Some("mlx5_2")),
            ("mlx5_1", "mlx5_0:1,mlx5_1", Some("mlx5_0:1")),
            ("mlx5_0", "mlx5_0", None),
            ("mlx5_0", "mlx5_0,mlx5_1,mlx5_2", None),
            ("mlx5_0:1", "mlx5_0", None),
            ("mlx5_0,mlx5_1", "mlx5_0,mlx5_2", None),
        ] {
            assert_eq!(added_entry(before, after), added, "{before} {after}");
        }
    }
}
