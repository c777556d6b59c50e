//! Lets kubectl apply the kustomize component to the manifests of the examples.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::manifests::{SECRET, manifests};
use super::setup::{prepared, value};
use crate::support::repository;

const PREFIX: [&str; 2] = ["/opt/rdma-init/rdma-init", "--"];
const MARK: &str = "rdma-init/inject";

/// Returns what `kubectl kustomize` prints for these objects with the component, or its error.
fn kustomize(objects: &[Value]) -> Option<Result<Vec<Value>, String>> {
    kustomize_after(str::to_owned, objects)
}

/// Does the same with a component that its user has changed.
fn kustomize_after(change: impl Fn(&str) -> String, objects: &[Value]) -> Option<Result<Vec<Value>, String>> {
    let paths = prepared("manifests")?;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("component")).unwrap();
    for file in ["kustomization.yml", "rdma-init.yml"] {
        let text = fs::read_to_string(repository("examples/kustomize").join(file)).unwrap();
        fs::write(at("component").join(file), change(&text)).unwrap();
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

fn without_rdma_init(pod: &mut Value) {
    pod.as_object_mut().unwrap().remove("initContainers");
    if let Some(volumes) = pod.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume["name"] != "rdma-init");
    }
    if let Some(mounts) = pod["containers"][0].get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.retain(|mount| mount["name"] != "rdma-init");
    }
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
        for_each_pod(&mut object, &mut without_rdma_init);
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
        different.for_each(|(before, after)| has_rdma_init(before, after, 0));
    }
}

/// Checks a Pod against its original: rdma-init is in this container, and everything else is unchanged.
fn has_rdma_init(before: &Value, after: &Value, index: usize) {
    let (old, container) = (&before["containers"][index], &after["containers"][index]);
    let command = container["command"].as_array().unwrap();
    assert_eq!(command[..2], PREFIX, "{after:#?}");
    assert_eq!(command[2..], old["command"].as_array().unwrap()[..], "{after:#?}");
    let kept = |field: &str, before: &Value, after: &Value| {
        let before = before[field].as_array().cloned().unwrap_or_default();
        let after = after[field].as_array().unwrap();
        assert_eq!(after[..before.len()], before[..], "{field}: {after:#?}");
        assert_eq!(after.len(), before.len() + 1, "{field}: {after:#?}");
        after[before.len()].clone()
    };
    let mount = kept("volumeMounts", old, container);
    assert_eq!(mount, json!({"name": "rdma-init", "mountPath": "/opt/rdma-init", "readOnly": true}));
    // A variable of `env`, such as the job's own token, has precedence over those of `envFrom`.
    let token = kept("envFrom", old, container);
    assert_eq!(token, json!({"secretRef": {"name": SECRET}}));
    assert_eq!(container["env"], old["env"], "{after:#?}");
    let others = |pod: &Value| {
        let mut containers = pod["containers"].as_array().unwrap().clone();
        containers.remove(index);
        containers
    };
    assert_eq!(others(before), others(after));
    assert_eq!(kept("volumes", before, after), json!({"name": "rdma-init", "emptyDir": {}}));
    let init = kept("initContainers", before, after);
    assert_eq!(init["command"], json!(["/rdma-init", "install", "/opt/rdma-init"]));
    // A Pod whose containers are all like this is Guaranteed.
    assert_eq!(init["resources"]["limits"], init["resources"]["requests"]);
    for resource in ["cpu", "memory"] {
        assert!(init["resources"]["limits"][resource].is_string(), "{init:#?}");
    }
}

