//! Tests that links within the repository refer to existing files or directories, and to existing headings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{markdown, without_code};
use crate::support::repository;

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in markdown() {
        let text = fs::read_to_string(repository(&page)).unwrap();
        let prose = without_code(&text);
        for target in targets(&prose) {
            if target.contains("://") {
                continue;
            }
            if let Err(why) = follow(&page, target) {
                broken.push(format!("{}: {target}: {why}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// Returns the targets of links `[text](target)`.
fn targets(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

fn follow(page: &Path, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => page.to_owned(),
        path => plain(&page.parent().unwrap().join(path)),
    };
    let there = repository(&file);
    if !there.exists() {
        return Err(format!("there is no {}", file.display()));
    }
    let wants_heading = target.contains('#');
    if !wants_heading {
        return Ok(());
    }
    let text = fs::read_to_string(&there).map_err(|error| error.to_string())?;
    let known = anchors(&text);
    match known.iter().any(|known| known == anchor) {
        true => Ok(()),
        false => Err(format!("{} has no heading {anchor}; it has {}", file.display(), known.join(", "))),
    }
}

/// Returns the path without `..`, which the file system would resolve through symbolic links.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leads out of the repository", path.display()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the names of headings as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let prose = without_code(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
        })
        .collect()
}

#[test]
fn headings_have_the_names_that_github_gives_them() {
    let text = "# A `b/1`, c?\n```sh\n# no heading\n```\n## log = \"json\"\n## A\n## A\n";
    assert_eq!(anchors(text), ["a-b1-c", "log--json", "a", "a-1"]);
}
