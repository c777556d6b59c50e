//! Part of the build: the hosts without white space, which is half of what they take.

use std::path::Path;
use std::{env, fs};

const FOLDER: &str = "src/demo";

/// Writes `HOSTS`, which `src/demo/mod.rs` includes.
pub fn generate() {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files: Vec<_> = fs::read_dir(FOLDER)
        .expect("the folder is part of the source")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let hosts: String = files.iter().map(|path| host(path)).collect();
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    let text = format!("const HOSTS: &[(&str, &str)] = &[\n{hosts}];\n");
    fs::write(Path::new(&folder).join("demo.rs"), text).expect("the folder is there");
}

fn host(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("it is text");
    let facts: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_stem().expect("it has one").to_string_lossy();
    format!("({name:?}, {:?}),\n", facts.to_string())
}
