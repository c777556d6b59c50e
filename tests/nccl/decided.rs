//! Runs NCCL on the golden hosts. With the program's decision for a host, NCCL uses exactly the right HCAs,
//! each with one of the container's own GIDs. With the user's values, and without any, it does what is predicted.

use std::collections::BTreeSet;

use rdma_init::fabric::own_slots;
use rdma_init::facts::Facts;
use rdma_init::facts::rdma::LinkLayer;
use rdma_init::finding::{Id, Source};
use rdma_init::image::named::IBVERBS_LIB;
use rdma_init::pipeline;
use rdma_init::plan::{self, Fabric, Plan};
use rdma_init::profiles::Profiles;

use super::driver::Nccl;
use super::model::{Environment, case, has_logged, observed, predicted, predicted_line, version};
use crate::support::golden::{Case, Host, hosts};
use crate::support::nccl::{libraries, newest};

/// With these findings, NCCL cannot make the right choice.
const NOT_JUDGED: [Id; 3] = [Id::NoOwnGid, Id::TooManyHcas, Id::GidChanged];

/// Returns the environment with which NCCL starts under this plan. It omits the libibverbs setting: that
/// would name a library of the host's image, but NCCL must load that of the harness. The tests in
/// libibverbs.rs cover the variable.
fn environment(plan: &Plan) -> Environment {
    let settings = plan.settings.iter().filter(|setting| setting.variable != IBVERBS_LIB);
    settings.filter_map(|setting| Some((setting.variable.clone(), setting.value.clone()?))).collect()
}

/// Reads the golden hosts, each in the image of the harness, which brings its own libraries.
fn read_hosts() -> Vec<Case> {
    let mut hosts: Vec<Case> = hosts().iter().map(Host::read).collect();
    hosts.iter_mut().for_each(|host| host.facts.image = None);
    hosts
}

#[test]
fn nccl_takes_what_was_decided() {
    let profiles = Profiles::load(None).unwrap();
    let mut hosts = read_hosts();
    for library in libraries() {
        let (mut right, mut logged) = (0, 0);
        let mut judged = BTreeSet::new();
        hosts.iter_mut().for_each(|host| host.facts.platform.nccl_version = Some(library.version.clone()));
        let decided = hosts.iter().map(|host| {
            let plan = pipeline::decide(&host.facts, &host.profiles, &host.config);
            let environment = environment(&plan);
            (host, plan, environment)
        });
        // A host is skipped if its settings name a plugin's network or a host, because no test can tell
        // what these resolve to.
        let decided: Vec<_> = decided
            .filter(|(_, _, environment)| {
                !environment.iter().any(|(name, _)| ["NCCL_NET", "NCCL_COMM_ID"].contains(&name.as_str()))
            })
            .collect();
        let cases: Vec<_> =
            decided.iter().map(|(host, _, environment)| case(&host.facts, environment)).collect();
        let outcomes = Nccl::start(&library).run(&cases);
        for ((Case { name, facts, .. }, plan, environment), outcome) in decided.iter().zip(&outcomes) {
            let name = format!("{name} with NCCL {}", library.version);
            let found = observed(outcome);
            assert_eq!(predicted(facts, environment, version(&library)), found, "{name}");
            judged.extend(plan.profile.as_ref().map(|choice| choice.name.clone()));
            if let Some(line) = predicted_line(facts, environment, version(&library)) {
                assert!(has_logged(outcome, &line), "{name}: {line:?} is not in the log:\n{}", outcome.log);
                logged += 1;
            }
            // NCCL's choice is not judged if the user decides, if no choice is right, or if the host has
            // changed since the decision.
            let is_ours = plan.settings.iter().all(|setting| setting.outcome != plan::SettingOutcome::User)
                && plan.settings.iter().all(|setting| setting.source != Source::Configuration)
                && plan.profile.is_some()
                && plan.fabric == Fabric::Verbs
                && !plan.findings.iter().any(|finding| NOT_JUDGED.contains(&finding.id));
            if !is_ours {
                continue;
            }
            let wanted = wanted(facts, plan);
            assert_eq!(
                found.ports.keys().cloned().collect::<Vec<_>>(),
                wanted.keys().cloned().collect::<Vec<_>>(),
                "{name}"
            );
            let is_right = |found: &super::model::Decision| {
                wanted
                    .iter()
                    .all(|(port, slots)| found.ports.get(port).is_some_and(|slot| slots.contains(slot)))
                    && found.ports.len() == wanted.len()
            };
            assert!(is_right(&found), "{name}: {found:?}, and right is {wanted:?}");
            right += 1;
        }
        println!("NCCL {}: right on {right} hosts; {logged} lines of the log as predicted", library.version);
        assert!(right > 40, "{right}");
        let is_judged = |name: &&str| judged.contains(*name);
        let without_host: Vec<&str> = profiles.names().filter(|name| !is_judged(name)).collect();
        assert!(
            without_host.is_empty(),
            "no host of these profiles is beside the real NCCL: {without_host:?}"
        );
        // The line about its HCAs, which `plan --evidence` shows.
        assert!(logged > 40, "{logged}");
    }
}

#[test]
fn nccl_by_itself_does_what_is_predicted() {
    let (hosts, library, none) = (read_hosts(), newest(), Environment::new());
    let cases: Vec<_> = hosts.iter().map(|host| case(&host.facts, &none)).collect();
    for (host, outcome) in hosts.iter().zip(Nccl::start(&library).run(&cases)) {
        let predicted = predicted(&host.facts, &none, version(&library));
        assert_eq!(predicted, observed(&outcome), "{} with NCCL {}", host.name, library.version);
    }
}

/// Returns the ports that NCCL should use, each with the right GID indexes.
fn wanted(facts: &Facts, plan: &Plan) -> std::collections::BTreeMap<String, Vec<String>> {
    let used = plan.ports.iter().filter(|port| port.used);
    used.map(|verdict| {
        let hca = facts.rdma.iter().find(|hca| hca.name == verdict.hca).unwrap();
        let port = hca.ports.iter().find(|port| port.number == verdict.port).unwrap();
        if port.link_layer == LinkLayer::InfiniBand {
            return (format!("{}:{}/IB", hca.name, port.number), vec!["any".to_owned()]);
        }
        let slots = own_slots(facts, port).iter().map(|gid| gid.index.to_string()).collect();
        (format!("{}:{}/RoCE", hca.name, port.number), slots)
    })
    .collect()
}
