//! What `docs/` has of the code is what the code says. `UPDATE_DOCS=1 cargo test --test docs`
//! writes it anew.

mod support;

use std::fmt::Write;
use std::fs;

use rdma_init::finding::Id;
use rdma_init::self_test::kinds::{KINDS, Kind};

use support::repository;

const HEAD: &str = "\
# Findings

Everything that `rdma-init` can find, with what it means and what helps. The name is stable: it is
`id` in `plan --json`, in the events of `log-format = \"json\"`, and what scripts match on. How bad a
finding is (a note, a warning, an error) depends on the host; each finding says so, and its own fix
names the devices and variables of that host.

The findings stand below the check of the self-test that tells of them. This page is made from
`src/finding/id.rs` and `src/self_test/kinds.rs` (`UPDATE_DOCS=1 cargo test --test docs`).
";

fn findings() -> String {
    let mut page = HEAD.to_owned();
    for kind in KINDS.iter().filter(|kind| !kind.findings.is_empty()) {
        let Kind { id, title, .. } = kind;
        writeln!(page, "\n## `{id}`: {title}\n").unwrap();
        kind.findings.iter().for_each(|id| line(&mut page, *id));
    }
    let of_a_check: Vec<&Id> = KINDS.iter().flat_map(|kind| kind.findings).collect();
    page.push_str("\n## When the job has ended\n\n");
    Id::ALL.iter().filter(|id| !of_a_check.contains(id)).for_each(|id| line(&mut page, *id));
    page
}

fn line(page: &mut String, id: Id) {
    writeln!(page, "- **`{id}`**: {} *What helps:* {}", id.meaning().trim(), id.remedy()).unwrap();
}

#[test]
fn the_findings_are_those_of_the_code() {
    let file = repository("docs/findings.md");
    let made = findings();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &made).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == made, "docs/findings.md is stale: run UPDATE_DOCS=1 cargo test --test docs");
}
