//! `rdma-init compare`: the odd ones out among the reports of many nodes.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;

use crate::json;
use crate::report::compare::{Document, sentence, write};
use crate::self_test::collect::{Unread, collect};

/// Some node differs, failed a check, or has a report that cannot be read.
const DIFFER: i32 = 1;

/// Returns the exit code.
pub fn run(out: &mut impl Write, files: &[PathBuf], json: bool) -> anyhow::Result<i32> {
    let collected = collect(files);
    if collected.nodes.is_empty() {
        bail!(nothing(&collected.unread));
    }
    let comparison = collected.nodes.compare();
    if json {
        json::write(out, &Document::new(&comparison, &collected.unread))?;
    } else {
        write(out, &comparison, &collected.unread)?;
    }
    Ok(if comparison.is_clean() && collected.unread.count == 0 { 0 } else { DIFFER })
}

fn nothing(unread: &Unread) -> String {
    let Some(first) = unread.first.first() else {
        return "there is no report to compare: give the output of rdma-init self-test --json on each node"
            .to_owned();
    };
    let more = match unread.count - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("no report could be read: {}{more}", sentence(first))
}
