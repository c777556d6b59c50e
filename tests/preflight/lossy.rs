//! Tests nodes that lose packets, and rails whose data takes another path.

use serde_json::{Value, json};

use super::faults::of_kind;
use super::interfaces::{accuses, preflight};
use super::job::Ended;
use crate::support::namespace::has_nft;
use crate::support::nodes::{Nodes, address};

/// Returns the document of a preflight of four nodes, one of which drops the packets that match.
fn document(matching: &str, node: usize) -> Option<(Value, Vec<Ended>)> {
    let nodes = Nodes::if_possible(4, 2).filter(|_| has_nft())?;
    // Otherwise, one that is lost is up to 64 KiB, and few are sent.
    (0..4).for_each(|node| nodes.ip(node, "link set eth1 gso_max_segs 1"));
    nodes.drop_from(node, 1, matching);
    let ended = preflight(&nodes, 4, &["--json"]);
    Some((serde_json::from_str(&ended[0].stdout).unwrap(), ended))
}

/// Expects that what the document reports about the rails of those four nodes is about where packets are lost, and that
/// there is such a report. Whether the job passes is random: so many packets are lost that a pair may exceed its time in
/// the first or in the second try.
fn expect_alone(document: &Value, is_about_it: impl Fn(&Value) -> bool) {
    let told = [items(document, "slow"), items(document, "faults")].concat();
    assert!(told.iter().any(&is_about_it), "{document:#}");
    let other = told.iter().find(|told| !is_about_it(told) && !is_of_a_busy_machine(told));
    assert!(other.is_none(), "{other:#?}");
}

/// On a machine that has other work, a sound link may be slow, or fail once and then pass.
fn is_of_a_busy_machine(told: &Value) -> bool {
    told["kind"] == "unsteady" || told["kind"] == "link" && told["figure"] != "resent_percent"
}

fn items<'a>(document: &'a Value, of: &str) -> &'a [Value] {
    document[of].as_array().unwrap()
}

/// Expects that a preflight of four nodes passes, names the node that loses packets, and calls no other
/// node slow.
fn names_alone(matching: &str, node: usize, kind: &str, wanted: &Value) {
    let Some((document, ended)) = document(matching, node) else { return };
    let mut slow = items(&document, "slow").to_vec();
    slow.retain(|slow| !is_of_a_busy_machine(slow));
    assert!(slow.iter().all(|slow| slow["kind"] == kind && slow["nodes"] == *wanted), "{slow:#?}");
    let resent = slow.iter().find(|slow| slow["figure"] == "resent_percent");
    let again = resent.unwrap_or_else(|| panic!("it loses packets: {document:#}"))["again"].as_f64();
    assert!(again.unwrap() > 0.3, "{slow:#?}");
    assert!(of_kind(&document, "faults").is_empty(), "{:#}", document["faults"]);
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}

#[test]
fn a_node_that_loses_packets_is_named_alone() {
    names_alone("numgen inc mod 50 < 1", 2, "node", &json!([2]));
}

/// Whether the job passes is random, but the verdict never names another node.
#[test]
fn a_node_that_loses_every_tenth_packet_is_part_of_all_that_is_told() {
    let Some((document, _)) = document("numgen random mod 100 < 10", 0) else { return };
    expect_alone(&document, |told| told["nodes"].as_array().unwrap().contains(&json!(0)));
}

#[test]
fn a_link_that_loses_packets_is_named_and_no_node() {
    let matching = format!("ip daddr {} numgen inc mod 50 < 1", address(0, 1));
    names_alone(&matching, 2, "link", &json!([0, 2]));
}

#[test]
fn a_link_that_loses_every_tenth_packet_is_told_and_no_node() {
    let matching = format!("ip daddr {} numgen random mod 100 < 10", address(0, 1));
    let Some((document, _)) = document(&matching, 2) else { return };
    expect_alone(&document, |told| told["nodes"] == json!([0, 2]));
    assert_eq!(document["exclude"], json!([]));
}

#[test]
fn packets_from_a_size_on_that_are_lost_are_told_as_such() {
    let Some(nodes) = Nodes::if_possible(3, 2).filter(|_| has_nft()) else { return };
    nodes.drop_from(1, 1, "meta length > 1200");
    accuses(&nodes, "node1 eth1", "messages of 1000 bytes reach node");
}

#[test]
fn data_that_leaves_by_another_interface_is_a_warning() {
    let Some(nodes) = Nodes::if_possible(3, 2) else { return };
    nodes.ip(1, "route del 10.78.1.0/24 dev eth1");
    nodes.ip(1, &format!("route add 10.78.1.0/24 dev eth0 src {}", address(1, 1)));
    let ended = preflight(&nodes, 3, &[]);
    ended[0].expect("data leaves through another interface than the rail's own");
    ended[0].expect("): node1 eth1\n");
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}
