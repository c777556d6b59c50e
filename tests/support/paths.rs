//! Where the program under test and the files of the repository are.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the path of the program under test: the binary that cargo built with the tests, or the one that
/// RDMA_INIT_TEST_BINARY names.
pub fn binary() -> PathBuf {
    match env::var_os("RDMA_INIT_TEST_BINARY") {
        Some(path) => path.into(),
        None => env!("CARGO_BIN_EXE_rdma-init").into(),
    }
}

/// Returns whether this run also proves what takes long and seldom breaks.
pub fn is_all_wanted() -> bool {
    env::var_os("RDMA_INIT_TEST_ALL").is_some_and(|value| !value.is_empty())
}

/// Returns the path of a file of the repository.
pub fn repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
