//! Tests what each container of each manifest starts, in a real container.

use serde_json::Value;

use super::manifests::manifests;
use super::started::{Described, arguments, containers, is_child_of_pid_1, strings};
use crate::support::docker::host::{Host, OWN_SLOT};

/// The name of a container, the variables that its platform adds to the environment, and the command that
/// starts in it.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const CASES: &[Case] = &[
    ("acs-type1/train", &[], &["sleep", "1000h"]),
    ("acs-type2/train", &[], &["sleep", "1000h"]),
    (
        "cce-pytorchjob/pytorch",
        &[("MASTER_ADDR", "train-master-0"), ("MASTER_PORT", "23456"), ("WORLD_SIZE", "2"), ("RANK", "1")],
        &[
            "python",
            "-m",
            "torch.distributed.launch",
            "--nproc_per_node",
            "8",
            "--nnodes",
            "2",
            "--node_rank",
            "1",
            "--master_addr",
            "train-master-0",
            "--master_port",
            "23456",
            "main.py",
        ],
    ),
    ("init-container/train", &[], &["python", "train.py"]),
    (
        "jobset/train",
        &[("JOB_COMPLETION_INDEX", "1")],
        &[
            "torchrun",
            "--nnodes=2",
            "--nproc-per-node=8",
            "--node-rank=1",
            "--master-addr=train-node-0-0.train",
            "--master-port=29500",
            "train.py",
        ],
    ),
    (
        "kuberay/head",
        &[("KUBERAY_GEN_RAY_START_CMD", "ray start --head --block")],
        &["ray", "start", "--head", "--block"],
    ),
    (
        "kuberay/worker",
        &[("KUBERAY_GEN_RAY_START_CMD", "ray start --address=train-head-svc:6379 --block")],
        &["ray", "start", "--address=train-head-svc:6379", "--block"],
    ),
    (
        "leaderworkerset/train",
        &[
            ("LWS_GROUP_SIZE", "2"),
            ("LWS_LEADER_ADDRESS", "train-0.train.default"),
            ("LWS_WORKER_INDEX", "1"),
        ],
        &[
            "torchrun",
            "--nnodes=2",
            "--nproc-per-node=8",
            "--node-rank=1",
            "--master-addr=train-0.train.default",
            "--master-port=29500",
            "train.py",
        ],
    ),
    (
        "mpijob/launcher",
        &[],
        &[
            "mpirun",
            "--allow-run-as-root",
            "-x",
            "RDMA_INIT_TOKEN",
            "--map-by",
            "ppr:1:node",
            "/rdma-init",
            "preflight",
            "mpirun",
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "python",
            "train.py",
        ],
    ),
    ("mpijob/worker", &[], &["sshd", "-De"]),
    (
        "ray-vllm/head",
        &[],
        &[
            "ray",
            "start",
            "--head",
            "--port=6379",
            "vllm",
            "serve",
            "example/model",
            "--tensor-parallel-size",
            "8",
            "--pipeline-parallel-size",
            "2",
            "--distributed-executor-backend",
            "ray",
        ],
    ),
    ("ray-vllm/worker", &[], &["ray", "start", "--address=vllm-head:6379", "--block"]),
    ("startup-probe/train", &[], &["python", "serve.py"]),
    (
        "trainjob/node",
        &[
            ("PET_NNODES", "2"),
            ("PET_NPROC_PER_NODE", "auto"),
            ("PET_NODE_RANK", "1"),
            ("PET_MASTER_ADDR", "train-node-0-0.train"),
            ("PET_MASTER_PORT", "29500"),
        ],
        &["torchrun", "train.py"],
    ),
];

pub fn case(described: &Described) -> &'static Case {
    let this = CASES.iter().find(|(name, ..)| *name == described.name);
    this.unwrap_or_else(|| panic!("nothing is known of {}", described.name))
}

