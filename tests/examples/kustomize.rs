//! Lets kubectl apply the kustomize component to the manifests of the examples.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::manifests::manifests;
use super::setup::{prepared, value};
use crate::support::repository;

const PREFIX: [&str; 2] = ["/opt/rdma-init/rdma-init", "--"];
const MARK: &str = "rdma-init/inject";

/// Returns what `kubectl kustomize` prints for these objects with the component, or its error.
fn kustomize(objects: &[Value]) -> Option<Result<Vec<Value>, String>> {
    let paths = prepared("manifests")?;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("component")).unwrap();
    for file in ["kustomization.yml", "rdma-init.yml"] {
        fs::copy(repository("examples/kustomize").join(file), at("component").join(file)).unwrap();
    }
    fs::create_dir(at("app")).unwrap();
    let names: Vec<_> = (0..objects.len()).map(|number| format!("{number}.json")).collect();
    for (name, object) in names.iter().zip(objects) {
        fs::write(at("app").join(name), object.to_string()).unwrap();
    }
    let app = json!({"resources": names, "components": ["../component"]});
    fs::write(at("app/kustomization.yml"), app.to_string()).unwrap();
    let output = Command::new(value(&paths, "KUBECTL")).arg("kustomize").arg(at("app")).output().unwrap();
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    fs::write(at("output"), output.stdout).unwrap();
    let read = Command::new(value(&paths, "PYTHON")).args(["-c", script]).arg(at("output")).output().unwrap();
    Some(Ok(serde_json::from_slice(&read.stdout).unwrap()))
}

/// Returns an object of an example with the label, and without rdma-init in its commands.
fn plain(example: &str, kind: &str) -> Option<Value> {
    let manifest = manifests()?.iter().find(|manifest| manifest.example() == example).unwrap();
    let mut object = manifest.documents.iter().find(|document| document["kind"] == kind).unwrap().clone();
    object["metadata"]["labels"][MARK] = "true".into();
    for_each_pod(&mut object, &mut |pod| {
        let container = &mut pod["containers"][0];
        let words = ["command", "args"].map(|field| container[field].as_array().cloned().unwrap_or_default());
        let words = words.concat();
        let dashes = words.iter().position(|word| word == "--").unwrap();
        container["command"] = words[dashes + 1..].into();
        container.as_object_mut().unwrap().remove("args");
    });
    Some(object)
}

fn for_each_pod(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Object(fields) if fields.contains_key("containers") => change(value),
        Value::Object(fields) => fields.values_mut().for_each(|field| for_each_pod(field, change)),
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_pod(item, change)),
        _ => {}
    }
}

fn pods(object: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for_each_pod(&mut object.clone(), &mut |pod| found.push(pod.clone()));
    found
}

/// The number of Pod templates of each kind, and how many of them get rdma-init.
const KINDS: &[(&str, &str, usize, usize)] = &[
    ("init-container", "Pod", 1, 1),
    ("ray-vllm", "Deployment", 1, 1),
    ("jobset", "JobSet", 1, 1),
    ("cce-pytorchjob", "PyTorchJob", 2, 2),
    // The launcher has no devices.
    ("mpijob", "MPIJob", 2, 1),
    ("leaderworkerset", "LeaderWorkerSet", 1, 1),
];

#[test]
fn the_component_adds_rdma_init_to_every_kind_of_object() {
    let mut objects = Vec::new();
    for (example, kind, ..) in KINDS {
        let Some(mut object) = plain(example, kind) else { return };
        object["metadata"]["name"] = (*example).into();
        for_each_pod(&mut object, &mut |pod| {
            pod.as_object_mut().unwrap().remove("initContainers");
            if let Some(volumes) = pod.get_mut("volumes").and_then(Value::as_array_mut) {
                volumes.retain(|volume| volume["name"] != "rdma-init");
            }
            if let Some(mounts) = pod["containers"][0].get_mut("volumeMounts").and_then(Value::as_array_mut) {
                mounts.retain(|mount| mount["name"] != "rdma-init");
            }
            if let Some(variables) = pod["containers"][0].get_mut("env").and_then(Value::as_array_mut) {
                variables.retain(|variable| variable["name"] != "RDMA_INIT_TOKEN");
            }
        });
        objects.push(object);
    }
    let mut unmarked = objects[0].clone();
    unmarked["metadata"] = json!({"name": "unmarked"});
    objects.push(unmarked.clone());
    let Some(changed) = kustomize(&objects) else { return };
    let changed = changed.unwrap();
    assert_eq!(changed.len(), objects.len(), "{changed:#?}");
    let named = |name: &str| changed.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    assert_eq!(pods(named("unmarked")), pods(&unmarked));
    for ((example, kind, templates, injected), before) in KINDS.iter().zip(&objects) {
        let (before, after) = (pods(before), pods(named(example)));
        assert_eq!(before.len(), *templates, "{kind}");
        let different = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert_eq!(different.clone().count(), *injected, "{kind}: {after:#?}");
        different.for_each(|(before, after)| has_rdma_init(before, after));
    }
}

/// Checks a Pod against its original: rdma-init is in it, and everything else is unchanged.
fn has_rdma_init(before: &Value, after: &Value) {
    let container = &after["containers"][0];
    let command = container["command"].as_array().unwrap();
    assert_eq!(command[..2], PREFIX, "{after:#?}");
    assert_eq!(command[2..], before["containers"][0]["command"].as_array().unwrap()[..], "{after:#?}");
    let kept = |field: &str, before: &Value, after: &Value| {
        let before = before[field].as_array().cloned().unwrap_or_default();
        let after = after[field].as_array().unwrap();
        assert_eq!(after[..before.len()], before[..], "{field}: {after:#?}");
        assert_eq!(after.len(), before.len() + 1, "{field}: {after:#?}");
        after[before.len()].clone()
    };
    let mount = kept("volumeMounts", &before["containers"][0], container);
    assert_eq!(mount, json!({"name": "rdma-init", "mountPath": "/opt/rdma-init", "readOnly": true}));
    let token = kept("env", &before["containers"][0], container);
    let secret = json!({"name": "rdma-init-token", "key": "token", "optional": true});
    assert_eq!(token, json!({"name": "RDMA_INIT_TOKEN", "valueFrom": {"secretKeyRef": secret}}));
    assert_eq!(kept("volumes", before, after), json!({"name": "rdma-init", "emptyDir": {}}));
    let init = kept("initContainers", before, after);
    assert_eq!(init["command"], json!(["/rdma-init", "install", "/opt/rdma-init"]));
}

/// kustomize does not know the image's own command, so it must not write only a part of one.
#[test]
fn a_manifest_without_a_command_is_refused() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "labels": {MARK: "true"}},
        "spec": {"containers": [{"name": "train", "image": "train", "args": ["train.py"]}]},
    });
    let Some(refused) = kustomize(&[pod]) else { return };
    let error = refused.unwrap_err();
    assert!(error.contains("/spec/containers/0/command"), "{error}");
}
