//! Checks what must hold for all golden hosts together.

use std::collections::BTreeSet;

use rdma_init::fabric::own_slots;
use rdma_init::facts::net::Net;
use rdma_init::facts::rdma::Hca;
use rdma_init::facts::settings::UserSetting;
use rdma_init::facts::{Facts, Need};
use rdma_init::finding::{Id, Severity, Source};
use rdma_init::image::library::Library;
use rdma_init::libraries::nccl::predict::{Bootstrap, GidUse, PortUse, Transport, predict};
use rdma_init::libraries::nccl::version::KINDS;
use rdma_init::plan::{Fabric, ProfileOption, Setting, SettingOutcome};
use rdma_init::self_test::check::{Check, Outcome};
use rdma_init::{pipeline, plan, self_test};

use super::one::run;
use crate::support::golden::{Case, cases, host};

/// If the start does not need to read the network, it decides the same as if it had read it.
pub fn what_is_not_read_decides_nothing() {
    let mut without_need = Vec::new();
    for Case { name, facts: all, profiles, config } in cases().iter() {
        // Each host is checked with its HCAs, and once more as if it had none.
        for all in [Facts { rdma: Vec::new(), ..all.clone() }, all.clone()] {
            let devices: Vec<String> = all.net.interfaces.iter().map(|i| i.name.clone()).collect();
            if plan::need(&all, &devices, profiles, &config.plan_options()) == Need::Nothing {
                let less = Facts { net: Net::default(), ..all.clone() };
                let [with, without] = [all, less].map(|facts| pipeline::decide(&facts, profiles, config));
                assert_eq!(with, without, "{name}");
                without_need.push(name.clone());
            }
        }
    }
    assert!(without_need.len() > 50, "{without_need:?}");
}

/// What is wrong says what to do. A note needs no fix.
pub fn whatever_is_wrong_has_a_fix() {
    for Case { name, facts, profiles, config } in cases().iter() {
        let plan = pipeline::decide(facts, profiles, config);
        let without = plan.findings.iter().find(|one| one.severity > Severity::Info && one.fix.is_none());
        assert_eq!(without, None, "{name}");
    }
}

/// No value that rdma-init fills in makes NCCL's bootstrap fail that would not fail without it, whatever family the user
/// demands.
pub fn no_fill_ends_the_bootstrap() {
    let mut with_fill = 0;
    for Case { name, facts, profiles, config } in cases().iter() {
        for family in [None, Some("AF_INET"), Some("AF_INET6")] {
            let mut facts = facts.clone();
            let of_user = |value| UserSetting::new("NCCL_SOCKET_FAMILY", value, Source::Environment);
            facts.settings.0.extend(family.map(of_user));
            let plan = pipeline::decide(&facts, profiles, config);
            let is_filled = |setting: &&Setting| {
                setting.variable == "NCCL_SOCKET_IFNAME"
                    && setting.outcome == SettingOutcome::Filled
                    && setting.source != Source::Configuration
                    && !setting.at_start
            };
            let Some(filled) = plan.settings.iter().find(is_filled) else { continue };
            with_fill += 1;
            for forecast in &plan.forecasts {
                let Bootstrap::Fails(message) = &forecast.prediction.bootstrap else { continue };
                let without = |name: &str| plan.value(name).filter(|_| name != filled.variable);
                let version = forecast.since.unwrap_or(KINDS[0]);
                let then = predict(&facts, without, version).bootstrap;
                assert!(matches!(then, Bootstrap::Fails(_)), "{name}, {family:?}: {message}, not {then:?}");
            }
        }
    }
    assert!(with_fill > 500, "{with_fill}");
}

/// If a profile does not decide, NCCL's own search may end on a GID that is not the container's: a finding says so.
pub fn what_nccl_ends_on_is_judged_without_a_profile() {
    let mut judged = BTreeSet::new();
    for Case { name, facts, profiles, config } in cases().iter() {
        let mut config = config.clone();
        config.profile = ProfileOption::None;
        let plan = pipeline::decide(facts, profiles, &config);
        let Some(ports) = plan.forecasts.last().and_then(|last| last.prediction.transport.ports()) else {
            continue;
        };
        let is_wrong = |used: &PortUse| {
            let Some(GidUse::Slot { index, .. }) = used.gid else { return false };
            let right = own_slots(facts, facts.port(&used.hca, used.port).unwrap().1);
            !right.is_empty() && right.iter().all(|gid| i64::from(gid.index) != index)
        };
        let of_gid = [Id::GidIndex, Id::GidSearch, Id::GidChanged, Id::AddrRange, Id::NoOwnGid];
        if ports.iter().any(is_wrong) && !facts.net.interfaces.is_empty() {
            let is_told = plan.findings.iter().any(|finding| of_gid.contains(&finding.id));
            assert!(is_told, "{name}: {ports:?}");
            judged.insert(name.clone());
        }
    }
    assert!(judged.len() > 20, "{judged:?}");
}

