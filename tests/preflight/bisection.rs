//! Tests the round in which all nodes move data at the same time.

use serde_json::Value;

use super::job::{Job, Node};

/// Returns the document of a job of five nodes with these options.
fn document(options: &[&str]) -> Value {
    let job = Job::of(5);
    let zero = job.start(0, &[&["--json"], options].concat());
    let others: Vec<Node> = (1..5).map(|node| job.start(node, options)).collect();
    let document = serde_json::from_str(&zero.end().expect_code(0).stdout).unwrap();
    others.into_iter().for_each(|node| drop(node.end().expect_code(0)));
    document
}

#[test]
fn its_sum_and_its_least_are_in_the_document_and_it_can_be_left_out() {
    let with = document(&[]);
    let bisection = &with["bisection"];
    assert_eq!(bisection["pairs"], 2, "one of five nodes rests: {bisection}");
    // Both are rounded to hundredths.
    let [least, sum] = [&bisection["least"]["gbps"], &bisection["gbps"]].map(|rate| rate.as_f64().unwrap());
    assert!(least > 0.0 && sum + 0.005 >= 4.0 * (least - 0.005), "{bisection}");
    assert!(bisection["share"].is_null(), "an interface has no such rate: {bisection}");
    // On a busy machine, pairs that seem slow are measured again.
    let rounds = with["rounds"].as_u64().unwrap() + with["second_tries"].as_u64().unwrap();
    let pairs = with["pairs"].as_array().unwrap();
    assert!(pairs.iter().all(|pair| pair["round"].as_u64().unwrap() < rounds), "{with}");

    assert!(document(&["--bisection=false"])["bisection"].is_null());
}
