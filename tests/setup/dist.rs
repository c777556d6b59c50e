//! Tests the parts of a release that need no build.

use std::process::Command;

use crate::support::repository;

/// What an object of a C library may be under is read from the distribution's files.
#[test]
fn an_object_without_a_free_license_makes_no_release() {
    let output = Command::new("python3").arg(repository("tests/dist/inventory_test.py")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
