//! Tests a node that takes longer to answer than the others.

use std::time::Duration;

use serde_json::{Value, json};

use super::faults::{document, of_kind, run};
use super::job::Job;
use crate::support::nodes::Nodes;

/// Longer than a busy machine delays a healthy pair in all of its tries.
const LATE: Duration = Duration::from_millis(30);

#[test]
fn a_node_whose_answers_are_late_is_named_alone() {
    let Some(nodes) = Nodes::if_possible(8, 2) else { return };
    let _cable = nodes.delay(5, 1, LATE);
    let ended = run(&nodes, &Job::of(8), 1, &[]);
    let document = document(&ended[0]).unwrap();
    let slow = document["slow"].as_array().unwrap();
    let late = |slow: &&Value| slow["figure"] == "latency_us" && slow["kind"] != "link";
    let late: Vec<&Value> = slow.iter().filter(late).collect();
    let [late] = late[..] else { panic!("{slow:#?}") };
    assert_eq!((&late["kind"], &late["nodes"]), (&json!("node"), &json!([5])));
    assert!(of_kind(&document, "faults").is_empty(), "{:#}", document["faults"]);
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}
