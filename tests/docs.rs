//! Tests that the generated parts of README and manual are current, that both name everything that exists,
//! and that their links resolve. `UPDATE_DOCS=1 cargo test --test suite docs::` writes the generated parts.

mod findings;
mod floors;
mod links;
mod luck;
mod named;
mod shown;
mod tables;
mod written;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{binary, repository};

/// Returns the text of a page.
fn page(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all pages of the manual as one text.
fn manual() -> String {
    let pages = markdown().into_iter().filter(|path| path.starts_with("docs"));
    pages.map(|path| page(path.to_str().unwrap())).collect()
}

/// Returns every page of the repository: in its root, and below docs, examples and tests.
fn markdown() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    collect(Path::new(""), false, &mut pages);
    ["docs", "examples", "tests"].iter().for_each(|folder| collect(Path::new(folder), true, &mut pages));
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

fn collect(folder: &Path, below: bool, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(repository(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if below && entry.file_type().unwrap().is_dir() {
            collect(&path, below, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Returns the page without its code blocks, which are between lines of three backquotes.
fn without_code(text: &str) -> String {
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    prose.map(|line| format!("{line}\n")).collect()
}

/// Returns what the program prints.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(binary())
        .env_clear()
        .env("RDMA_INIT_CONFIG", "/dev/null")
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
