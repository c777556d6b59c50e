//! Implements `rdma-init compare`: reports which of many nodes differ from the others.

use std::io::Write;
use std::path::PathBuf;

use crate::compare::collect::collect;
use crate::json;
use crate::report::compare::{Document, write};

/// The exit code if a node differs, failed a check, or has no readable report.
const DIFFER: i32 = 1;

/// Compares the reports, and returns the exit code.
pub(super) fn run(
    out: &mut impl Write,
    files: &[PathBuf],
    expected: Option<u32>,
    json: bool,
) -> anyhow::Result<i32> {
    let collected = collect(files);
    let comparison = collected.nodes.compare();
    let expected = expected.map(|nodes| nodes as usize);
    let document = Document::new(&comparison, &collected.unread, expected);
    if json {
        json::write(out, &document)?;
    } else {
        write(out, &document)?;
    }
    Ok(if document.passed { 0 } else { DIFFER })
}
