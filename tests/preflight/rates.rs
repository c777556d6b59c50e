//! Tests rails that are slower than the user wants.

use std::path::Path;
use std::process::Command;

use super::faults::{Case, SOUND, come_out};
use crate::support::namespace::can_be_made;
use crate::support::nodes::{Nodes, address};
use crate::support::skip;

/// Limits the rate at which a node sends on an interface.
fn slow_down(nodes: &Nodes, node: usize, interface: usize) {
    let mut tc = nodes.on(node, Path::new("tc"));
    let interface = format!("eth{interface}");
    tc.args([
        "qdisc", "replace", "dev", &interface, "root", "tbf", "rate", "10mbit", "burst", "32kb", "latency",
        "100ms",
    ]);
    assert!(tc.status().unwrap().success());
}

/// Returns whether tc(8) can slow down an interface here, and prints a message if it cannot.
fn has_tbf() -> bool {
    let tbf =
        ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "32kb", "latency", "1s"];
    let is_there = Command::new("unshare")
        .args(["--net", "--"])
        .args(tbf)
        .output()
        .is_ok_and(|made| made.status.success());
    if !is_there {
        skip("tc(8) is not installed, or this kernel does not know tbf");
    }
    is_there
}

/// Limits the rate at which a node sends to one other node on an interface.
fn slow_down_to(nodes: &Nodes, node: usize, interface: usize, other: usize) {
    let (device, other) = (format!("eth{interface}"), address(other, interface));
    for line in one_way(&device, &other) {
        let mut tc = nodes.on(node, Path::new("tc"));
        assert!(tc.args(line.split(' ')).status().unwrap().success(), "{line}");
    }
}

fn one_way(device: &str, other: &str) -> [String; 3] {
    [
        format!("qdisc replace dev {device} root handle 1: htb r2q 1000"),
        format!("class add dev {device} parent 1: classid 1:1 htb rate 10mbit"),
        format!("filter add dev {device} parent 1: protocol ip u32 match ip dst {other} flowid 1:1"),
    ]
}

/// Returns whether tc(8) can slow down the path to one address here, and prints a message if it cannot.
fn has_htb() -> bool {
    let script = one_way("lo", "10.78.1.1").map(|line| format!("tc {line}")).join(" && ");
    let made = Command::new("unshare").args(["--net", "--", "sh", "-c", &script]).output();
    let is_there = made.is_ok_and(|made| made.status.success());
    if !is_there {
        skip("tc(8) is not installed, or this kernel does not know htb or u32");
    }
    is_there
}

/// No healthy rail here is this slow, however busy the machine is.
const LEAST: &[&str] = &["--min-bandwidth", "0.02"];

#[test]
fn a_node_with_a_slowed_rail_is_named_alone() {
    if !can_be_made() || !has_tbf() {
        return;
    }
    come_out(&[
        Case {
            name: "a node",
            break_it: |nodes, _| slow_down(nodes, 2, 1),
            options: LEAST,
            too_slow: &[("node", &[2])],
            ..SOUND
        },
        Case {
            name: "one of two rails of node 0",
            rails: 2,
            break_it: |nodes, _| slow_down(nodes, 0, 2),
            options: LEAST,
            too_slow: &[("node", &[0])],
            ..SOUND
        },
        Case {
            name: "two nodes of four",
            break_it: |nodes, _| [1, 2].into_iter().for_each(|node| slow_down(nodes, node, 1)),
            options: LEAST,
            too_slow: &[("node", &[1]), ("node", &[2])],
            ..SOUND
        },
        Case {
            name: "one of two rails, on all nodes",
            rails: 2,
            break_it: |nodes, _| (0..4).for_each(|node| slow_down(nodes, node, 2)),
            options: LEAST,
            too_slow: &[("rail", &[])],
            ..SOUND
        },
    ]);
}

#[test]
fn a_link_that_is_slowed_down_is_named_and_no_node() {
    if !can_be_made() || !has_htb() {
        return;
    }
    come_out(&[Case {
        name: "a link",
        break_it: |nodes, _| slow_down_to(nodes, 2, 1, 0),
        options: LEAST,
        too_slow: &[("link", &[0, 2])],
        ..SOUND
    }]);
}
