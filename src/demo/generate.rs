//! Part of the build: embeds the hosts without white space, which halves their size.

use std::fs;
use std::path::Path;

const FOLDER: &str = "src/demo";

/// Writes `HOSTS`, which `src/demo/mod.rs` includes.
pub fn generate() {
    let hosts: String = crate::sources(FOLDER, "json").iter().map(|path| host(path)).collect();
    crate::generated("demo.rs", &format!("const HOSTS: &[(&str, &str)] = &[\n{hosts}];\n"));
}

fn host(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("it is text");
    let facts: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_stem().expect("it has one").to_string_lossy();
    format!("({name:?}, {:?}),\n", facts.to_string())
}
