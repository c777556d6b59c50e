//! Embeds the profiles and the demo hosts, and links libibverbs and the user-space providers
//! statically.
//!
//! `rdma-sys` asks pkg-config for the shared libraries; a static program needs
//! the archives, their libnl dependencies, and every provider by its exact file
//! name: the `-lmlx5` form would find the shared object first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/demo/generate.rs"]
mod demo;
#[path = "src/profiles/generate.rs"]
mod profiles;

/// One name for each kernel driver whose devices the program can open itself;
/// `src/verbs/providers.rs` registers those that are found.
const PROVIDERS: &[&str] = &["mlx5", "mlx4", "efa", "mana", "bnxt_re", "erdma", "hns", "irdma", "rxe", "siw"];

/// The libraries that the providers need. When GNU ld comes to them, it has already passed the
/// C library, so that is named again, and on arm64 it needs the compiler's atomic operations.
const LIBRARIES: &[&str] = &["libibverbs.a", "libnl-route-3.a", "libnl-3.a", "libc.a", "libgcc.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    profiles::generate();
    demo::generate();
    let compiler = Compiler::of_target();
    for option in &compiler.options {
        println!("cargo::rustc-link-arg={option}");
    }
    let mut archives = providers(&compiler);
    archives.extend(LIBRARIES.iter().map(|name| (*name).to_owned()));
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for archive in archives {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
}

/// The archives of the providers that come with this release of rdma-core. Sets the cfg
/// `provider` for each of them.
fn providers(compiler: &Compiler) -> Vec<String> {
    let values: Vec<String> = PROVIDERS.iter().map(|name| format!("{name:?}")).collect();
    println!("cargo::rustc-check-cfg=cfg(provider, values({}))", values.join(", "));
    let libibverbs = compiler.path_of("libibverbs.a");
    println!("cargo::rerun-if-changed={}", libibverbs.display());
    let entries = libibverbs.parent().and_then(|folder| fs::read_dir(folder).ok());
    let names: Vec<String> = entries
        .unwrap_or_else(|| panic!("there is no libibverbs.a: `make setup` installs what the build needs"))
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for provider in PROVIDERS {
        // Some providers have the version of libibverbs' interface in their names.
        let (plain, versioned) = (format!("lib{provider}.a"), format!("lib{provider}-rdmav"));
        let is_its = |name: &&String| **name == plain || name.starts_with(&versioned) && name.ends_with(".a");
        match names.iter().find(is_its) {
            Some(name) => {
                println!("cargo::rustc-cfg=provider={provider:?}");
                found.push(name.clone());
            }
            None => missing.push(*provider),
        }
    }
    if !missing.is_empty() {
        println!(
            "cargo::warning=the rdma-core of this machine has no static library for {}: the program will not open such devices itself, and all else works",
            missing.join(", ")
        );
    }
    found
}

/// The C compiler that links for the target.
struct Compiler {
    program: String,
    /// Where the target's libraries are, if this machine's own folders do not have them: below
    /// the folder that pkg-config has for this target, through which `rdma-sys` finds them.
    options: Vec<String>,
}

impl Compiler {
    fn of_target() -> Compiler {
        let [host, target] = ["HOST", "TARGET"].map(|name| env::var(name).expect("cargo sets it"));
        if host == target {
            return Compiler { program: "cc".to_owned(), options: Vec::new() };
        }
        let (architecture, _) = target.split_once('-').expect("an architecture comes first");
        let variable = format!("PKG_CONFIG_SYSROOT_DIR_{}", target.replace('-', "_"));
        println!("cargo::rerun-if-env-changed={variable}");
        let mut options = Vec::new();
        if let Ok(root) = env::var(variable) {
            // The compiler may have a C library of its own, which is older: -B counts more.
            options.push(format!("-B{root}/usr/lib/{architecture}-linux-gnu"));
            options.push(format!("--sysroot={root}"));
        }
        Compiler { program: format!("{architecture}-linux-gnu-gcc"), options }
    }

    /// The path at which it finds a library; only its name if it does not.
    fn path_of(&self, archive: &str) -> PathBuf {
        let mut command = Command::new(&self.program);
        command.args(&self.options).arg(format!("-print-file-name={archive}"));
        let found =
            command.output().unwrap_or_else(|error| panic!("{} cannot be run: {error}", self.program));
        String::from_utf8(found.stdout).expect("a path of the system is text").trim_end().into()
    }
}

/// The files of a folder that something is generated from, ordered by name.
fn sources(folder: &str, extension: &str) -> Vec<PathBuf> {
    println!("cargo::rerun-if-changed={folder}");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder is part of the source")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// Writes a Rust file, which the source includes.
fn generated(name: &str, text: &str) {
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(name), text).expect("the folder is there");
}
