//! Runs tests/examples/setup.sh.

use std::process::{Command, Stdio};

use crate::support::{repository, skip};

/// Returns the names and values of the lines `NAME=VALUE` that the script prints. `None` skips the test.
pub fn prepared(what: &str) -> Option<Vec<(String, String)>> {
    let setup = repository("tests/examples/setup.sh");
    let setup = Command::new(setup).arg(what).stderr(Stdio::inherit()).output().unwrap();
    if !setup.status.success() {
        skip("tests/examples/setup.sh cannot prepare this (see above)");
        return None;
    }
    let said = String::from_utf8(setup.stdout).unwrap();
    let pairs = said.lines().filter_map(|line| line.split_once('='));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[track_caller]
pub fn value(of: &[(String, String)], name: &str) -> String {
    of.iter().find(|(found, _)| found == name).expect("the script says it").1.clone()
}
