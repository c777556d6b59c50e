//! Tests the decisions for the manifests, and for what Arena and DLC start. The hosts are captured ones
//! from the platforms, with the variables of the example.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::manifests::manifests;
use super::started::{containers, strings};
use crate::support::process::rdma_init;
use crate::support::repository;

/// Returns the plan for a demo host. Variables of the program itself are set in its
/// environment, and all others in the captured one.
#[track_caller]
fn plan(demo: &str, environment: &[(&str, &str)], flags: &[&str]) -> Value {
    let host = fs::read_to_string(repository(format!("src/demo/{demo}.json"))).unwrap();
    let mut host: Value = serde_json::from_str(&host).unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        environment.iter().partition(|(name, _)| name.starts_with("RDMA_INIT_"));
    let setting =
        |(name, value): &(&str, &str)| json!({"variable": name, "value": value, "origin": "environment"});
    host["settings"] = theirs.iter().map(setting).collect();
    let names = environment.iter().map(|(name, _)| *name);
    host["platform"]["markers"].as_array_mut().unwrap().extend(names.map(Value::from));
    host["platform"]["master_addr"] =
        environment.iter().find(|(name, _)| *name == "MASTER_ADDR").map(|(_, value)| *value).into();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.json");
    fs::write(&file, host.to_string()).unwrap();
    let mut command: Command = rdma_init(["plan", "--json", "--facts"]);
    let output = command.arg(&file).args(flags).envs(ours).output().unwrap();
    assert!(output.status.success(), "{demo}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the variable and the value of each flag. `plan` rejects flags that only a start obeys, but it
/// accepts all variables.
fn as_variables(flags: &[&str]) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for flag in flags {
        match (flag.strip_prefix("--"), variables.last_mut()) {
            (Some(flag), _) => {
                let (key, value) = flag.split_once('=').unwrap_or((flag, "true"));
                let name = format!("RDMA_INIT_{}", key.replace('-', "_").to_uppercase());
                variables.push((name, value.to_owned()));
            }
            (None, Some((_, value))) => *value = (*flag).to_owned(),
            (None, None) => panic!("{flag} belongs to no flag"),
        }
    }
    variables
}

/// Returns the plan for the first container of an example, with the flags of its command.
#[track_caller]
fn plan_of(example: &str, demo: &str, more: &[(&str, &str)]) -> Option<Value> {
    let manifest = manifests()?.iter().find(|manifest| manifest.example() == example).unwrap();
    let described = containers(manifest);
    let described = described.first().unwrap();
    let words = strings(&described.container["command"]);
    let flags: Vec<_> = words[1..].iter().take_while(|word| **word != "--").copied().collect();
    let variables = as_variables(&flags);
    let ours: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let environment = [&described.environment(), more, &ours].concat();
    Some(plan(demo, &environment, &[]))
}

fn value<'a>(plan: &'a Value, variable: &str) -> Option<&'a str> {
    let settings = plan["settings"].as_array().unwrap();
    settings.iter().find(|setting| setting["variable"] == variable)?["value"].as_str()
}

#[track_caller]
fn expect(plan: &Value, profile: &str, values: &[(&str, &str)]) {
    assert_eq!(plan["profile"]["name"], profile, "{plan:#}");
    for (variable, expected) in values {
        assert_eq!(value(plan, variable), Some(*expected), "{variable}: {plan:#}");
    }
    let findings = plan["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["severity"] != "error"), "{findings:#?}");
}

#[test]
fn acs_type_1() {
    let Some(plan) = plan_of("acs-type1", "acs-type1", &[]) else { return };
    expect(&plan, "acs-type1", &[("NCCL_IB_HCA", "mlx5"), ("NCCL_SOCKET_IFNAME", "eth0")]);
}

#[test]
fn acs_type_2() {
    let Some(plan) = plan_of("acs-type2", "acs-type2", &[]) else { return };
    let values = [("NCCL_IB_DISABLE", "1"), ("NCCL_IB_HCA", ""), ("NCCL_SOCKET_IFNAME", "eth0")];
    expect(&plan, "acs-type2", &values);
}

/// The plan is checked with the variables that the container runtime injects, and without them.
#[test]
fn cce() {
    let hcas: Vec<_> = (1..=8).map(|number| format!("mlx5_{number}")).collect();
    let injected = [
        ("NCCL_IB_HCA", hcas.join(",")),
        ("NCCL_SOCKET_IFNAME", "eth0".to_owned()),
        ("NCCL_IB_GID_INDEX", "3".to_owned()),
        ("NCCL_IB_TIMEOUT", "22".to_owned()),
        ("NCCL_IB_QPS_PER_CONNECTION", "8".to_owned()),
    ];
    let injected: Vec<_> = injected.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let Some(plan) = plan_of("cce-pytorchjob", "cce-roce", &injected) else { return };
    expect(&plan, "generic-roce", &injected);
    let Some(plan) = plan_of("cce-pytorchjob", "cce-roce", &[]) else { return };
    expect(&plan, "generic-roce", &[("NCCL_IB_GID_INDEX", "3"), ("NCCL_SOCKET_IFNAME", "eth0")]);
}

#[test]
fn any_cluster_with_roce_or_infiniband() {
    for (demo, profile) in [("cce-roce", "generic-roce"), ("infiniband", "generic-ib")] {
        for example in ["jobset", "ray-vllm", "startup-probe"] {
            let Some(plan) = plan_of(example, demo, &[]) else { return };
            expect(&plan, profile, &[("NCCL_SOCKET_IFNAME", "eth0")]);
        }
    }
}

#[test]
fn dlc() {
    let plan = plan("erdma", &[("MASTER_ADDR", "dlc1abc-master-0")], &["--require-rdma"]);
    let values = [("NCCL_IB_HCA", "erdma"), ("NCCL_IB_GID_INDEX", "1"), ("NCCL_NET_PLUGIN", "none")];
    expect(&plan, "pai-erdma", &values);
}

#[test]
fn arena() {
    let script = fs::read_to_string(repository("examples/ack-arena/submit.sh")).unwrap();
    let words = script.split_whitespace().filter_map(|word| word.strip_prefix("--env=")?.split_once('='));
    let plan = plan("erdma", &words.collect::<Vec<_>>(), &[]);
    expect(&plan, "ack-erdma", &[("NCCL_ALGO", "Ring"), ("NCCL_SOCKET_IFNAME", "eth0")]);
}

/// Each Pod requests a number of GPUs for which the platform has RDMA.
#[test]
fn acs_pods_ask_for_the_cards_that_have_rdma() {
    let Some(manifests) = manifests() else { return };
    for example in ["acs-type1", "acs-type2"] {
        let manifest = manifests.iter().find(|manifest| manifest.example() == example).unwrap();
        let described = containers(manifest);
        let resources = &described[0].container["resources"];
        assert_eq!(resources["requests"], resources["limits"], "{example}");
        let cards = resources["limits"].as_object().unwrap();
        let cards = cards.iter().find(|(name, _)| name.contains('/')).unwrap().1;
        let profile = rdma_init(["profiles", example, "--json"]).output().unwrap();
        let profile: Value = serde_json::from_slice(&profile.stdout).unwrap();
        let allowed = profile["profiles"][0]["constraints"]["cards"].as_array().unwrap();
        assert_eq!(allowed, &[cards.as_str().unwrap().parse::<u64>().unwrap()], "{profile:#}");
        let labels = &manifest.documents[1]["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["alibabacloud.com/hpn-type"], "rdma");
    }
}
