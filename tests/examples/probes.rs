//! Runs the probes of the manifests in the container, as the kubelet does.

use serde_json::Value;

use super::manifests::manifests;
use super::pods::case;
use super::started::{containers, strings};
use crate::support::docker::Container;
use crate::support::docker::host::Host;

/// Returns the commands of all probes of a container.
fn probes(container: &Value) -> Vec<Vec<&str>> {
    let all = ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| &container[probe]["exec"]);
    all.into_iter().map(|exec| strings(&exec["command"])).filter(|command| !command.is_empty()).collect()
}

#[track_caller]
fn expect(container: &Container, probes: &[Vec<&str>], code: i32) {
    for probe in probes {
        container.exec(probe).expect_code(code);
    }
}

#[test]
fn a_probe_passes_when_the_container_is_prepared_and_not_before() {
    let Some(manifests) = manifests() else { return };
    let mut seen = 0;
    for described in manifests.iter().flat_map(containers) {
        let probes = probes(described.container);
        if probes.is_empty() {
            continue;
        }
        let Some((engine, host)) = Host::of_engine() else { return };
        let unprepared = ["--entrypoint", "/bin/sh"];
        let mut container = engine.start(host.options(&unprepared), &["-c", "echo ready; exec sleep 1000"]);
        container.wait_for("ready");
        expect(&container, &probes, 1);
        drop(container);

        let platform = [case(&described).1, &[("STANDIN_STAYS", "1")]].concat();
        let mut container = described.start(engine, &host, &platform);
        container.wait_for("ready");
        expect(&container, &probes, 0);
        seen += probes.len();
    }
    assert!(seen >= 5, "{seen}");
}

/// The kubelet waits longer than a preparation may take: 10 s unless the manifest sets another time, and 15
/// s more for a self-test.
#[test]
fn a_startup_probe_outlasts_the_preparation() {
    let Some(manifests) = manifests() else { return };
    for described in manifests.iter().flat_map(containers) {
        let probe = &described.container["startupProbe"];
        if probe.is_null() {
            continue;
        }
        let words = strings(&described.container["command"]);
        let value = |flag: &str| words.iter().find_map(|word| word.strip_prefix(flag));
        let prepare = value("--prepare-timeout=").map_or("10s", |time| time);
        let prepare: u64 = prepare.strip_suffix('s').unwrap().parse().unwrap();
        let self_test = if value("--self-test=").is_some() { 15 } else { 0 };
        let patience = probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap();
        assert!(patience > prepare + self_test, "{}: {patience} s", described.name);
    }
}
