//! Runs torchrun on three nodes that are network namespaces, each behind a preflight. The arguments of
//! torchrun define the members of the job.

use std::process::{Child, Command, Output, Stdio};

use super::torchrun::PROGRAMS;
use crate::support::nodes::{Nodes, address};
use crate::support::process::surroundings;
use crate::support::{binary, repository};

const NODES: usize = 3;

/// How torchrun learns the address of the rendezvous.
#[derive(Clone, Copy)]
enum Meeting {
    Master,
    Rendezvous,
}

/// Makes the command of a node. A rank waits 120 seconds for the others.
fn command(nodes: &Nodes, node: usize, meeting: Meeting, wait: &str) -> Command {
    let zero = address(0, 0);
    let torchrun = format!("{}/torchrun", *PROGRAMS);
    let script = repository("tests/launchers/gloo.py").display().to_string();
    let (count, index, local) = (NODES.to_string(), node.to_string(), address(node, 0));
    let endpoint = format!("{zero}:29500");
    let is_host = format!("is_host={}", u8::from(node == 0));
    let place: &[&str] = match meeting {
        Meeting::Master => &["--master-addr", &zero, "--master-port", "29500"],
        Meeting::Rendezvous => {
            &["--rdzv-backend=c10d", "--rdzv-id=run7", "--rdzv-endpoint", &endpoint, "--rdzv-conf", &is_host]
        }
    };
    let mut command = nodes.on(node, &binary());
    surroundings(&mut command).env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", *PROGRAMS));
    command.env("RDMA_INIT_TOKEN", "a secret of all nodes");
    command.args(["--preflight", "enforce", "--preflight-wait", wait, "--set", "GLOO_SOCKET_IFNAME=eth0"]);
    command.args(["--", &torchrun, "--nnodes", &count, "--node-rank", &index, "--nproc-per-node", "1"]);
    command.args(["--local-addr", &local]).args(place).args([&script, "120"]);
    command
}

fn run(nodes: &Nodes, meeting: Meeting, wait: &str) -> Vec<Output> {
    let start = |node| {
        let mut command = command(nodes, node, meeting, wait);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<Child> = (0..NODES).map(start).collect();
    started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn torchrun_starts_on_all_nodes_once_they_have_proven_their_network() {
    let Some(nodes) = Nodes::if_possible(NODES, 1) else { return };
    for meeting in [Meeting::Master, Meeting::Rendezvous] {
        for output in run(&nodes, meeting, "60s") {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert!(said.contains("preflight passed: 3 nodes, 1 rail"), "{said}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("sum 6\n"), "{output:?}");
        }
    }
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn torchrun_starts_nowhere_where_a_node_is_cut_off() {
    let Some(nodes) = Nodes::if_possible(NODES, 1) else { return };
    nodes.cut_off(2, 0);
    for (node, output) in run(&nodes, Meeting::Master, "8s").into_iter().enumerate() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(121), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let why =
            if node == 2 { "this node did not reach node 0 at " } else { "node 2 did not join within 8s" };
        let is_refused = |line: &str| line.contains("preflight = \"enforce\"") && line.contains(why);
        assert!(said.lines().any(is_refused), "{node}: {said}");
    }
}
