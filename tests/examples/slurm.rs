//! Runs the batch script, and separate steps, on a real Slurm cluster whose nodes are containers. Only
//! pyxis, the image, and the devices are made up.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::built::{Build, debian};
use crate::support::docker::host::Host;
use crate::support::docker::{Container, Ended, Engine, engine};
use crate::support::{binary, poll_until, repository};

/// Prevents a second cluster: its nodes would have the same names on the same network.
static CLUSTER: Mutex<()> = Mutex::new(());

/// Starts a node with this name in a cluster of this many nodes. The first node also runs the controller.
fn node<'e>(
    engine: &'e Engine,
    image: &str,
    host: &Host,
    [name, nodes]: [&str; 2],
    shared: &Path,
) -> Container<'e> {
    let shared = format!("{}:/shared", shared.display());
    let volumes = [
        (repository("tests/examples/standin.sh"), "/usr/local/bin/torchrun"),
        (repository("examples/slurm-pyxis/train.sbatch"), "/train.sbatch"),
        (repository("examples/slurm-prolog/task-prolog.sh"), "/task-prolog.sh"),
        (binary(), "/usr/local/bin/rdma-init"),
    ];
    let volumes = volumes.map(|(from, to)| format!("{}:{to}:ro", from.display()));
    // A node's daemon does not start without control groups, so the node gets those of this machine.
    let nodes = format!("NODES={nodes}");
    let mut options =
        vec!["--env", &nodes, "--hostname", name, "--network-alias", name, "--cap-add", "IPC_LOCK"];
    options.extend(["--volume", "/sys/fs/cgroup:/sys/fs/cgroup:ro", "--volume", &shared]);
    options.extend(volumes.iter().flat_map(|volume| ["--volume", volume]));
    let mut node = engine.start_image(image, host.options(&options), &["/node.sh"]);
    node.wait_for("ready");
    node.limit_rate();
    node
}

/// Starts a cluster whose nodes have these hosts, share this directory, and are called `slurm1` and so on.
fn cluster<'e, const NODES: usize>(
    engine: &'e Engine,
    debian: &str,
    hosts: &[Host; NODES],
    shared: &Path,
) -> [Container<'e>; NODES] {
    let (image, _) = Build::new(engine, "slurm").argument("BASE", debian).of("tests/examples/slurm", None);
    let nodes = std::array::from_fn(|index| {
        node(engine, &image, &hosts[index], [&format!("slurm{}", index + 1), &NODES.to_string()], shared)
    });
    poll_until("all nodes are idle", || {
        let idle = nodes[0].exec(&["sinfo", "--noheader", "--Node", "--states=idle"]);
        (idle.stdout.lines().count() == NODES).then_some(())
    });
    nodes
}

/// Runs the script to its end. Returns its exit code and its output.
fn submit(node: &Container) -> (Option<i32>, String) {
    let submitted = node.exec(&["sbatch", "--wait", "--chdir=/shared", "--output=/job", "/train.sbatch"]);
    (submitted.code, node.exec(&["cat", "/job"]).expect_code(0).stdout)
}