#[test]
fn every_container_starts_its_command_with_the_variables() {
    let Some(manifests) = manifests() else { return };
    for described in manifests.iter().flat_map(containers) {
        let Some((engine, mut host)) = Host::of_engine() else { return };
        let (name, platform, command) = case(&described);
        let has_devices = !["kuberay/head", "mpijob/launcher"].contains(name);
        if !has_devices {
            let network = engine.network();
            host = Host::new().on(network, network.address());
        }
        let mut platform = platform.to_vec();
        // The other nodes of the job do not exist.
        if described.environment().contains(&("RDMA_INIT_PREFLIGHT", "enforce")) {
            platform.push(("RDMA_INIT_PREFLIGHT", "off"));
        }
        // The devices of this host cannot be opened, so an enforced self-test fails.
        let enforces = described.environment().contains(&("RDMA_INIT_SELF_TEST", "enforce"));
        if enforces {
            let refused = described.start(engine, &host, &platform).wait().expect_code(121);
            refused.expect_line(["refusing to start the command", "verbs-open"]);
            platform.push(("RDMA_INIT_SELF_TEST", "warn"));
        }
        let ended = described.start(engine, &host, &platform).wait().expect_code(0);
        assert_eq!(&arguments(&ended), command, "{name}");
        is_child_of_pid_1(&ended);
        for (variable, value) in [described.environment(), platform].concat() {
            let overridden = value == "enforce";
            if overridden {
                continue;
            }
            assert_eq!(ended.variable(variable), Some(value), "{name}: {variable}");
        }
        let filled = has_devices.then_some("=mlx5_0");
        assert_eq!(ended.variable("NCCL_IB_HCA"), filled, "{name}: {ended:#?}");
        assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), has_devices.then_some(OWN_SLOT), "{name}");
        // A Pod of type 2 would run on a different kind of host, so an error is correct there.
        if *name != "acs-type2/train" {
            ended.expect_unsaid("error:");
        }
    }
}

/// A command in the TrainJob would replace that of its runtime, and rdma-init with it.
#[test]
fn a_trainjob_leaves_the_command_to_its_runtime() {
    let Some(manifests) = manifests() else { return };
    let of = |kind: &str| {
        let mut documents = manifests.iter().flat_map(|manifest| &manifest.documents);
        documents.find(|document| document["kind"] == kind).unwrap()
    };
    let job = of("TrainJob");
    assert_eq!(job["spec"]["runtimeRef"]["name"], of("ClusterTrainingRuntime")["metadata"]["name"]);
    assert_eq!(strings(&job["spec"]["trainer"]["args"])[0], "torchrun", "{job:#}");
    assert!(job["spec"]["trainer"]["command"].is_null(), "{job:#}");
}

/// A Pod gets more time to stop than the program gives its processes.
#[test]
fn the_stop_timeout_is_shorter_than_the_grace_period() {
    let Some(manifests) = manifests() else { return };
    let mut seen = 0;
    for Described { name, pod, container } in manifests.iter().flat_map(containers) {
        let words = strings(&container["command"]);
        let Some(position) = words.iter().position(|word| word.starts_with("--stop-timeout")) else {
            continue;
        };
        let time = words[position].strip_prefix("--stop-timeout=").unwrap_or_else(|| words[position + 1]);
        let time: u64 = time.strip_suffix('s').unwrap().parse().unwrap();
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        assert!(time + 5 <= grace, "{name}: {time} s, {grace} s");
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}

/// A training container needs shared memory, and the capability to pin memory.
#[test]
fn shared_memory_and_pinned_memory_are_provided_for() {
    let Some(manifests) = manifests() else { return };
    for Described { name, pod, container } in manifests.iter().flat_map(containers) {
        let resources = container["resources"]["limits"].as_object().unwrap();
        if !resources.keys().any(|resource| resource.contains('/')) {
            continue;
        }
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == "/dev/shm").unwrap();
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["emptyDir"]["medium"], "Memory", "{name}");
        // On ACS of type 2, RDMA works without verbs, so the container pins no memory.
        if name != "acs-type2/train" {
            let added = &container["securityContext"]["capabilities"]["add"];
            assert_eq!(added, &Value::from(vec!["IPC_LOCK"]), "{name}");
        }
    }
}
