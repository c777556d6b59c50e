//! Tests two nodes with the same index.

use serde_json::json;

use super::faults::{document, of_kind};
use super::job::{Job, Node, has_names};

/// In this case, another node is missing, and its line says why: the nodes were numbered wrongly.
#[test]
fn an_index_that_two_nodes_have_stands_beside_the_node_that_is_missing() {
    if !has_names() {
        return;
    }
    let job = Job::of(3);
    let zero = job.start(0, &["--wait", "60s", "--json", "--log-level", "debug"]);
    let first = job.start(1, &[]);
    zero.wait_for("node1 has joined");
    let second = Node::start(2, job.command(1, &[]));
    second.end().expect_code(1).expect("two nodes have the index 1: node1 at 127.0.0.1:");
    let said = "two nodes joined with the index 1: node1 at 127.0.0.1:";
    first.end().expect_code(1).expect(said);
    let zero = zero.end().expect_code(1);
    let document = document(&zero).unwrap();
    let wanted = [json!(["contested-index", [1]]), json!(["never-came", [2]])];
    assert_eq!(of_kind(&document, "faults"), wanted);
    let [first, second] = [0, 1].map(|fault| document["faults"][fault]["message"].as_str().unwrap());
    assert!(first.contains(said) && first.contains("node2 at 127.0.0.1:"), "{first}");
    assert!(second.ends_with(": it may be one of the two nodes that joined with the index 1"), "{second}");
    assert_eq!(document["exclude"], json!([]));
}
