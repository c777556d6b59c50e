//! Tests which process listens, where, and how long: the table in SECURITY.md.

use std::collections::BTreeSet;
use std::path::Path;

use super::job::{Job, Node, TOKEN};
use crate::support::namespace::can_be_made;
use crate::support::nodes::{Nodes, address};
use crate::support::process::surroundings;
use crate::support::running::{descendants, descriptors, status};
use crate::support::{binary, poll_until, status_field};

/// The wildcard address.
const ALL: &str = "00000000000000000000000000000000";

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Returns the addresses and ports of listening sockets in such tables, as the kernel writes them.
///
/// The kernel counts the entries that a reader has seen, so it gives one of them twice if another socket
/// begins to listen between two reads.
fn listening(tables: &str) -> BTreeSet<(String, u16)> {
    let of_socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        let is_listening = fields.nth(1)? == "0A";
        is_listening.then(|| (address.to_owned(), u16::from_str_radix(port, 16).unwrap()))
    };
    tables.lines().filter_map(of_socket).collect()
}

/// Returns the listening addresses and ports of a node.
fn listening_on(nodes: &Nodes, node: usize) -> BTreeSet<(String, u16)> {
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
            assert!(listening(&ended.stdout).is_empty(), "{ended:#?}");
        }
    }
}

/// The capabilities that a process with a device may keep: CAP_DAC_OVERRIDE and CAP_IPC_LOCK.
const OF_DEVICES: u64 = 1 << 1 | 1 << 14;

/// Returns the processes of a node that have a listening socket.
fn listeners(nodes: &Nodes, index: usize, node: &Node) -> Vec<i32> {
    let output = nodes.on(index, Path::new("cat")).args(TABLES).output().unwrap();
    let tables = String::from_utf8(output.stdout).unwrap();
    let sockets: Vec<String> = tables
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let all = [vec![node.pid()], descendants(node.pid())].concat();
    let listens = |pid: &i32| descriptors(*pid).iter().any(|(_, what)| sockets.contains(what));
    all.into_iter().filter(listens).collect()
}

/// The process that becomes the command keeps its rights, so it must not read what the network sends.
#[test]
fn what_listens_in_a_preflight_has_few_rights_and_the_command_loses_none() {
    if !can_be_made() {
        return;
    }
    let (nodes, job) = (Nodes::new(2, 2), Job::of(2));
    let start = |index: u32| {
        let mut command = nodes.on(index as usize, &binary());
        let (meet, node) = (format!("{}:{}", address(0, 0), job.port), index.to_string());
        command.args(["--preflight", "enforce", "--preflight-nodes", "2", "--preflight-node", &node]);
        command.args(["--preflight-meet", &meet, "--", "cat", "/proc/self/status"]);
        surroundings(&mut command).env("RDMA_INIT_TOKEN", TOKEN).env("NCCL_SOCKET_IFNAME", "=eth1");
        Node::start(index, command)
    };
    let fields = ["CapPrm", "CapEff", "CapBnd", "Seccomp", "NoNewPrivs"];
    let of = |status: &str| fields.map(|field| status_field(status, field).unwrap().to_owned());
    let has_few_rights = |pid: i32| {
        let [permitted, effective, _, seccomp, no_new] = of(&status(pid));
        for set in [permitted, effective] {
            let set = u64::from_str_radix(&set, 16).unwrap();
            assert_eq!(set & !OF_DEVICES, 0, "{pid} has the capabilities {set:x}");
        }
        assert_eq!((seccomp.as_str(), no_new.as_str()), ("2", "1"), "{pid}");
    };
    let all_have_few_rights = |node: &Node, index: usize, count: usize| {
        let listening = poll_until("the node listens", || {
            Some(listeners(&nodes, index, node)).filter(|listening| listening.len() >= count)
        });
        assert!(!listening.contains(&node.pid()), "the process that becomes the command listens");
        listening.into_iter().for_each(has_few_rights);
    };
    // Each waits for the other one while it listens; node 0's part is a process of its own.
    all_have_few_rights(&start(0), 0, 2);
    let one = start(1);
    all_have_few_rights(&one, 1, 1);
    let own = of(&status(one.pid()));
    assert_ne!(own[1], "0000000000000000", "this test needs root");
    // Both meet, and the command has what the process had.
    for ended in [start(0), one].map(|node| node.end().expect_code(0)) {
        assert_eq!(of(&ended.stdout), own, "{ended:#?}");
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
