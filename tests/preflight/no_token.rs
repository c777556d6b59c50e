//! Tests a job without a token: each process that reaches a port counts as a node of the job.

use std::net::{TcpStream, UdpSocket};

use super::job::{Job, Node, TOKEN};
use super::start;
use crate::support::process::rdma_init;
use crate::support::{poll_until, skip};

/// With a list, any process could have nodes excluded. An old list is not kept, either.
#[test]
fn a_list_of_nodes_at_fault_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    let path = list.to_str().unwrap();
    let run = |mut command: std::process::Command| {
        std::fs::write(&list, "of-an-earlier-job\n").unwrap();
        command.env_remove("RDMA_INIT_TOKEN");
        Node::start(0, command).end()
    };
    let job = Job::of(2);
    let ended = run(job.command(0, &["--exclude-file", path])).expect_code(125);
    ended.expect("needs RDMA_INIT_TOKEN on all nodes");
    ended.expect("export RDMA_INIT_TOKEN=$(openssl rand -hex 16)");
    ended.expect("kubectl create secret generic rdma-init-token --from-literal=RDMA_INIT_TOKEN=");
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "");
    let options = ["--preflight-exclude-file", path, "--preflight-wait", "1s"];
    for (mode, code) in [("enforce", 121), ("warn", 0)] {
        let ended = run(start::command(&job, 0, mode, &options)).expect_code(code);
        ended.expect("needs RDMA_INIT_TOKEN on all nodes");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "", "{mode}");
    }
}

/// Returns an address of this machine that others can reach, if there is one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn node_0_listens_where_it_is_told_to_alone() {
    let Some(address) = own_address() else {
        skip("this machine has no address but the loopback's");
        return;
    };
    // Each start has its own port: after a start is killed, what listens for it may remain for a moment.
    for (token, on_loopback) in [(None, false), (Some(TOKEN), true)] {
        let job = Job::of(2);
        let meet = format!("{address}:{}", job.port);
        let mut command = rdma_init(["preflight", "--nodes", "2", "--node", "0", "--meet", &meet]);
        command.envs(token.map(|token| ("RDMA_INIT_TOKEN", token)));
        let _node = Node::start(0, command);
        let reach = |host: std::net::IpAddr| TcpStream::connect((host, job.port));
        poll_until("node 0 listens", || reach(address).ok());
        assert_eq!(reach([127, 0, 0, 1].into()).is_ok(), on_loopback, "{token:?}");
    }
}
