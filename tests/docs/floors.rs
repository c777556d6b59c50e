//! Tests that the table of modules in `docs/architecture.md` agrees with the code: it lists every module,
//! and no module uses one from a higher floor.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::page;
use crate::support::repository;

/// Returns the number of each module's floor. It is in the first column; if that is empty, the module is on
/// the floor of the line above.
fn floors() -> BTreeMap<String, usize> {
    let page = page("docs/architecture.md");
    let (_, table) = page.split_once("\n## The modules\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut floor = 0;
    let mut floors = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        floor += usize::from(!cells[1].is_empty());
        floors.extend(cells[2].split('`').skip(1).step_by(2).map(|name| (name.to_owned(), floor)));
    }
    floors
}

fn modules() -> Vec<String> {
    let library = page("src/lib.rs");
    let declared = library.lines().filter_map(|line| {
        let name =
            ["pub mod ", "pub(crate) mod ", "mod "].iter().find_map(|words| line.strip_prefix(words))?;
        Some(name.strip_suffix(';')?.to_owned())
    });
    declared.collect()
}

#[test]
fn the_modules_are_those_of_the_library() {
    let (floors, modules) = (floors(), modules());
    let missing: Vec<&String> = modules.iter().filter(|module| !floors.contains_key(*module)).collect();
    assert!(missing.is_empty(), "docs/architecture.md does not name {missing:?}");
    let gone: Vec<&String> = floors.keys().filter(|name| !modules.contains(name)).collect();
    assert!(gone.is_empty(), "docs/architecture.md names {gone:?}, which are no modules");
}

#[test]
fn no_module_uses_a_higher_floor() {
    let floors = floors();
    let mut wrong = Vec::new();
    let mut uses = 0;
    for (module, floor) in &floors {
        for file in files(module) {
            let text = fs::read_to_string(&file).unwrap();
            for used in used(&text).iter().filter(|used| floors.contains_key(*used)) {
                uses += 1;
                if floors[used] > *floor {
                    wrong.push(format!("{} uses {used}", file.display()));
                }
            }
        }
    }
    assert!(uses > 500, "{uses}");
    assert!(wrong.is_empty(), "these reach up to a higher floor:\n{}", wrong.join("\n"));
}

/// Returns `src/MODULE.rs` and the files below `src/MODULE`, except tests.
fn files(module: &str) -> Vec<std::path::PathBuf> {
    let alone = repository(format!("src/{module}.rs"));
    let mut files: Vec<_> = [alone].into_iter().filter(|file| file.exists()).collect();
    below(&repository(format!("src/{module}")), &mut files);
    assert!(!files.is_empty(), "src has no module {module}");
    files
}

fn below(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            below(&path, files);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the names after `crate::`, including those in `crate::{a, b}`, but not in comments and tests.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let group = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let items = group.map_or_else(|| vec![rest], |(items, _)| items.split(',').collect());
        let name = |item: &str| -> String {
            item.trim().chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect()
        };
        names.extend(items.into_iter().map(name));
    }
    names
}

#[test]
fn uses_are_seen_however_they_are_written() {
    let text = "use crate::facts::Facts; // crate::run\nuse crate::{host, report};\nlet a = crate::json::read;\n\
                #[cfg(test)]\nuse crate::start;\n";
    assert_eq!(used(text), ["facts", "host", "report", "json"]);
}