#[test]
fn the_job_runs_on_nodes_that_are_fit_and_on_no_others() {
    let Some(engine) = engine() else { return };
    let Some(debian) = debian() else { return };
    let _only = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let hosts = [(); 2].map(|()| Host::with_one_hca(engine));
    // The nodes share this directory, as the nodes of a cluster share home directories.
    let shared = tempfile::tempdir().unwrap();
    let [controller, other] = cluster(engine, debian, &hosts, shared.path());

    let (code, job) = submit(&controller);
    assert_eq!(code, Some(0), "{job}");
    let count = |line: &str| job.lines().filter(|found| *found == line).count();
    for argument in [
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--master-addr=slurm1",
        "--master-port=29500",
        "train.py",
    ] {
        assert_eq!(count(&format!("argument {argument}")), 2, "{argument}: {job}");
    }
    for rank in ["0", "1"] {
        assert_eq!(count(&format!("argument --node-rank={rank}")), 1, "{job}");
    }
    assert_eq!(count("NCCL_IB_HCA==mlx5_0"), 2, "{job}");
    let children = job.lines().filter(|line| line.starts_with("parent ") && line.ends_with(" rdma-init"));
    assert_eq!(children.count(), 2, "{job}");
    assert!(job.contains("2 nodes: all agree"), "{job}");
    let proven = |line: &str| line.contains("preflight: passed") && line.contains("2 nodes, 1 rail");
    assert_eq!(job.lines().filter(|line| proven(line)).count(), 1, "{job}");

    let [_first, second] = hosts;
    let _second = second.unplug(0);
    let (code, job) = submit(&controller);
    assert_eq!(code, Some(1), "{job}");
    assert!(job.lines().any(|line| line.contains("failed") && line.contains("slurm2")), "{job}");
    assert!(!job.contains("argument torchrun"), "{job}");

    // A node whose self-test does not even start leaves no report.
    other.exec(&["chmod", "-x", "/rdma-init"]).expect_code(0);
    let (code, job) = submit(&controller);
    assert_eq!(code, Some(1), "{job}");
    assert!(job.contains(": 1 of 2 nodes: "), "{job}");
    let unread = |line: &str| line.contains("unread") && line.contains("/reports/slurm2");
    assert!(job.lines().any(unread) && !job.contains("argument torchrun"), "{job}");
}

/// Runs a step on three nodes, with this many tasks on each.
fn step(controller: &Container, tasks: &str, arguments: &[&str]) -> Ended {
    let tasks = format!("--ntasks-per-node={tasks}");
    let srun =
        ["env", "RDMA_INIT_TOKEN=a secret of all nodes", "/usr/bin/srun", "--chdir=/shared", "--nodes=3"];
    let words: Vec<&str> =
        srun.into_iter().chain([tasks.as_str()]).chain(arguments.iter().copied()).collect();
    controller.exec(&words)
}

#[test]
fn a_step_has_one_verdict_and_leaves_out_a_node_that_does_not_come() {
    let Some(engine) = engine() else { return };
    let Some(debian) = debian() else { return };
    let _only = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let hosts = [(); 3].map(|()| Host::with_one_hca(engine));
    let shared = tempfile::tempdir().unwrap();
    let [controller, other, _third] = cluster(engine, debian, &hosts, shared.path());

    for tasks in ["1", "3"] {
        let ended = step(&controller, tasks, &["/rdma-init", "preflight", "--json"]).expect_code(0);
        let verdict: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(verdict["passed"], true, "{ended:#?}");
        let names: Vec<&Value> =
            verdict["members"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["slurm1", "slurm2", "slurm3"], "{ended:#?}");
        assert_eq!(verdict["pairs"].as_array().unwrap().len(), 2, "{ended:#?}");
    }

    // Slurm's own task prolog gives each task the values of its node, except variables that the user has
    // set.
    let prolog = ["--chdir=/shared", "--nodes=3", "--task-prolog=/task-prolog.sh", "env"];
    let words: Vec<&str> = ["env", "NCCL_IB_TC=7", "/usr/bin/srun"].into_iter().chain(prolog).collect();
    let ended = controller.exec(&words).expect_code(0);
    let count = |line: &str| ended.stdout.lines().filter(|found| *found == line).count();
    assert_eq!([count("NCCL_IB_HCA==mlx5_0"), count("NCCL_IB_TC=7")], [3, 3], "{ended:#?}");

    other.exec(&["chmod", "-x", "/rdma-init"]).expect_code(0);
    let preflight = ["/rdma-init", "preflight", "--wait=60s", "--exclude-file=bad", "--exclude-format=slurm"];
    let ended = step(&controller, "1", &preflight);
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("slurm2 (node 1) did not join within 1m"), "{ended:#?}");
    let bad = fs::read_to_string(shared.path().join("bad")).unwrap();
    assert_eq!(bad, "slurm2\n");
    let exclude = format!("--exclude={}", bad.trim_end());
    controller.exec(&["/usr/bin/srun", &exclude, "--nodes=2", "hostname"]).expect_code(0);
}
