//! `NCCL_IB_HCA`.

use std::collections::HashSet;

use super::profile::{publishes, with_source};
use super::{Context, Fabric, Notes, Setting};
use crate::fabric::distance::{Distance, of_hca};
use crate::fabric::{Candidate, KeptRails, SkipReason, Verdict, claims, near};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::libraries::nccl::devices::visible;
use crate::libraries::nccl::list::{Pattern, most_hcas};
use crate::libraries::nccl::version::{TAKES_32_HCAS, Version};
use crate::text::{condensed, counted, paired};

pub(super) fn propose(context: &Context, ports: &[Candidate], notes: &mut Notes) -> Vec<Setting> {
    let profile = &context.profile;
    let constant = profile.variables.get(VARIABLE);
    if !context.uses_verbs() {
        // Without verbs, only the published value applies, which may be empty.
        return constant
            .map(|value| Setting::from_profile(&profile.name, VARIABLE, value, "published"))
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
        notes.report(too_many(context, used.len(), most));
    }
    let mut evidence = evidence(ports);
    let near = near::rails_of_gpus(context.facts, ports).into_iter().enumerate();
    evidence.extend(near.map(|(gpu, hcas)| {
        let near: Vec<String> =
            hcas.iter().map(|(hca, distance)| format!("{hca} {}", distance.word())).collect();
        format!("GPU {gpu}: {}", near.join(", "))
    }));
    if let Some(constant) = constant {
        let fits = selects_exactly(constant, ports, context.version());
        let tried = format!("the published {constant}, if it selects exactly the HCAs to use");
        notes.tried(VARIABLE, tried, if fits { "it does" } else { "it does not" });
        if fits {
            let rule = "published, and it selects exactly the HCAs to use";
            let proposal = Setting::from_profile(&profile.name, VARIABLE, constant, rule);
            return vec![proposal.because(evidence)];
        }
        let differs = format!(
            "{} {VARIABLE}={constant}, which does not select exactly the HCAs to use here; the exact list is set instead.",
            publishes(profile, VARIABLE)
        );
        let finding = Finding::info(Id::PublishedHcasDiffer, differs).about_variables([VARIABLE]);
        notes.report(with_source(finding, profile, VARIABLE));
    }
    let rule = match (used.len(), ports.len()) {
        (used, of) if used == of => format!("every HCA is usable ({used})"),
        (used, of) => format!("the usable HCAs ({used} of {of} ports)"),
    };
    let list = exact_list(ports, |port| port.is_used());
    // A vLLM worker puts an HCA in front of the list, but NCCL honors the sign only as the first character.
    let list = match context.is_set_by_worker(VARIABLE) {
        true => without_sign(list, ports, context.version()),
        false => list,
    };
    notes.tried(VARIABLE, "the whole names of the HCAs to use", &list);
    vec![Setting::from_facts(VARIABLE, list, rule).because(evidence)]
}

/// Skips the HCAs that a profile of the user leaves out, unless the facts show that one of them is a rail: it is near a
/// GPU that no HCA of the list is near.
pub(super) fn leave_out_by_profile(context: &Context, ports: &mut [Candidate], notes: &mut Notes) {
    let Context { profile, facts, .. } = context;
    let Some(list) = profile.variables.get(VARIABLE).filter(|_| profile.lists_own_hcas) else { return };
    if !context.uses_verbs() || context.leaves_alone(VARIABLE) {
        return;
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
        return;
    }
    let left_out: Vec<String> = used().filter(|port| !is_named(port)).map(Candidate::name).collect();
    let by = format!("profile {}", profile.name);
    for port in ports.iter_mut().filter(|port| port.is_used() && !is_named(port)) {
        port.leave_out(SkipReason::NotNamed { by: by.clone() });
    }
    if !left_out.is_empty() {
        let rule = format!("only the HCAs that your profile {} names", profile.name);
        notes.tried(VARIABLE, rule, format!("skips {}", condensed(&left_out)));
    }
}

/// Returns `NCCL_IB_DISABLE=1` if NCCL would otherwise use devices that it must not use. Either NCCL cannot
/// work on them: it does not check the node type, or they connect to NVSwitches, and it fails at the first
/// connection. Or the configuration says to skip them, and there are no others.
pub(super) fn propose_off(context: &Context, ports: &[Candidate], fabric: &Fabric) -> Option<Setting> {
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
    let (ports_to_avoid, why) = match (traps.is_empty(), skipped.is_empty()) {
        (true, true) => return None,
        (true, false) => (skipped, ", which the job skips"),
        (false, _) => (traps, ", and fail at the first connection"),
    };
    let library = context.library();
    let rule = format!("without it, {library} would take {}{why}", condensed(&ports_to_avoid));
    Some(Setting::from_facts("NCCL_IB_DISABLE", "1", rule).because(evidence(ports)))
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
fn held_without_link(context: &Context, ports: &[Candidate]) -> Option<Setting> {
    let is_of_others = |port: &&Candidate| visible(port.hca, port.port) && port.is_of_others();
    let others: Vec<String> = ports.iter().filter(is_of_others).map(Candidate::name).collect();
    if others.is_empty() {
        return None;
    }
    let own: Vec<String> = claims::held_without_link(context.facts, ports).map(Candidate::name).collect();
    let list = exact_list(ports, |port| own.contains(&port.name()));
    let rule = format!(
        "the Pod's own HCAs, whose links are down; without it, {} would use {}, which may belong to other Pods",
        context.library(),
        condensed(&others)
    );
    Some(Setting::from_facts(VARIABLE, list, rule).because(evidence(ports)))
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

fn evidence(ports: &[Candidate]) -> Vec<String> {
    let line = |port: &Candidate| match &port.verdict {
        Verdict::Used => {
            let link_layer = String::from(port.port.link_layer.clone());
            format!("{} ACTIVE, {link_layer}, {}", port.name(), port.port.rate)
        }
        Verdict::LeftOut(reason) => format!("{} skipped: {reason}", port.name()),
    };
    ports.iter().map(line).collect()
}

/// Reports more ports than the release takes.
fn too_many(context: &Context, usable: usize, most: usize) -> Finding {
    let (library, version) = (context.library(), context.user.version());
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

/// Reports HCAs that carry a default route, but are rails.
pub(super) fn rails_on_default_routes(kept: &KeptRails) -> Finding {
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
            rails_on_default_routes(&KeptRails { rails, route, hcas, gpus }).message
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
