//! `NCCL_IB_HCA`.

use std::collections::HashSet;

use super::remark::Remark;
use super::rule::{Rule, RuleEvidence, Trial};
use super::setting::Proposal;
use super::{Context, Fabric, Notes};
use crate::fabric::distance::{Distance, of_hca};
use crate::fabric::{Candidate, SkipReason, Verdict, claims, near};
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::libraries::nccl::devices::visible;
use crate::libraries::nccl::list::{Pattern, most_hcas};
use crate::libraries::nccl::version::Version;

pub(super) fn propose(context: &Context, ports: &[Candidate], notes: &mut Notes) -> Vec<Proposal> {
    let profile = context.profile;
    let constant = profile.variables.get(VARIABLE);
    if !context.uses_verbs() {
        // Without verbs, only the published value applies, which may be empty.
        return constant
            .map(|value| Proposal::from_profile(&profile.name, VARIABLE, value, Rule::Published))
            .into_iter()
            .collect();
    }
    let used: Vec<&Candidate> = ports.iter().filter(|port| port.is_used()).collect();
    if context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    if used.is_empty() {
        return Vec::from_iter(held_without_link(context, ports));
    }
    let most = most_hcas(context.version());
    if used.len() > most {
        notes.remark(Remark::TooManyHcas { usable: used.len(), most });
    }
    let mut evidence = evidence(ports);
    let near = near::rails_of_gpus(context.facts, ports).into_iter().enumerate();
    evidence.extend(near.map(|(gpu, hcas)| RuleEvidence::NearGpu { gpu, hcas }));
    if let Some(constant) = constant {
        let fits = selects_exactly(constant, ports, context.version());
        notes.tried(VARIABLE, Trial::PublishedHcas { list: constant.clone(), fits });
        if fits {
            let proposal = Proposal::from_profile(&profile.name, VARIABLE, constant, Rule::PublishedHcas);
            return vec![proposal.because(evidence)];
        }
        notes.remark(Remark::PublishedHcasDiffer(constant.clone()));
    }
    let rule = Rule::UsableHcas { used: used.len(), of: ports.len() };
    let list = exact_list(ports, |port| port.is_used());
    // A vLLM worker puts an HCA in front of the list, but NCCL honors the sign only as the first character.
    let list = match context.is_set_by_worker(VARIABLE) {
        true => without_sign(list, ports, context.version()),
        false => list,
    };
    notes.tried(VARIABLE, Trial::NamesOfHcas(list.clone()));
    vec![Proposal::from_facts(VARIABLE, list, rule).because(evidence)]
}

/// Skips the HCAs that a profile of the user leaves out, unless the facts show that one of them is a rail: it is near a
/// GPU that no HCA of the list is near.
pub(super) fn leave_out_by_profile(context: &Context, ports: &mut [Candidate]) -> Option<Trial> {
    let Context { profile, facts, .. } = context;
    let list = profile.variables.get(VARIABLE).filter(|_| profile.lists_own_hcas)?;
    if !context.uses_verbs() || context.leaves_alone(VARIABLE) {
        return None;
    }
    let pattern = Pattern::of_hcas(list, context.version());
    let is_named = |port: &Candidate| pattern.selects(&port.hca.name, Some(port.port.number));
    let used = || ports.iter().filter(|port| port.is_used());
    let is_near = |gpu, port: &Candidate| of_hca(gpu, port.hca).is_some_and(Distance::is_near);
    let loses_its_rail = facts.gpu.devices.iter().any(|gpu| {
        let near = || used().filter(|port| is_near(gpu, port));
        near().next().is_some() && !near().any(is_named)
    });
    if loses_its_rail || !used().any(is_named) {
        return None;
    }
    let left_out: Vec<String> = used().filter(|port| !is_named(port)).map(Candidate::name).collect();
    let by = format!("profile {}", profile.name);
    for port in ports.iter_mut().filter(|port| port.is_used() && !is_named(port)) {
        port.leave_out(SkipReason::NotNamed { by: by.clone() });
    }
    (!left_out.is_empty()).then(|| Trial::OwnProfile { profile: profile.name.clone(), left_out })
}