fn pod(spec: &Value) -> Value {
    let metadata = json!({"name": "train", "labels": {MARK: "true"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[test]
fn a_job_s_own_token_stays() {
    let own = pod(&json!({"containers": [{
        "name": "train", "image": "train", "command": ["train"],
        "env": [{"name": "RDMA_INIT_TOKEN", "value": "own"}, {"name": "A", "value": "1"}],
        "envFrom": [{"secretRef": {"name": "others"}}, {"prefix": "B_", "configMapRef": {"name": "others"}}],
    }]}));
    let Some(changed) = kustomize(std::slice::from_ref(&own)) else { return };
    has_rdma_init(&own["spec"], &changed.unwrap()[0]["spec"], 0);
}

/// A job that can grow and shrink often has workers alone.
#[test]
fn a_pytorchjob_may_have_workers_alone() {
    let Some(mut job) = plain("cce-pytorchjob", "PyTorchJob") else { return };
    job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().remove("Master");
    job["metadata"]["labels"][MARK] = "workers".into();
    for_each_pod(&mut job, &mut without_rdma_init);
    let changed = kustomize(&[job.clone()]).unwrap().unwrap();
    let (before, after) = (pods(&job), pods(&changed[0]));
    assert_eq!(after.len(), 1);
    has_rdma_init(&before[0], &after[0], 0);
    // kustomize cannot see which of the two there are.
    job["metadata"]["labels"][MARK] = "true".into();
    let error = kustomize(&[job]).unwrap().unwrap_err();
    assert!(error.contains("/spec/pytorchReplicaSpecs/Master/"), "{error}");
}

/// kustomize skips a patch that finds no object, without a message.
#[test]
fn an_unknown_value_of_the_label_and_an_unknown_kind_are_refused() {
    let containers = json!({"containers": [{"name": "train", "image": "train", "command": ["train"]}]});
    let labeled = |kind: &str, value: &str| {
        let mut object = pod(&containers);
        object["kind"] = kind.into();
        object["metadata"]["labels"][MARK] = value.into();
        object
    };
    for (kind, value) in [("Pod", "yes"), ("Pod", "workers"), ("CronJob", "true"), ("PyTorchJob", "worker")] {
        let Some(refused) = kustomize(&[labeled(kind, value)]) else { return };
        let error = refused.unwrap_err();
        assert!(error.contains("The values are true and false"), "{kind}, {value}: {error}");
        assert!(error.contains("The kinds are Pod, Deployment"), "{kind}, {value}: {error}");
    }
    let excluded = labeled("CronJob", "false");
    assert_eq!(kustomize(std::slice::from_ref(&excluded)).unwrap().unwrap(), [excluded]);
}

/// The README's command for a Pod whose trainer is not the first container.
#[test]
fn the_component_can_be_for_the_second_container() {
    let spec = json!({"containers": [
        {"name": "mesh", "image": "mesh", "command": ["mesh"]},
        {"name": "train", "image": "train", "command": ["train"]},
    ]});
    let readme = fs::read_to_string(repository("examples/kustomize/README.md")).unwrap();
    let words = readme.split_once("sed -i '").unwrap().1.split_once('\'').unwrap().0.to_owned();
    let change = |text: &str| {
        words.split("; ").fold(text.to_owned(), |text, one| {
            let mut parts = one.split(',').skip(1);
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            text.replace(from, to)
        })
    };
    let Some(changed) = kustomize_after(change, &[pod(&spec)]) else { return };
    has_rdma_init(&spec, &changed.unwrap()[0]["spec"], 1);
}

#[test]
fn the_images_of_the_examples_are_of_this_release() {
    let mut names = Vec::new();
    for example in fs::read_dir(repository("examples")).unwrap() {
        for file in fs::read_dir(example.unwrap().path()).into_iter().flatten() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let images =
                text.split("/rdma-init:").skip(1).map(|rest| rest.split(['\'', ' ', '\n', '`']).next());
            names.extend(images.flatten().map(str::to_owned));
        }
    }
    assert!(names.len() >= 4, "{names:?}");
    let own = env!("CARGO_PKG_VERSION");
    assert!(names.iter().all(|name| name == own), "{names:?} are not all of {own}");
}

/// kustomize does not know the image's own command, so it must not write only a part of one.
#[test]
fn a_manifest_without_a_command_is_refused() {
    // Kubernetes takes an empty command for none.
    for container in [
        json!({"name": "train", "image": "train", "args": ["train.py"]}),
        json!({"name": "train", "image": "train", "command": [], "args": ["train.py"]}),
    ] {
        let Some(refused) = kustomize(&[pod(&json!({"containers": [container]}))]) else { return };
        let error = refused.unwrap_err();
        assert!(error.contains("/spec/containers/0/command"), "{error}");
    }
}
