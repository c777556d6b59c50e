//! What several suites share.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

/// The program under test: the release binary that was built along with the
/// tests, or another one.
pub fn binary() -> PathBuf {
    match std::env::var_os("RDMA_INIT_TEST_BINARY") {
        Some(path) => path.into(),
        None => env!("CARGO_BIN_EXE_rdma-init").into(),
    }
}

/// A file of the repository.
pub fn repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Says that a test cannot run here, and why. In CI nothing may be skipped:
/// there it fails instead.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped in CI: {why}");
    eprintln!("SKIPPED: {why}");
}
