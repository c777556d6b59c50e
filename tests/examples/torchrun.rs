//! Runs the script that starts torchrun on two nodes. It uses the real `docker run`, without the options
//! that need hardware that this machine does not have.

use std::fs;
use std::process::{Command, Output};

use super::images::image;
use crate::support::docker::engine;
use crate::support::executable::executable;
use crate::support::repository;

/// Passes everything else to docker, so that this test rejects what Docker rejects. It drops the GPUs, the
/// devices, and the container names, which this machine cannot provide, and lowers the limit, which an
/// engine in a sandbox cannot raise.
const DOCKER: &str = r#"#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
    case $1 in
        --gpus | --device | --name) shift 2; n=$((n - 2)) ;;
        memlock=-1:-1) set -- "$@" memlock=65536:65536; shift; n=$((n - 1)) ;;
        *) set -- "$@" "$1"; shift; n=$((n - 1)) ;;
    esac
done
exec "$DOCKER" "$@"
"#;

fn run(image: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let docker = folder.path().join("docker");
    executable(&docker, DOCKER);
    let mut command = engine().unwrap().client();
    let real =
        ["/usr/bin/docker", "/usr/local/bin/docker"].into_iter().find(|path| fs::exists(path).unwrap());
    let mut script = Command::new(repository("examples/torchrun/run.sh"));
    script.envs(command.env("IMAGE", image).get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display())).env("DOCKER", real.unwrap());
    script.args(arguments).output().unwrap()
}

#[test]
fn each_node_starts_its_part() {
    let Some(engine) = engine() else { return };
    let Some(image) = image(engine, "examples/torchrun/Dockerfile") else { return };
    for rank in ["0", "1"] {
        let output = run(&image, &[rank, "node0", "train.py", "--epochs", "3"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let arguments: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("argument ")).collect();
        let expected = format!(
            "torchrun --nnodes 2 --nproc-per-node 8 --node-rank {rank} --master-addr node0 --master-port 29500 \
             train.py --epochs 3"
        );
        assert_eq!(arguments.join(" "), expected);
        assert!(said.contains("parent 1 rdma-init"), "{said}");
    }
}

#[test]
fn without_arguments_it_says_how_it_is_used() {
    let Some(_) = engine() else { return };
    let output = run("none", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: run.sh RANK"), "{output:?}");
}
