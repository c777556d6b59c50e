//! Tests that Kubernetes, and the operators that read the manifests, accept them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::covered::files;
use super::setup::{prepared, value};
use super::started::containers;
use crate::support::repository;

/// The Secret with the token of a preflight. Its one key is the name of the variable, so that `envFrom` can take it.
pub const SECRET: &str = "rdma-init-token";

/// A manifest, its documents, and what the schemas reject in them.
#[derive(Debug)]
pub struct Manifest {
    pub path: String,
    pub documents: Vec<Value>,
    errors: Vec<String>,
}

/// Returns all manifests. `None` skips the test.
pub fn manifests() -> Option<&'static [Manifest]> {
    static ALL: LazyLock<Option<Vec<Manifest>>> = LazyLock::new(|| {
        let paths = files(&[".yaml"]);
        validate(&paths.iter().map(repository).collect::<Vec<_>>())
    });
    ALL.as_deref()
}

fn validate(paths: &[impl AsRef<Path>]) -> Option<Vec<Manifest>> {
    let python = value(&prepared("manifests")?, "PYTHON");
    let mut command = Command::new(python);
    command.arg(repository("tests/examples/validate.py")).args(paths.iter().map(AsRef::as_ref));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let manifest = |value: &Value| Manifest {
        path: value["path"].as_str().unwrap().to_owned(),
        documents: value["documents"].as_array().unwrap().clone(),
        errors: value["errors"].as_array().unwrap().iter().map(ToString::to_string).collect(),
    };
    Some(read.iter().map(manifest).collect())
}

impl Manifest {
    /// Returns the name of the example's directory.
    pub fn example(&self) -> &str {
        Path::new(&self.path).parent().unwrap().file_name().unwrap().to_str().unwrap()
    }
}

#[test]
fn kubernetes_and_the_operators_refuse_nothing() {
    let Some(all) = manifests() else { return };
    for manifest in all {
        assert!(!manifest.documents.is_empty(), "{manifest:#?}");
        assert!(manifest.errors.is_empty(), "{}: {:#?}", manifest.path, manifest.errors);
    }
}

/// The schemas find a mistake in any part of a manifest: in the fields of an operator and in the Pods.
#[test]
fn slips_are_found() {
    let slips = [
        ("acs-type1/deployment.yaml", "clusterIP:", "clusterIp:"),
        ("acs-type1/deployment.yaml", "replicas: 2", "replicas: two"),
        ("acs-type1/deployment.yaml", "apps/v1", "apps/v2"),
        ("acs-type2/deployment.yaml", "failureThreshold", "failureTreshold"),
        ("cce-pytorchjob/pytorchjob.yaml", "pytorchReplicaSpecs", "pyTorchReplicaSpecs"),
        ("cce-pytorchjob/pytorchjob.yaml", "restartPolicy", "restartpolicy"),
        ("cce-pytorchjob/pytorchjob.yaml", "schedulerName", "scheduler"),
        ("cce-pytorchjob/pytorchjob.yaml", "annotations", "annotation"),
        ("init-container/pod.yaml", "initContainers", "initcontainers"),
        ("init-container/pod.yaml", "readOnlyRootFilesystem", "readOnlyRootFileSystem"),
        ("jobset/jobset.yaml", "enableDNSHostnames", "enableDnsHostnames"),
        ("jobset/jobset.yaml", "maxRestarts: 3", "maxRestarts: three"),
        ("jobset/jobset.yaml", "completionMode", "completion"),
        ("jobset/jobset.yaml", "capabilities", "capability"),
        ("kuberay/raycluster.yaml", "rayStartParams", "startParams"),
        ("kubernetes-policy/policy.yaml", "objectSelector", "selector"),
        ("leaderworkerset/leaderworkerset.yaml", "size: 2", "size: two"),
        ("leaderworkerset/leaderworkerset.yaml", "workerTemplate:", "template:"),
        ("mpijob/mpijob.yaml", "slotsPerWorker: 8", "slotsPerWorker: \"8\""),
        ("mpijob/mpijob.yaml", "cleanPodPolicy", "cleanPods"),
        ("mpijob/mpijob.yaml", "readinessProbe", "readyProbe"),
        ("startup-probe/pod.yaml", "mountPath", "path"),
        ("trainjob/runtime.yaml", "mlPolicy", "policy"),
        ("trainjob/runtime.yaml", "terminationGracePeriodSeconds", "gracePeriodSeconds"),
        ("trainjob/trainjob.yaml", "numNodes: 4", "numNodes: four"),
        ("trainjob/trainjob.yaml", "args:", "arguments:"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (number, (path, right, wrong)) in slips.iter().enumerate() {
        let text = fs::read_to_string(repository("examples").join(path)).unwrap();
        assert!(text.contains(right), "{path} has no {right}");
        paths.push(folder.path().join(number.to_string()));
        fs::write(&paths[number], text.replace(right, wrong)).unwrap();
    }
    let Some(found) = validate(&paths) else { return };
    for (manifest, slip) in found.iter().zip(slips) {
        assert!(!manifest.errors.is_empty(), "{slip:?} is not found");
    }
}

/// Each container with a preflight takes the token from the Secret that every page creates. Without the Secret,
/// Kubernetes does not start the container, and says so.
#[test]
fn every_preflight_has_the_token_of_the_one_secret() {
    let create = format!(
        "kubectl create secret generic {SECRET} --from-literal=RDMA_INIT_TOKEN=\"$(openssl rand -hex 16)\""
    );
    let readmes =
        fs::read_dir(repository("examples")).unwrap().map(|one| one.unwrap().path().join("README.md"));
    let pages = ["docs/adopting.md", "docs/preflight.md"].map(repository);
    let mut commands = 0;
    for page in readmes.filter(|page| page.exists()).chain(pages) {
        let text = fs::read_to_string(&page).unwrap();
        let all = text.matches("kubectl create secret").count();
        assert_eq!(text.matches(&create).count(), all, "{} creates another Secret", page.display());
        commands += all;
    }
    assert!(commands >= 9, "{commands}");
    let Some(all) = manifests() else { return };
    let reference = json!({"secretKeyRef": {"name": SECRET, "key": "RDMA_INIT_TOKEN"}});
    let mut seen = Vec::new();
    for described in all.iter().flat_map(containers) {
        let from_secret = described.container["env"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["valueFrom"] == reference);
        let runs = described.container.to_string();
        if runs.contains("RDMA_INIT_PREFLIGHT") || runs.contains("rdma-init preflight") {
            assert!(from_secret, "{}", described.name);
            seen.push(described.name);
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}
