//! Lets the code of Kubernetes' API server apply the example's policy to Pods in the form that operators
//! give them.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::manifests::SECRET;
use crate::support::repository;

/// Returns each Pod after one evaluation, and after a second one.
fn admitted(pods: &[Value]) -> Vec<[Value; 2]> {
    let mut setup = Command::new(repository("tests/examples/admission/setup.sh"));
    let setup = setup.arg("judge").stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "tests/examples/admission/setup.sh fails (see above)");
    let said = String::from_utf8(setup.stdout).unwrap();
    let judge = said.trim_end().strip_prefix("JUDGE=").unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The evaluator reads one object: the policy, without the binding that follows it.
    let policy = fs::read_to_string(repository("examples/kubernetes-policy/policy.yaml")).unwrap();
    let (policy, binding) = policy.split_once("\n---\n").unwrap();
    assert!(binding.contains("policyName: rdma-init"), "{binding}");
    fs::write(folder.path().join("policy"), policy).unwrap();
    let mut command = Command::new(judge);
    command.arg(folder.path().join("policy"));
    for (number, pod) in pods.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        fs::write(&path, pod.to_string()).unwrap();
        command.arg(path);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 2 * pods.len());
    all.chunks(2).map(|both| [both[0].clone(), both[1].clone()]).collect()
}

