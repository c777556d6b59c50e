//! Tests that the manual names every command, option, key, and document.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rdma_init::cli;
use rdma_init::config::{self, CONFIG_VARIABLE, TERMINATION_LOG_VARIABLE, TOKEN_VARIABLE};
use serde_json::Value;

use super::{manual, page, printed};
use crate::support::repository;

#[test]
fn every_profile_and_demo_is_named() {
    let page = page("docs/decisions.md");
    let profiles = printed(&["profiles"]);
    let profiles = profiles.lines().filter_map(|line| line.split_whitespace().next());
    for name in profiles.chain(rdma_init::demo::names()) {
        assert!(page.contains(&format!("`{name}`")), "docs/decisions.md does not name {name}");
    }
}

#[test]
fn every_key_and_variable_is_in_the_table() {
    let page = page("docs/configuration.md");
    for name in config::names().iter().chain(&[CONFIG_VARIABLE, TERMINATION_LOG_VARIABLE, TOKEN_VARIABLE]) {
        assert!(page.contains(&format!("\n| `{name}` |")), "docs/configuration.md has no row for {name}");
    }
}

#[test]
fn every_option_and_command_is_named() {
    let manual = manual();
    let cli = cli::command();
    let own: Vec<&str> =
        cli.get_subcommands().filter(|one| !one.is_hide_set()).map(|one| one.get_name()).collect();
    for name in &own {
        assert!(manual.contains(&format!("rdma-init {name}")), "the manual does not name the command {name}");
    }
    // The options of `rdma-init` itself are keys, which have their own table, as have the options that
    // commands share.
    let of_commands = cli.get_subcommands().filter(|one| own.contains(&one.get_name()));
    let options: BTreeSet<&str> =
        of_commands.flat_map(|one| one.get_arguments()).filter_map(|one| one.get_long()).collect();
    for option in options.iter().filter(|option| !config::names().contains(option)) {
        assert!(manual.contains(&format!("--{option}")), "the manual does not name --{option}");
    }
}

#[test]
fn every_document_is_named_with_its_fields() {
    let page = page("docs/json.md");
    for schema in schemas(&repository("src")) {
        assert!(page.contains(&format!("`{schema}`")), "docs/json.md does not name {schema}");
    }
    let documents: [&[&str]; 5] = [
        &["plan", "--facts", "demo:cce-roce", "--json"],
        &["plan", "--facts", "demo:cce-roce", "--why", "NCCL_IB_HCA", "--json"],
        &["self-test", "--facts", "demo:cce-roce", "--json"],
        &["profiles", "erdma", "--json"],
        &["inspect", "--json"],
    ];
    for arguments in documents {
        let document: Value = serde_json::from_str(&printed(arguments)).unwrap();
        let Value::Object(fields) = &document else { panic!("{arguments:?} is no object") };
        let schema = document["schema"].as_str().unwrap();
        let (_, section) = page.split_once(&format!("\n## `{schema}`\n")).expect(schema);
        let section = section.split("\n## ").next().unwrap();
        for field in fields.keys().filter(|field| *field != "schema") {
            assert!(section.contains(&format!("`{field}`")), "{schema} does not name the field {field}");
        }
    }
}

/// SECURITY.md names the test that attacks each promise, and tests/arm64/skipped what an emulated processor cannot run.
#[test]
fn every_test_that_a_page_names_is_there() {
    let page = page("SECURITY.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        is_plain && name.matches('_').count() >= 4
    };
    let named: Vec<&str> = quoted.filter(is_test).collect();
    assert!(named.len() > 20, "{named:?}");
    let skipped = fs::read_to_string(repository("tests/arm64/skipped")).unwrap();
    let rows = skipped.lines().filter(|line| !line.starts_with('#'));
    // Suite, test, reason. A row of a module has no name behind the last "::".
    let skipped: Vec<&str> = rows
        .filter_map(|row| row.split(' ').nth(1)?.rsplit("::").next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(skipped.len() > 100, "{skipped:?}");
    let mut code = String::new();
    ["src", "tests"].into_iter().for_each(|folder| read_all(&repository(folder), &mut code));
    for name in named.into_iter().chain(skipped) {
        assert!(
            code.contains(&format!("fn {name}() {{")),
            "a page names the test {name}, which is not there"
        );
    }
}

/// Reads all code in a directory.
fn read_all(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns the versions of documents in the code, except in tests.
fn schemas(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(schemas(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let quoted = code.split('"').skip(1).step_by(2);
            let is_schema = |text: &&str| {
                let mut parts = text.split('/');
                parts.next() == Some("rdma-init")
                    && parts.next().is_some()
                    && parts.next().is_some_and(|number| number.parse::<u32>().is_ok())
            };
            found.extend(quoted.filter(is_schema).map(str::to_owned));
        }
    }
    found
}