/// Hosts that fail the self-test although `require-rdma` lets their job start, each with the
/// reason. Hosts that cannot pin memory are not listed: another key, `memlock`, decides about
/// them.
const NOT_FOR_LACK_OF_RDMA: [(&str, &str); 9] = [
    ("erdma-mtu-1500", "the job uses RDMA, and data is at stake"),
    ("gcp-gib-four-of-eight-claimed", "the claimed rails carry the job, and are fewer than the GPUs"),
    ("image-provider-for-some", "the other HCAs have their provider, and carry the job"),
    ("image-provider-kernel-abi-of-some", "the other HCA has a provider for its driver, and carries the job"),
    ("rails-without-addresses", "the other rails carry the job, and are fewer than the GPUs"),
    ("rails-without-their-gid", "the other rails carry the job, and are fewer than the GPUs"),
    ("roce-rail-with-a-link-local-address", "the other rails carry the job, and are fewer than the GPUs"),
    ("roce-rail-without-its-interface", "the other rails carry the job, and are fewer than the GPUs"),
    ("user-comm-id-inverted", "the processes may meet elsewhere, and RDMA is used then"),
];

/// Hosts whose job may need no network between nodes, so that the self-test passes. `require-rdma` refuses
/// them anyway.
const MAY_DO_WITHOUT: [&str; 2] = ["gb200-nvlink-alone", "gaudi"];

