//! Tests what the script submits with Arena, and what its Pods then run.

use std::process::{Command, Output};

use super::started::{arguments, is_child_of_pid_1, stand_ins};
use crate::support::docker::host::Host;
use crate::support::docker::host::OWN_SLOT;
use crate::support::executable::executable;
use crate::support::repository;

/// The flags that `arena submit pytorch` knows. The script may use no others.
const FLAGS: &[&str] = &[
    "annotation",
    "clean-task-policy",
    "cpu",
    "data",
    "data-dir",
    "device",
    "env",
    "gang",
    "gpus",
    "image",
    "image-pull-policy",
    "image-pull-secret",
    "label",
    "memory",
    "name",
    "namespace",
    "nproc-per-node",
    "priority",
    "rdma",
    "retry",
    "running-timeout",
    "scheduler",
    "selector",
    "share-memory",
    "shell",
    "toleration",
    "ttl-after-finished",
    "working-dir",
    "workers",
];

/// Runs the script with a stand-in for Arena that prints each of its arguments on a line.
fn submit() -> Output {
    let folder = tempfile::tempdir().unwrap();
    let arena = folder.path().join("arena");
    executable(&arena, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let mut script = Command::new(repository("examples/ack-arena/submit.sh"));
    script.env_clear().env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    script.output().unwrap()
}

#[test]
fn each_pod_starts_torchrun_with_the_variables() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let output = submit();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<_> = said.lines().collect();
    let (&command, given) = said.split_last().unwrap();
    assert_eq!(given[..2], ["submit", "pytorch"]);
    let mut flags = given[2..].iter().map(|word| word.strip_prefix("--").unwrap().split_once('=').unwrap());
    assert!(flags.all(|(flag, value)| FLAGS.contains(&flag) && !value.is_empty()), "{given:?}");
    assert!(given.contains(&"--device=aliyun/erdma=1"), "{given:?}");

    // As in Arena's chart, a shell runs the command, and the operator sets these variables.
    let mut options: Vec<_> = stand_ins().chain(["--entrypoint", "sh"].map(str::to_owned)).collect();
    let operator = ["MASTER_ADDR=train-master-0", "MASTER_PORT=23456", "WORLD_SIZE=2", "RANK=1"];
    let ours = given.iter().filter_map(|word| word.strip_prefix("--env="));
    for variable in operator.into_iter().chain(ours) {
        options.extend(["--env".to_owned(), variable.to_owned()]);
    }
    let options = options.iter().map(String::as_str).collect::<Vec<_>>();
    let ended = engine.run(host.options(&options), &["-c", command]).expect_code(0);
    let torchrun = "torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=train-master-0 \
                    --master-port=23456 train.py";
    assert_eq!(arguments(&ended).join(" "), torchrun);
    is_child_of_pid_1(&ended);
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT));
    // ACK publishes this value, which the profile named in the example fills in.
    assert_eq!(ended.variable("NCCL_ALGO"), Some("Ring"), "{ended:#?}");
}
