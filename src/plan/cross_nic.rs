//! `NCCL_CROSS_NIC`: whether NCCL may connect a NIC with one of another rail.
//!
//! NCCL does not find out whether rails reach each other (NVIDIA/nccl#1933). If they do not, its connections
//! across rails fail (NVIDIA/nccl#2013): those of a point-to-point transfer without PXN, and of rings and trees that
//! leave a node by another NIC than they came in. 0 keeps each connection on one rail. A container shows nothing of
//! this, so only a preflight can ask for it, in which all nodes of the job learn the same.

use super::rule::Rule;
use super::setting::{Proposal, Setting, SettingOutcome};
use super::{Context, Fabric, fill};
use crate::fabric::Candidate;
use crate::finding::Source;

pub(crate) const VARIABLE: &str = "NCCL_CROSS_NIC";

/// What a preflight finds when no rail reaches another one, and what it means for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailsApart {
    /// The variable is filled in.
    Filled,
    /// NCCL does not connect rails anyway: this value says so.
    Kept,
    /// NCCL may connect rails: the value that says so, if there is one, and where it is from.
    Crosses(Option<(String, Source)>),
}

/// Returns the setting that counts once a preflight has found that no rail reaches another one.
pub(super) fn propose(context: &Context, fabric: &Fabric, ports: &[Candidate]) -> Option<Setting> {
    let rails = ports.iter().filter(|port| port.is_used()).count();
    let is_ours = *fabric == Fabric::Verbs && rails > 1 && !context.leaves_alone(VARIABLE);
    is_ours.then(|| fill::of_proposal(Proposal::from_facts(VARIABLE, "0", Rule::RailsAreApart)))
}

/// Takes the setting of [`propose`] into the others, unless these decide the variable.
pub(super) fn fill_in(settings: &mut Vec<Setting>, proposed: Option<Setting>) -> RailsApart {
    let known = settings.iter().find(|setting| setting.variable == VARIABLE);
    match (known.filter(|setting| setting.outcome != SettingOutcome::Unset), proposed) {
        (Some(known), _) => match &known.value {
            Some(value) if value == "0" => RailsApart::Kept,
            Some(value) => RailsApart::Crosses(Some((value.clone(), known.source.clone()))),
            None => RailsApart::Crosses(None),
        },
        (None, Some(setting)) => {
            settings.push(setting);
            RailsApart::Filled
        }
        (None, None) => RailsApart::Crosses(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::facts::Facts;
    use crate::facts::rdma::{Hca, LinkLayer, Port, Uverbs};
    use crate::facts::settings::{Settings, UserSetting};
    use crate::pipeline;
    use crate::plan::Plan;
    use crate::profiles::Profiles;

    fn plan(rails: usize, of_user: Option<&str>, adjust: impl Fn(&mut Config)) -> Plan {
        let hca = |number: usize| Hca {
            name: format!("mlx5_{number}"),
            driver: Some("mlx5_core".to_owned()),
            uverbs: Some(Uverbs::default()),
            ports: vec![Port {
                number: 1,
                link_layer: LinkLayer::InfiniBand,
                state: "ACTIVE".to_owned(),
                rate: "400 Gb/sec (4X NDR)".to_owned(),
                ..Port::default()
            }],
            ..Hca::default()
        };
        let setting = |value: &str| UserSetting::new(VARIABLE, value, Source::Environment);
        let facts = Facts {
            rdma: (0..rails).map(hca).collect(),
            settings: Settings(of_user.map(setting).into_iter().collect()),
            ..Facts::default()
        };
        let mut config = Config::default();
        adjust(&mut config);
        pipeline::decide(&facts, &Profiles::load(None).unwrap(), &config)
    }

    #[test]
    fn it_is_filled_in_only_after_a_preflight_and_never_over_another_value() {
        let mut two = plan(2, None, |_| {});
        let set = |plan: &Plan| plan.filled().any(|filled| filled == (VARIABLE, "0"));
        assert!(!set(&two));
        assert_eq!(two.rails_are_apart(), RailsApart::Filled);
        assert!(set(&two));
        assert_eq!(two.rails_are_apart(), RailsApart::Kept, "it is filled in once");
        assert_eq!(plan(2, Some("0"), |_| {}).rails_are_apart(), RailsApart::Kept);
        let crosses = |value: Option<&str>| {
            RailsApart::Crosses(value.map(|value| (value.to_owned(), Source::Environment)))
        };
        assert_eq!(plan(2, Some("1"), |_| {}).rails_are_apart(), crosses(Some("1")));
        assert_eq!(plan(1, None, |_| {}).rails_are_apart(), crosses(None));
        let mut kept = plan(2, None, |config| config.keep = [VARIABLE.to_owned()].into());
        assert_eq!(kept.rails_are_apart(), crosses(None));
        assert!(!set(&kept));
    }
}