/// Returns `NCCL_IB_DISABLE=1` if NCCL would otherwise use devices that it must not use. Either NCCL cannot
/// work on them: it does not check the node type, or they connect to NVSwitches, and it fails at the first
/// connection. Or the configuration says to skip them, and there are no others.
pub(super) fn propose_off(context: &Context, ports: &[Candidate], fabric: &Fabric) -> Option<Proposal> {
    let is_trap = |port: &&Candidate| {
        visible(port.hca, port.port)
            && matches!(
                port.verdict,
                Verdict::LeftOut(
                    SkipReason::Iwarp { .. } | SkipReason::NodeType(_) | SkipReason::NvSwitch(_)
                )
            )
    };
    if fabric.is_there() || !context.uses_verbs() || context.leaves_alone(VARIABLE) {
        return None;
    }
    let traps: Vec<String> = ports.iter().filter(is_trap).map(Candidate::name).collect();
    let is_skipped =
        |port: &&Candidate| matches!(port.verdict, Verdict::LeftOut(SkipReason::CarriesDefaultRoute { .. }));
    let skipped: Vec<String> = ports.iter().filter(is_skipped).map(Candidate::name).collect();
    let rule = match (traps.is_empty(), skipped.is_empty()) {
        (true, true) => return None,
        (true, false) => Rule::AvoidsSkippedPorts(skipped),
        (false, _) => Rule::AvoidsFailingPorts(traps),
    };
    Some(Proposal::from_facts("NCCL_IB_DISABLE", "1", rule).because(evidence(ports)))
}

/// Returns whether NCCL, with this pattern, uses all used ports and no other port.
fn selects_exactly(pattern: &str, ports: &[Candidate], version: Version) -> bool {
    let pattern = Pattern::of_hcas(pattern, version);
    ports
        .iter()
        .filter(|port| visible(port.hca, port.port))
        .all(|port| pattern.selects(&port.hca.name, Some(port.port.number)) == port.is_used())
}

/// Returns the Pod's own HCAs if none of them has a link and NCCL would take others. The list stays right when the
/// links come up.
fn held_without_link(context: &Context, ports: &[Candidate]) -> Option<Proposal> {
    let is_of_others = |port: &&Candidate| visible(port.hca, port.port) && port.is_of_others();
    let others: Vec<String> = ports.iter().filter(is_of_others).map(Candidate::name).collect();
    if others.is_empty() {
        return None;
    }
    let own: Vec<String> = claims::held_without_link(context.facts, ports).map(Candidate::name).collect();
    let list = exact_list(ports, |port| own.contains(&port.name()));
    Some(Proposal::from_facts(VARIABLE, list, Rule::HeldHcas(others)).because(evidence(ports)))
}

/// Returns a list such as `=mlx5_1,mlx5_2` of the ports that meet the condition, with exact names, so that `mlx5_1`
/// does not also match `mlx5_10`. Includes a port number only if another port of the HCA must not be used.
fn exact_list(ports: &[Candidate], condition: impl Fn(&Candidate) -> bool) -> String {
    let others = ports.iter().filter(|port| !condition(port) && visible(port.hca, port.port));
    let with_ports: HashSet<&str> = others.map(|port| port.hca.name.as_str()).collect();
    let names = device_list(ports, &condition, |port| with_ports.contains(port.hca.name.as_str()));
    format!("={}", names.join(","))
}

/// Returns the same list without its sign, if it selects the same ports.
fn without_sign(list: String, ports: &[Candidate], version: Version) -> String {
    let plain = list.trim_start_matches('=').to_owned();
    if selects_exactly(&plain, ports, version) { plain } else { list }
}

/// Returns the names of the ports that meet the condition, each once, as `NAME:PORT` if `with_port` is true for a
/// port.
fn device_list(
    ports: &[Candidate],
    condition: impl Fn(&Candidate) -> bool,
    with_port: impl Fn(&Candidate) -> bool,
) -> Vec<String> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for port in ports.iter().filter(|port| condition(port)) {
        let name = if with_port(port) {
            format!("{}:{}", port.hca.name, port.port.number)
        } else {
            port.hca.name.clone()
        };
        if known.insert(name.clone()) {
            names.push(name);
        }
    }
    names
}

fn evidence(ports: &[Candidate]) -> Vec<RuleEvidence> {
    let of = |port: &Candidate| match &port.verdict {
        Verdict::Used => {
            let (link_layer, rate) = (port.port.link_layer.clone(), port.port.rate.clone());
            RuleEvidence::Used { port: port.name(), link_layer, rate }
        }
        Verdict::LeftOut(reason) => RuleEvidence::LeftOut { port: port.name(), reason: reason.clone() },
    };
    ports.iter().map(of).collect()
}
