//! Tests which process listens, where, and how long: the table in SECURITY.md.

use std::path::Path;

use super::job::{Job, Node, TOKEN};
use crate::support::namespace::can_be_made;
use crate::support::nodes::{Nodes, address};
use crate::support::process::surroundings;
use crate::support::{binary, poll_until};

/// The wildcard address.
const ALL: &str = "00000000000000000000000000000000";

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Returns the addresses and ports of listening sockets in such tables, as the kernel writes them.
fn listening(tables: &str) -> Vec<(String, u16)> {
    let of_socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        let is_listening = fields.nth(1)? == "0A";
        is_listening.then(|| (address.to_owned(), u16::from_str_radix(port, 16).unwrap()))
    };
    tables.lines().filter_map(of_socket).collect()
}

/// Returns the listening addresses and ports of a node.
fn listening_on(nodes: &Nodes, node: usize) -> Vec<(String, u16)> {
    let output = nodes.on(node, Path::new("cat")).args(TABLES).output().unwrap();
    listening(&String::from_utf8(output.stdout).unwrap())
}

fn start(nodes: &Nodes, job: &Job, node: u32, has_token: bool) -> Node {
    let meet = format!("{}:{}", address(0, 0), job.port);
    let index = node.to_string();
    let mut command = nodes.on(node as usize, &binary());
    command.args(["--preflight", "enforce", "--preflight-nodes", "2", "--preflight-node", &index]);
    command.args(["--preflight-meet", &meet, "--", "cat"]).args(TABLES);
    surroundings(&mut command).env("NCCL_SOCKET_IFNAME", "=eth1");
    if has_token {
        command.env("RDMA_INIT_TOKEN", TOKEN);
    }
    Node::start(node, command)
}

#[test]
fn the_preflight_listens_where_the_table_says_and_on_nothing_when_the_command_starts() {
    if !can_be_made() {
        return;
    }
    for has_token in [true, false] {
        let (nodes, job) = (Nodes::new(2, 2), Job::of(2));
        let zero = start(&nodes, &job, 0, has_token);
        // Node 0's own membership listens on a port that the kernel chooses, at all addresses.
        let of_zero = poll_until("node 0 and its part listen", || {
            Some(listening_on(&nodes, 0)).filter(|listening| listening.len() >= 2)
        });
        let at = |port: &dyn Fn(u16) -> bool| {
            let found = of_zero.iter().filter(|(_, of)| port(*of)).map(|(address, _)| address.as_str());
            found.collect::<Vec<_>>()
        };
        assert_eq!(at(&|port| port != job.port), [ALL], "{of_zero:?}");
        // Without a token, node 0 listens only at the address that was named: 10.78.0.1.
        let named = if has_token { ALL } else { "01004E0A" };
        assert_eq!(at(&|port| port == job.port), [named], "{of_zero:?}");
        let one = start(&nodes, &job, 1, has_token);
        let ended = [zero, one].map(|node| node.end().expect_code(0));
        for ended in ended {
            assert!(ended.stdout.contains("local_address"), "{ended:#?}");
            assert_eq!(listening(&ended.stdout), [], "{ended:#?}");
        }
    }
}

/// Over TCP, a pair has one more port for each interface, only at the address of that interface: 10.78.1.2.
#[test]
fn a_pair_over_tcp_listens_on_the_address_of_the_interface_alone() {
    let Some(nodes) = Nodes::if_possible(2, 2) else { return };
    let job = Job::of(2);
    // Each end waits for the other one's connection, so the port is open for some seconds.
    nodes.cut_off(1, 1);
    let all = [0, 1].map(|node| start(&nodes, &job, node, true));
    let of_pair = poll_until("a pair listens", || {
        let mut addresses: Vec<String> =
            listening_on(&nodes, 1).into_iter().map(|(address, _)| address).collect();
        addresses.retain(|address| address != ALL);
        (!addresses.is_empty()).then_some(addresses)
    });
    assert_eq!(of_pair, ["02014E0A"]);
    drop(all);
}
