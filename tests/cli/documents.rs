//! Tests that documents of earlier releases can still be replayed. 0.1.0 wrote the files, and they never
//! change; only the expected variables follow decisions that were changed on purpose.

use std::fs;

use super::run::{Ran, rdma_init, run};
use crate::support::repository;

const HOSTS: [&str; 5] = ["acs-type1", "cce-roce", "erdma", "gb200", "infiniband"];

fn path(name: &str) -> String {
    repository(format!("tests/cli/documents-0.1.0/{name}")).to_str().unwrap().to_owned()
}

fn done(arguments: &[&str]) -> Ran {
    run(rdma_init(arguments)).expect_code(0)
}

#[test]
fn facts_of_0_1_0_still_replay() {
    for host in HOSTS {
        let facts = path(&format!("{host}.json"));
        assert!(fs::read_to_string(&facts).unwrap().contains("\"program\": \"0.1.0\""), "{host}");
        let expected = fs::read_to_string(path(&format!("{host}.env"))).unwrap();
        assert_eq!(done(&["env", "--facts", &facts]).text(), expected, "{host}");
        done(&["plan", "--facts", &facts]);
    }
}

#[test]
fn a_self_test_of_0_1_0_is_still_compared() {
    let report = path("self-test.json");
    let compared = done(&["compare", "--json", &report, &report]);
    assert!(compared.text().contains("\"value\": \"mlx5_1..mlx5_8\""), "{compared:#?}");
}
