//! Handles files that are generated from the code: an outdated file fails the test, and `UPDATE_DOCS=1`
//! writes it again.

use std::fs;

use crate::support::repository;

pub fn check(path: &str, made: &str) {
    let file = repository(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, made).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == made, "{path} is stale: run UPDATE_DOCS=1 cargo test --test suite docs::");
}
