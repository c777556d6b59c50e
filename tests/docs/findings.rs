//! Tests `docs/findings.md`, which is generated from the table of ids and the table of checks.

use std::fmt::Write;

use rdma_init::finding::Id;
use rdma_init::self_test::kinds::{KINDS, Kind};

use super::written;

const HEAD: &str = "\
# Findings

All findings of `rdma-init`, each with its meaning and its fix. The name is stable, so scripts can match on it: it is
`id` in `plan --json` and in the events of `log-format = \"json\"`. The severity of a finding (note, warning, error)
depends on the host; the finding's own fix names the devices and variables of that host. A *rail* is a port of an HCA
that the job uses.

Each finding is listed below the [self-test](self-test.md) check that reports it. This page is generated from
`src/finding/id.rs` and `src/self_test/kinds.rs` (`UPDATE_DOCS=1 cargo test --test suite docs::`).
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for kind in KINDS.iter().filter(|kind| !kind.findings.is_empty()) {
        let Kind { id, title, .. } = kind;
        writeln!(page, "\n## `{id}`: {title}\n").unwrap();
        kind.findings.iter().for_each(|id| line(&mut page, *id));
    }
    let of_a_check: Vec<&Id> = KINDS.iter().flat_map(|kind| kind.findings).collect();
    page.push_str("\n## State of a start, and traffic of a job\n\n");
    Id::ALL.iter().filter(|id| !of_a_check.contains(id)).for_each(|id| line(&mut page, *id));
    page
}

fn line(page: &mut String, id: Id) {
    writeln!(page, "- **`{id}`**: {} *Fix:* {}", id.meaning().trim(), id.remedy()).unwrap();
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