/// The self-test passes exactly if the job gets RDMA, and `require-rdma` agrees with it except for the
/// listed hosts.
pub fn the_self_test_and_require_rdma_agree() {
    let mut wrong = Vec::new();
    let mut refused = Vec::new();
    let mut differ = Vec::new();
    let cases = cases();
    for Case { name, facts, profiles, config } in cases.iter() {
        let plan = pipeline::decide(facts, profiles, config);
        let report = self_test::known::report(name, facts, &plan, |_| true);
        let failed: Vec<&Check> =
            report.checks.iter().filter(|check| check.outcome == Outcome::Failed).collect();
        assert_eq!(report.passed, failed.is_empty(), "{name}");
        assert_eq!(report.passed, self_test::gate::reason(&report).is_none(), "{name}");
        let unfixed =
            report.checks.iter().find(|check| check.outcome == Outcome::Failed && check.fix.is_none());
        assert!(unfixed.is_none(), "{name}: {unfixed:?}");

        // Whether the job gets no RDMA is derived from the model of NCCL here, not from the program's
        // findings.
        let none = |forecast: &plan::Forecast| match &forecast.prediction.transport {
            // If the fabric has no verbs, the job correctly uses it through sockets.
            Transport::Sockets { .. } => !matches!(plan.fabric, Fabric::Interface(_)),
            Transport::Fails(_) => true,
            Transport::Verbs(ports) => ports.iter().any(|port| match port.gid {
                // Only old versions of NCCL accept a negative index. If the version is unknown, the job may
                // have a newer one.
                Some(GidUse::Slot { index: ..0, gid: None }) => plan.nccl.is_some(),
                Some(GidUse::Fails(_) | GidUse::Slot { gid: None, .. }) => true,
                _ => false,
            }),
            Transport::Plugin { .. } => false,
        };
        let ends = |forecast: &plan::Forecast| matches!(forecast.prediction.bootstrap, Bootstrap::Fails(_));
        let no_rdma = matches!(plan.fabric, Fabric::None(_))
            || plan.forecasts.iter().any(|forecast| none(forecast) || ends(forecast));
        let blockers = plan.blockers();
        if MAY_DO_WITHOUT.contains(&name.as_str()) {
            assert!(report.passed && !blockers.is_empty(), "{name}");
            continue;
        }
        if no_rdma && (report.passed || blockers.is_empty()) {
            wrong.push(format!("{name}: {:?}, {:?}", plan.fabric, plan.forecasts));
        }
        for blocker in &blockers {
            let check = failed.iter().find(|check| check.id == blocker.check);
            assert!(check.is_some(), "{name}: {blocker:?}, and the check has not failed");
        }
        // A failed check reports each error.
        for finding in plan.findings.iter().filter(|finding| finding.severity == Severity::Error) {
            let is_told = |check: &&Check| {
                check.message.as_ref().is_some_and(|message| message.contains(&finding.message))
            };
            assert!(failed.iter().any(is_told), "{name}: {}", finding.message);
        }
        match (blockers.is_empty(), report.passed) {
            (false, _) => refused.push(name.as_str()),
            (true, false) => differ.push(name.as_str()),
            (true, true) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let allowed: Vec<&str> = NOT_FOR_LACK_OF_RDMA.iter().map(|(name, _)| *name).collect();
    assert_eq!(differ, allowed);
    for name in ["hcas-not-allotted", "ib-disabled-by-user-with-rdma-there", "user-disables-ib-in-conf-file"]
    {
        assert!(refused.contains(&name), "{name}");
    }
}

/// Each kind of finding belongs to a check of the self-test.
pub fn every_finding_has_a_check() {
    let without: Vec<Id> = Id::ALL.iter().copied().filter(|id| id.check().is_none()).collect();
    assert_eq!(without, OF_A_START, "name their check in src/finding/id.rs");
}

/// Each kind of finding occurs on at least one golden host.
pub fn every_finding_has_a_case() {
    // To what is decided, the command adds a finding about the limit of pinned memory after a start.
    let plan = run(&host("nonroot-ipc-lock-trap"), &["plan", "--json"], &[0]);
    assert!(plan.contains("\"id\": \"memlock\""), "{plan}");
    let mut seen = BTreeSet::from([Id::Memlock.name().to_owned()]);
    for Case { facts, profiles, config, .. } in cases().iter() {
        let plan = serde_json::to_value(pipeline::decide(facts, profiles, config)).unwrap();
        let findings = plan["findings"].as_array().unwrap();
        seen.extend(findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()));
    }
    let is_missing = |id: &&Id| !OF_A_START.contains(*id) && !seen.contains(id.name());
    let without: Vec<&Id> = Id::ALL.iter().filter(is_missing).collect();
    assert!(without.is_empty(), "no golden host has these: {without:?}");
}

/// Findings that name NCCL even on a host with RCCL, because they concern what only NVIDIA machines have,
/// or what is known only about NCCL.
const OF_NCCL: [Id; 3] = [Id::NoLibibverbs, Id::OtherArchitecture, Id::UnknownVariable];

/// With RCCL in place of NCCL, the findings name RCCL.
pub fn findings_name_the_library_of_the_job() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for Case { name, facts, profiles, config } in cases().iter() {
        let mut facts = facts.clone();
        let image = facts.image.get_or_insert_default();
        if image.rccl.is_empty() {
            let version = image.nccl.drain(..).find_map(|library| library.version);
            let loads_as = vec!["librccl.so.1".to_owned()];
            image.rccl = vec![Library { version, loads_as, ..Library::default() }];
        }
        // Facts that only NVIDIA machines have would keep the name NCCL.
        facts.gpu.models.clear();
        facts.gpu.driver = None;
        facts.imex = Default::default();
        for finding in pipeline::decide(&facts, profiles, config).findings {
            let text = format!("{} {}", finding.message, finding.fix.unwrap_or_default());
            let names =
                |library: &str| text.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|w| w == library);
            seen += usize::from(names("RCCL"));
            if names("NCCL") && !OF_NCCL.contains(&finding.id) {
                wrong.push(format!("{name}: {:?}: {text}", finding.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "{seen}");
}

/// The findings about what a start has left behind, and about what went over the ports until the end of a
/// job; no plan can contain them.
const OF_A_START: [Id; 10] = [
    Id::NoTraffic,
    Id::StoppedRanks,
    Id::StalledJob,
    Id::IdleRail,
    Id::LinkDown,
    Id::SlowLink,
    Id::EndedQueuePairs,
    Id::LinkErrors,
    Id::LostPackets,
    Id::NcclConfNotWritten,
];

/// Prefixes of words in capitals with a `_` that are not names of variables.
const NO_VARIABLES: [&str; 5] = ["AF_", "CAP_", "FABRIC_", "RLIMIT_", "SW_MNG"];

/// Findings that name HCAs or interfaces from a value or a path, or additional ones.
const OF_OTHERS: [Id; 10] = [
    Id::ConfLine,
    Id::LibraryDevices,
    Id::ListSeparator,
    Id::ListTooLong,
    Id::PrefixMatch,
    Id::PublishedHcasDiffer,
    Id::RepeatedSign,
    Id::StaleHca,
    Id::Unreadable,
    Id::VllmMapping,
];

/// A query for the findings about a variable, a port, or an interface returns those that name it, so no
/// program must parse messages for this.
pub fn a_finding_is_about_what_its_message_names() {
    let mut wrong = Vec::new();
    let mut seen = [0; 3];
    for Case { name, facts, profiles, config } in cases().iter() {
        for finding in pipeline::decide(facts, profiles, config).findings {
            let message = &expanded(&finding.message);
            let [variables, ports, interfaces] =
                [&finding.about.variables, &finding.about.ports, &finding.about.interfaces]
                    .map(|names| names.iter().cloned().collect::<BTreeSet<String>>());
            seen = [seen[0] + variables.len(), seen[1] + ports.len(), seen[2] + interfaces.len()];
            let mut fail = |what: String| wrong.push(format!("{name}: it {what}: {message}"));

            let named = named_variables(facts, message);
            // Findings with this id name variables that no program can read.
            if named != variables && finding.id != Id::VariableName {
                fail(format!("is about {variables:?}, and names {named:?}"));
            }
            let hcas = |ports: &BTreeSet<String>| -> BTreeSet<String> {
                ports.iter().map(|port| port.split(':').next().unwrap().to_owned()).collect()
            };
            let named = named_hcas(facts, message);
            if !named.is_subset(&hcas(&ports)) && !OF_OTHERS.contains(&finding.id) {
                fail(format!("is about {ports:?}, and names {named:?}"));
            }
            let there = all_ports(facts);
            if !ports.is_subset(&there) {
                fail(format!("is about {ports:?}, and there are {there:?}"));
            }
            let named = named_interfaces(facts, message);
            let others = [&OF_OTHERS[..], &[Id::StaleInterface]].concat().contains(&finding.id);
            if !named.is_subset(&interfaces) && !others {
                fail(format!("is about {interfaces:?}, and names {named:?}"));
            }
            let is_not_named = |interface: &&String| !of_message(message).any(|word| word == **interface);
            if let Some(interface) = interfaces.iter().find(is_not_named) {
                fail(format!("is about {interface}, and does not name it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

fn named_variables(facts: &Facts, message: &str) -> BTreeSet<String> {
    let looks_like_one = |word: &str| {
        word.contains('_')
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && !NO_VARIABLES.iter().any(|start| word.starts_with(start))
    };
    let is_set = |word: &str| facts.settings.get(word).is_some();
    words(message).filter(|word| looks_like_one(word) || is_set(word)).map(str::to_owned).collect()
}

fn all_ports(facts: &Facts) -> BTreeSet<String> {
    let of = |hca: &Hca| hca.ports.iter().map(|port| format!("{}:{}", hca.name, port.number)).collect();
    facts.rdma.iter().flat_map::<Vec<String>, _>(of).collect()
}

fn named_hcas(facts: &Facts, message: &str) -> BTreeSet<String> {
    let is_one = |word: &&str| facts.rdma.iter().any(|hca| hca.name == *word);
    words(&without_values(facts, message)).filter(is_one).map(str::to_owned).collect()
}

fn named_interfaces(facts: &Facts, message: &str) -> BTreeSet<String> {
    let names = facts.net.interfaces.iter().map(|interface| interface.name.as_str());
    let text = without_values(facts, message);
    names.filter(|name| of_message(&text).any(|word| word == *name)).map(str::to_owned).collect()
}

/// Returns the words of a message without punctuation around them.
fn of_message(message: &str) -> impl Iterator<Item = &str> {
    message.split([' ', ',', ';', ':', '(', ')', '\'']).map(|word| word.trim_end_matches('.'))
}

/// Returns the message with each range, such as `eth0..eth2`, expanded to the names in it.
fn expanded(message: &str) -> String {
    let number = |name: &str| {
        name.trim_end_matches(':').rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let one = |word: &str| {
        let bare = word.trim_matches(['(', ')', ',', '.', ':', ';']);
        let (first, last) = bare.split_once("..")?;
        let port = first.split_once(':').map_or(String::new(), |(_, port)| format!(":{port}"));
        let [first, last] = [first, last].map(|name| name.strip_suffix(&port).unwrap_or(name));
        let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
        let names = (number(first)?..=number(last)?).map(|number| format!("{stem}{number}{port}"));
        Some(word.replace(bare, &names.collect::<Vec<_>>().join(", ")))
    };
    let words = message.split(' ').map(|word| one(word).unwrap_or_else(|| word.to_owned()));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the message without the user's values, because they may name anything.
fn without_values(facts: &Facts, message: &str) -> String {
    facts.settings.0.iter().fold(message.to_owned(), |text, setting| {
        text.replace(&format!("{}={}", setting.variable, setting.value), "")
    })
}
