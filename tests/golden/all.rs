//! What holds for all golden hosts together.

use std::collections::BTreeSet;

use rdma_init::facts::Facts;
use rdma_init::facts::net::Net;
use rdma_init::finding::{Id, Severity};
use rdma_init::libraries::nccl::predict::{Bootstrap, GidUse, Transport};
use rdma_init::plan::Fabric;
use rdma_init::self_test::check::{Check, Outcome};
use rdma_init::{pipeline, plan, self_test};
use serde_json::Value;

use super::one::run;
use crate::support::golden::{Case, Host, hosts};

/// Where the start-up does not read the network, it decides as if it had.
pub fn what_is_not_read_decides_nothing() {
    let mut without_need = Vec::new();
    for Case { name, facts: all, profiles, config } in hosts().iter().map(Host::read) {
        // With the HCAs of the host, and as if there were none.
        for all in [Facts { rdma: Vec::new(), ..all.clone() }, all] {
            let devices: Vec<String> = all.net.interfaces.iter().map(|i| i.name.clone()).collect();
            if !plan::needs_network(&all, &devices, &profiles, &config.plan_options()) {
                let less = Facts { net: Net::default(), ..all.clone() };
                let [with, without] = [all, less].map(|facts| pipeline::decide(&facts, &profiles, &config));
                assert_eq!(with, without, "{name}");
                without_need.push(name.clone());
            }
        }
    }
    assert!(without_need.len() > 50, "{without_need:?}");
}

/// Hosts that fail the self-test, and that `require-rdma` lets start. (Beside those where
/// memory cannot be pinned, which is no part of this decision: `memlock` is a key of its own.)
const NOT_FOR_LACK_OF_RDMA: [(&str, &str); 4] = [
    ("image-provider-for-some", "the other HCAs have their provider, and carry the job"),
    ("rails-without-addresses", "the other rails carry the job, and are fewer than the GPUs"),
    ("rails-without-their-gid", "the other rails carry the job, and are fewer than the GPUs"),
    ("user-comm-id-inverted", "the processes may meet elsewhere, and RDMA is used then"),
];

/// A self-test passes only where the job gets RDMA, and `require-rdma` says the same.
pub fn the_self_test_and_require_rdma_agree() {
    let mut wrong = Vec::new();
    let mut refused = Vec::new();
    let mut differ = Vec::new();
    for Case { name, facts, profiles, config } in hosts().iter().map(Host::read) {
        let plan = pipeline::decide(&facts, &profiles, &config);
        let report = self_test::known::report(&name, &facts, &plan, |_| true);
        let failed: Vec<&Check> =
            report.checks.iter().filter(|check| check.outcome == Outcome::Failed).collect();
        assert_eq!(report.passed, failed.is_empty(), "{name}");
        assert_eq!(report.passed, self_test::gate::reason(&report).is_none(), "{name}");

        // What the model of NCCL says, and not the words that the program has for it.
        let none = |forecast: &plan::Forecast| match &forecast.prediction.transport {
            // RDMA without verbs is sockets for NCCL.
            Transport::Sockets { .. } => !matches!(plan.fabric, Fabric::Interface(_)),
            Transport::Fails(_) => true,
            Transport::Verbs(ports) => ports.iter().any(|port| match port.gid {
                // A slot for old releases alone, and perhaps the job's is none of them.
                Some(GidUse::Slot { index: ..0, gid: None }) => plan.nccl.is_some(),
                Some(GidUse::Fails(_) | GidUse::Slot { gid: None, .. }) => true,
                _ => false,
            }),
            Transport::Plugin { .. } => false,
        };
        let ends = |forecast: &plan::Forecast| matches!(forecast.prediction.bootstrap, Bootstrap::Fails(_));
        let no_rdma = matches!(plan.fabric, Fabric::None(_))
            || plan.forecasts.iter().any(|forecast| none(forecast) || ends(forecast));
        let obstacles = self_test::obstacle::all(&plan);
        if no_rdma && (report.passed || obstacles.is_empty()) {
            wrong.push(format!("{name}: {:?}, {:?}", plan.fabric, plan.forecasts));
        }
        for obstacle in &obstacles {
            let kind = self_test::kinds::of_obstacle(obstacle.about).unwrap();
            let check = failed.iter().find(|check| check.id == kind.id);
            assert!(check.is_some(), "{name}: {obstacle:?}, and the check has not failed");
        }
        // Of each error, somebody is told by a check.
        for finding in plan.findings.iter().filter(|finding| finding.severity == Severity::Error) {
            let is_told = |check: &&Check| {
                check.message.as_ref().is_some_and(|message| message.contains(&finding.message))
            };
            assert!(failed.iter().any(is_told), "{name}: {}", finding.message);
        }
        match (obstacles.is_empty(), report.passed) {
            (false, _) => refused.push(name),
            (true, false) => differ.push(name),
            (true, true) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let allowed: Vec<&str> = NOT_FOR_LACK_OF_RDMA.iter().map(|(name, _)| *name).collect();
    assert_eq!(differ, allowed);
    for name in ["hcas-not-allotted", "ib-disabled-by-user-with-rdma-there", "user-disables-ib-in-conf-file"]
    {
        assert!(refused.iter().any(|refused| refused == name), "{name}");
    }
}

/// Whatever the program finds is told by a self-test, too.
pub fn every_finding_has_a_check() {
    let without: Vec<Id> =
        Id::ALL.iter().copied().filter(|id| self_test::kinds::of_finding(*id).is_none()).collect();
    assert_eq!(without, [OF_THE_END], "add them to a check in src/self_test/kinds.rs");
}

/// What this program can find has a host where it does.
pub fn every_finding_has_a_case() {
    let mut seen = BTreeSet::new();
    for host in hosts() {
        let plan: Value = serde_json::from_str(&run(&host, &["plan", "--json"], &[0])).unwrap();
        let findings = plan["findings"].as_array().unwrap();
        seen.extend(findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()));
    }
    let is_missing = |id: &&Id| **id != OF_THE_END && !seen.contains(id.name());
    let without: Vec<&Id> = Id::ALL.iter().filter(is_missing).collect();
    assert!(without.is_empty(), "no golden host has these: {without:?}");
}

/// Of what a job has moved when it has ended, which no plan knows.
const OF_THE_END: Id = Id::NoTraffic;
