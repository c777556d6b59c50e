//! Tests `docs/findings.md`, which is generated from the table of ids.

use std::fmt::Write;

use rdma_init::finding::{Blocks, Id};
use rdma_init::self_test::kinds::{KINDS, Kind};

use super::written;

const HEAD: &str = "\
# Findings

All findings of `rdma-init`, each with its meaning and its fix. The name is stable, so scripts can match on it: it is
`id` in `plan --json` and in the events of `log-format = \"json\"`. The severity of a finding (note, warning, error)
depends on the host; the finding's own fix names the devices and variables of that host. A *rail* is a port of an HCA
that the job uses.

Each finding is listed below the [self-test](self-test.md) check that reports it. This page is generated from
`src/finding/id.rs` (`UPDATE_DOCS=1 cargo test --test suite docs::`).
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut section = |title: &str, check: Option<&str>| {
        let mut ids = Id::ALL.iter().filter(|id| id.check() == check).peekable();
        if ids.peek().is_some() {
            writeln!(page, "\n## {title}\n").unwrap();
        }
        for id in ids {
            let blocks = match id.blocks() {
                Blocks::Nothing => "",
                Blocks::Connection => {
                    " As an error: ports do not connect, and `require-rdma` refuses to start."
                }
                Blocks::Job => " As an error: the job fails, and `require-rdma` refuses to start.",
                Blocks::Fabric => " As an error: `require-rdma` refuses to start.",
                Blocks::Memory => " As an error: `memlock = \"enforce\"` refuses to start.",
            };
            writeln!(page, "- **`{id}`**: {}{blocks} *Fix:* {}", id.meaning().trim(), id.remedy()).unwrap();
        }
    };
    for Kind { id, title, .. } in KINDS {
        section(&format!("`{id}`: {title}"), Some(id));
    }
    section("State of a start, and traffic of a job", None);
    page
}

#[test]
fn the_findings_are_those_of_the_code() {
    written::check("docs/findings.md", &page());
}

/// The table in the manual of the self-test is the output of `self-test --list`.
#[test]
fn every_check_is_in_the_table_with_its_level_and_title() {
    let page = super::page("docs/self-test.md");
    for Kind { id, title, level, .. } in KINDS {
        let level = format!("{level:?}").to_lowercase();
        let row = format!("\n| `{id}` | {level} | {title} |\n");
        assert!(page.contains(&row), "docs/self-test.md lacks this row:{row}");
    }
}
