//! Jobs of one node, certainly or as far as is known: their data need not go over RDMA.

use super::play::{HOUR, MINUTE, Series, UNKNOWN};
use crate::support::executable::executable;
use crate::support::rails::Rails;

/// Nothing moves in half an hour of a job with these variables and this command.
#[track_caller]
fn rests(environment: &[(&'static str, &'static str)], name: &str, arguments: &[&str]) {
    let series = Series::new(Rails::infiniband(8), HOUR).environment(environment);
    series.command(name, arguments).play(|_, _| {}).expect_notes();
}

#[test]
fn one_node_by_a_variable_is_at_most_noted() {
    rests(&[("NNODES", "1"), ("NODE_RANK", "0")], "python3", &["train.py"]);
    rests(&[("NNODES", "1")], "python3", &["train.py"]);
}

#[test]
fn one_node_of_slurm_is_at_most_noted() {
    let step = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_NODELIST", "a1"),
        ("SLURM_NNODES", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_JOB_NUM_NODES", "1"),
    ];
    rests(&step, "python3", &["train.py"]);
    rests(&[("SLURM_JOB_ID", "7"), ("SLURM_NNODES", "1")], "python3", &["train.py"]);
}

#[test]
fn a_pod_of_vllm_is_at_most_noted() {
    rests(UNKNOWN, "vllm", &["serve", "model", "--tensor-parallel-size", "8"]);
}

#[test]
fn plain_torchrun_is_at_most_noted() {
    rests(UNKNOWN, "torchrun", &["--nproc-per-node=8", "train.py"]);
    rests(UNKNOWN, "torchrun", &["--nnodes=1", "--nproc-per-node=8", "train.py"]);
    rests(UNKNOWN, "torchrun", &["--standalone", "--nproc-per-node=8", "train.py"]);
}

#[test]
fn plain_accelerate_is_at_most_noted() {
    rests(UNKNOWN, "accelerate", &["launch", "--num_processes", "8", "train.py"]);
}

#[test]
fn plain_deepspeed_is_at_most_noted() {
    rests(UNKNOWN, "deepspeed", &["--num_gpus", "8", "train.py"]);
}

#[test]
fn plain_mpirun_is_at_most_noted() {
    rests(UNKNOWN, "mpirun", &["-np", "8", "./train"]);
}

#[test]
fn plain_python_is_at_most_noted() {
    rests(UNKNOWN, "python3", &["train.py"]);
}

/// The command of `on-finding` gets the link that is down, and not that nothing moves.
#[test]
fn a_note_does_not_start_the_command_of_findings() {
    let place = tempfile::tempdir().unwrap();
    let (script, file) = (place.path().join("page"), place.path().join("paged"));
    executable(&script, &format!("#!/bin/sh\ncat >>{}\n", file.display()));
    let series =
        Series::new(Rails::infiniband(8), HOUR).environment(UNKNOWN).command("python3", &["train.py"]);
    let lines = series.options(&["--on-finding", script.to_str().unwrap()]).play(|rails, second| {
        if second == 40 * MINUTE {
            rails.down(0);
        }
    });
    let paged = std::fs::read_to_string(&file).unwrap_or_default();
    let is_of_link = |line: &str| line.starts_with("{\"id\":\"link-down\",");
    let is_right = paged.lines().count() == 1 && paged.lines().all(is_of_link);
    assert!(!lines.is_played || is_right, "the command got {paged}, after {lines:?}");
}

/// With several nodes, it is a fault.
#[test]
fn a_job_of_two_nodes_whose_data_never_moves_has_a_warning() {
    let nodes = [
        &[("NNODES", "2"), ("NODE_RANK", "0")][..],
        &[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_NODELIST", "a[1-2]"),
            ("SLURM_NNODES", "2"),
            ("SLURM_NODEID", "0"),
        ],
        &[("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "192.0.2.2")],
    ];
    for environment in nodes {
        let series = Series::new(Rails::infiniband(8), HOUR).environment(environment);
        let lines = series.command("torchrun", &["train.py"]).play(|_, _| {});
        let warnings = lines.expect_warning("no-traffic");
        assert!(!lines.is_played || warnings.len() == 1, "{lines:?}");
    }
}