fn pod(spec: &Value) -> Value {
    let metadata = json!({"name": "pod", "labels": {"rdma-init/inject": "true"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Returns a container that requests GPUs.
fn trainer(more: &Value) -> Value {
    let mut container = json!({
        "name": "train", "image": "train", "command": ["torchrun", "train.py"], "args": ["--epochs", "3"],
        "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "96"}},
    });
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

/// Returns Pods as operators make them. In each of them, one container gets rdma-init: the first one.
fn pods() -> Vec<(&'static str, Value)> {
    let shm = json!({"name": "shm", "emptyDir": {"medium": "Memory"}});
    let mounts = json!([{"name": "shm", "mountPath": "/dev/shm"}]);
    let sidecar = json!({"name": "logs", "image": "logs", "command": ["logs"]});
    let native = json!({"name": "mesh", "image": "mesh", "restartPolicy": "Always"});
    vec![
        ("a bare Pod", json!({"containers": [trainer(&json!({}))]})),
        (
            "PyTorchJob's worker",
            json!({
                "initContainers": [{"name": "init-pytorch", "image": "alpine", "command": ["sh", "-c", "true"]}],
                "containers": [trainer(&json!({
                    "env": [{"name": "RANK", "value": "1"}, {"name": "RDMA_INIT_TOKEN", "value": "own"}],
                    "envFrom": [{"secretRef": {"name": "others"}}],
                }))],
            }),
        ),
        (
            "JobSet's Pod with a native sidecar",
            json!({
                "subdomain": "train", "initContainers": [native], "volumes": [shm],
                "containers": [trainer(&json!({"volumeMounts": mounts})), sidecar],
            }),
        ),
        (
            "LeaderWorkerSet's worker",
            json!({
                "volumes": [shm],
                "containers": [trainer(&json!({
                    "env": [{"name": "LWS_WORKER_INDEX", "valueFrom": {"fieldRef": {
                        "fieldPath": "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"}}}],
                    "volumeMounts": mounts,
                })), sidecar],
            }),
        ),
        (
            "MPIJob's worker",
            json!({
                "volumes": [{"name": "ssh-auth", "secret": {"secretName": "train-ssh"}}],
                "containers": [trainer(&json!({
                    "command": ["/usr/sbin/sshd", "-De"],
                    "volumeMounts": [{"name": "ssh-auth", "mountPath": "/root/.ssh"}],
                }))],
            }),
        ),
    ]
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

#[test]
#[ignore = "make test-admission: needs 3 GB of packages"]
fn the_pods_of_operators_start_under_rdma_init() {
    let (names, specs): (Vec<_>, Vec<_>) = pods().into_iter().unzip();
    let before: Vec<_> = specs.iter().map(pod).collect();
    for ((name, before), [first, second]) in names.iter().zip(&before).zip(admitted(&before)) {
        assert_eq!(first, second, "{name}: a second evaluation changes the Pod");
        let (before, after) = (&before["spec"], &first["spec"]);
        let (old, new) = (&before["containers"][0], &after["containers"][0]);
        let prefix = vec![json!("/opt/rdma-init/rdma-init"), json!("--")];
        assert_eq!(list(&new["command"]), [prefix, list(&old["command"])].concat(), "{name}");
        assert_eq!(new["args"], old["args"], "{name}");
        let mount = json!({"name": "rdma-init", "readOnly": true, "mountPath": "/opt/rdma-init"});
        assert_eq!(list(&new["volumeMounts"]), [list(&old["volumeMounts"]), vec![mount]].concat(), "{name}");
        // Everything else that sets the variable has precedence: `env`, and later entries of `envFrom`.
        let token = json!({"secretRef": {"name": SECRET, "optional": true}});
        assert_eq!(list(&new["envFrom"]), [vec![token], list(&old["envFrom"])].concat(), "{name}");
        assert_eq!(new["env"], old["env"], "{name}");
        // The other containers stay as they are.
        let commands = |spec: &Value| {
            let rest = list(&spec["containers"]).into_iter().skip(1);
            rest.map(|container| (container["command"].clone(), list(&container["volumeMounts"])))
                .collect::<Vec<_>>()
        };
        assert_eq!(commands(before), commands(after), "{name}");
        let init = list(&after["initContainers"]);
        assert_eq!(init.len(), list(&before["initContainers"]).len() + 1, "{name}");
        assert_eq!(init[0]["command"], json!(["/rdma-init", "install", "/opt/rdma-init"]), "{name}");
        assert_eq!(init[0]["securityContext"]["capabilities"]["drop"], json!(["ALL"]), "{name}");
        // A Pod whose containers are all like this is Guaranteed.
        let resources = json!({"cpu": "100m", "memory": "64Mi"});
        assert_eq!(init[0]["resources"], json!({"requests": resources, "limits": resources}), "{name}");
        let volumes = list(&after["volumes"]);
        assert_eq!(volumes.len(), list(&before["volumes"]).len() + 1, "{name}");
        assert_eq!(volumes.last(), Some(&json!({"name": "rdma-init", "emptyDir": {}})), "{name}");
    }
}

/// A preflight must not run without its token only because the Secret is missing.
#[test]
#[ignore = "make test-admission: needs 3 GB of packages"]
fn a_container_with_a_preflight_needs_the_secret() {
    let on = json!({"name": "RDMA_INIT_PREFLIGHT", "value": "enforce"});
    let off = json!({"name": "RDMA_INIT_PREFLIGHT", "value": "off"});
    let own = json!({"name": "RDMA_INIT_TOKEN", "value": "own"});
    let cases = [(vec![&on], false), (vec![&off], true), (vec![&on, &own], true), (vec![&own], true)];
    let all: Vec<_> = cases
        .iter()
        .map(|(variables, _)| pod(&json!({"containers": [trainer(&json!({"env": variables}))]})))
        .collect();
    for ((variables, optional), [after, _]) in cases.iter().zip(admitted(&all)) {
        let from = &after["spec"]["containers"][0]["envFrom"];
        assert_eq!(*from, json!([{"secretRef": {"name": SECRET, "optional": optional}}]), "{variables:?}");
    }
}

#[test]
#[ignore = "make test-admission: needs 3 GB of packages"]
fn other_pods_stay_as_they_are() {
    let mut without_label = pod(&json!({"containers": [trainer(&json!({}))]}));
    without_label["metadata"]["labels"] = json!({"rdma-init/inject": "false"});
    let mut without_command = trainer(&json!({}));
    without_command.as_object_mut().unwrap().remove("command");
    let sidecar = json!({"name": "logs", "image": "logs", "command": ["logs"]});
    let own = json!([{"name": "rdma-init", "image": "own"}]);
    let mounts = json!([{"name": "own", "mountPath": "/opt/rdma-init"}]);
    let all = [
        without_label,
        pod(&json!({"containers": [without_command]})),
        // A sidecar does not take the place of a container whose command is that of the image.
        pod(&json!({"containers": [sidecar, without_command]})),
        pod(&json!({"containers": [trainer(&json!({"command": []}))]})),
        // These names are taken, and the API server would refuse a second one.
        pod(&json!({"containers": [trainer(&json!({}))], "initContainers": own})),
        pod(&json!({
            "containers": [trainer(&json!({"volumeMounts": mounts}))],
            "volumes": [{"name": "own", "emptyDir": {}}],
        })),
    ];
    for (before, [after, again]) in all.iter().zip(admitted(&all)) {
        for part in ["volumes", "initContainers"] {
            let names = |pod: &Value| {
                list(&pod["spec"][part]).iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(before), names(&after), "{after:#}");
        }
        // Some releases of Kubernetes leave out an empty list.
        let command = |pod: &Value| list(&pod["spec"]["containers"][0]["command"]);
        assert_eq!(command(before), command(&after));
        assert_eq!(after, again);
    }
}

#[test]
#[ignore = "make test-admission: needs 3 GB of packages"]
fn the_containers_that_get_a_device_are_the_ones_and_otherwise_the_first() {
    let sidecar =
        json!({"name": "mesh", "image": "mesh", "command": ["mesh"], "resources": {"limits": {"cpu": "1"}}});
    let claims = json!({"resources": {"claims": [{"name": "hca"}]}});
    let plain = trainer(&json!({"resources": {}}));
    let cases = [
        (json!({"containers": [sidecar, trainer(&json!({}))]}), vec![1]),
        (json!({"containers": [sidecar, trainer(&claims)]}), vec![1]),
        (json!({"containers": [trainer(&json!({})), sidecar, trainer(&json!({"name": "two"}))]}), vec![0, 2]),
        // A privileged container can have all devices without asking for one.
        (json!({"containers": [plain, sidecar]}), vec![0]),
    ];
    let (specs, wanted): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let all: Vec<_> = specs.iter().map(pod).collect();
    for (wanted, [after, _]) in wanted.iter().zip(admitted(&all)) {
        let containers = list(&after["spec"]["containers"]);
        let has_prefix = |index: &usize| containers[*index]["command"][0] == "/opt/rdma-init/rdma-init";
        assert_eq!((0..containers.len()).filter(has_prefix).collect::<Vec<_>>(), *wanted, "{after:#}");
    }
}
