//! Golden hosts: this host, this environment, in; these settings, reasons and
//! findings, out. See tests/cases/README.md for how to add one.

mod support;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rdma_init::config::Config;
use rdma_init::facts::environment::Environment;
use rdma_init::facts::net::Net;
use rdma_init::finding::{Id, Severity};
use rdma_init::nccl::predict::{Bootstrap, GidUse, Transport};
use rdma_init::plan::Fabric;
use rdma_init::profiles::Profiles;
use rdma_init::self_test::check::{Check, Outcome};
use rdma_init::{config, facts::Facts, host, plan, self_test};
use serde_json::Value;

use support::{binary, repository};

/// Runs a command of the program for a case, with the case's environment alone.
fn run(case: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.env_clear().args(arguments).arg("--facts").arg(case.join("facts.json"));
    let config = case.join("config.toml");
    // A configuration of the machine that runs the test must not count.
    command.env("RDMA_INIT_CONFIG", if config.exists() { config.as_path() } else { Path::new("/dev/null") });
    if let Ok(environment) = fs::read_to_string(case.join("environment")) {
        command.envs(environment.lines().filter_map(|line| line.split_once('=')));
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", case.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Compares with a file, or writes it when asked to.
fn compare(file: &Path, found: &str) -> Option<String> {
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(file, found).unwrap();
    }
    let wanted = fs::read_to_string(file).unwrap_or_default();
    (wanted != found).then(|| format!("{} differs.\n--- wanted\n{wanted}--- found\n{found}", file.display()))
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir(repository("tests/cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    cases
}

#[test]
fn every_case_comes_out_as_written() {
    let cases = cases();
    let mut failures = Vec::new();
    for case in &cases {
        // Written by hand, from what is right: what must be set, and nothing else.
        let expected = fs::read_to_string(case.join("expected.env")).unwrap_or_else(|error| {
            panic!("{}: {error}", case.join("expected.env").display());
        });
        let mut wanted: Vec<&str> = expected.lines().collect();
        let found = run(case, &["env", "--format", "docker"]);
        let mut found: Vec<&str> = found.lines().collect();
        wanted.sort_unstable();
        found.sort_unstable();
        if wanted != found {
            failures.push(format!(
                "{}: the variables differ.\n--- wanted\n{}\n--- found\n{}",
                case.display(),
                wanted.join("\n"),
                found.join("\n")
            ));
        }
        failures.extend(compare(&case.join("plan.txt"), &run(case, &["plan", "--evidence"])));
        let about = fs::read_to_string(case.join("about.txt")).unwrap_or_default();
        if about.trim().is_empty() {
            failures.push(format!("{} has no about.txt", case.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("{} golden hosts", cases.len());
}

/// A golden host with its environment and configuration, as the program decides for it.
struct Case {
    name: String,
    facts: Facts,
    profiles: Profiles,
    config: Config,
}

impl Case {
    fn load(case: &Path) -> Case {
        let config = case.join("config.toml");
        let config = if config.exists() { config } else { "/dev/null".into() };
        let text = fs::read_to_string(case.join("environment")).unwrap_or_default();
        let lines = text.lines().map(str::to_owned).chain([format!("RDMA_INIT_CONFIG={}", config.display())]);
        let entries: Vec<CString> = lines.map(|line| CString::new(line).unwrap()).collect();
        let environment = Environment::new(&entries);
        let config = config::load(&environment, Vec::new()).unwrap();
        let profiles = host::profiles(&config).unwrap();
        let facts = host::captured_facts(&case.join("facts.json"), &profiles, &environment).unwrap();
        Case { name: case.file_name().unwrap().to_string_lossy().into_owned(), facts, profiles, config }
    }
}

/// Where the start-up does not read the network, it decides as if it had.
#[test]
fn what_is_not_read_decides_nothing() {
    let mut without_need = Vec::new();
    for Case { name, facts: all, profiles, config } in cases().iter().map(|case| Case::load(case)) {
        // With the HCAs of the host, and as if there were none.
        for all in [Facts { rdma: Vec::new(), ..all.clone() }, all] {
            let devices: Vec<String> = all.net.interfaces.iter().map(|i| i.name.clone()).collect();
            if !plan::needs_network(&all, &devices, &profiles, &config.plan_options()) {
                let less = Facts { net: Net::default(), ..all.clone() };
                let [with, without] = [all, less].map(|facts| host::decide(&facts, &profiles, &config));
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
#[test]
fn the_self_test_and_require_rdma_agree() {
    let mut wrong = Vec::new();
    let mut refused = Vec::new();
    let mut differ = Vec::new();
    for case in cases() {
        let Case { name, facts, profiles, config } = Case::load(&case);
        let plan = host::decide(&facts, &profiles, &config);
        let report = self_test::quick::report(&name, &facts, &plan, |_| true);
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
#[test]
fn every_finding_has_a_check() {
    let without: Vec<Id> =
        Id::ALL.iter().copied().filter(|id| self_test::kinds::of_finding(*id).is_none()).collect();
    assert_eq!(without, [OF_THE_END], "add them to a check in src/self_test/kinds.rs");
}

/// What this program can find has a host where it does.
#[test]
fn every_finding_has_a_case() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        let plan: Value = serde_json::from_str(&run(&case, &["plan", "--json"])).unwrap();
        let findings = plan["findings"].as_array().unwrap();
        seen.extend(findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()));
    }
    let is_missing = |id: &&Id| **id != OF_THE_END && !seen.contains(id.name());
    let without: Vec<&Id> = Id::ALL.iter().filter(is_missing).collect();
    assert!(without.is_empty(), "no golden host has these: {without:?}");
}

/// Of what a job has moved when it has ended, which no plan knows.
const OF_THE_END: Id = Id::NoTraffic;
