//! Embeds the profiles, the demo hosts, and the env plugin for NCCL, and links libibverbs and the
//! user-space providers statically.
//!
//! `rdma-sys` asks pkg-config for the shared libraries. A static program needs the archives, the libraries
//! that these need, and every provider by its exact file name: the `-lmlx5` form would find the shared
//! object first.
//!
//! The contents of rdma-core change from version to version. A provider that this version does not have is
//! skipped, and pkg-config reports the libraries that only some providers need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/demo/generate.rs"]
mod demo;
#[path = "src/env_plugin/generate.rs"]
mod env_plugin;
#[path = "src/profiles/generate.rs"]
mod profiles;

/// One name for each kernel driver whose devices the program can open itself. `src/verbs/providers.rs`
/// registers those that this script finds.
const PROVIDERS: &[&str] = &[
    "mlx5",
    "mlx4",
    "efa",
    "mana",
    "bnxt_re",
    "cxgb4",
    "erdma",
    "hfi1verbs",
    "hns",
    "ipathverbs",
    "irdma",
    "mthca",
    "ocrdma",
    "qedr",
    "rxe",
    "siw",
    "vmw_pvrdma",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    profiles::generate();
    demo::generate();
    let compiler = Compiler::of_target();
    env_plugin::compile(&compiler);
    for option in &compiler.options {
        println!("cargo::rustc-link-arg={option}");
    }
    order_functions();
    let mut archives = providers(&compiler);
    archives.push("libibverbs.a".to_owned());
    archives.extend(needed(&compiler));
    // By the time GNU ld reads these archives, it has already passed the C library, so it needs that again.
    // On arm64, the C library needs the compiler's atomic operations.
    archives.extend(["libc.a", "libgcc.a"].map(str::to_owned));
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for archive in archives {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
    link_map();
}

/// Has the linker write a map beside the program: which objects of which archives it contains. `make dist`
/// derives the bill of materials and the licenses of the C libraries from it.
fn link_map() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // The profile's directory is the parent of build/rdma-init-HASH/out.
    let beside = out.ancestors().nth(3).expect("cargo's layout has it").join("rdma-init.map");
    println!("cargo::rustc-link-arg-bin=rdma-init=-Wl,-Map={}", beside.display());
}

/// Places the functions that a start needs next to each other in the program. The list was made on x86-64,
/// with the C library's function names there, and only an optimized program has these functions.
fn order_functions() {
    const ORDER: &str = "src/start.ld";
    println!("cargo::rerun-if-changed={ORDER}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("PROFILE", "release") {
        let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{root}/{ORDER}");
    }
}

/// Returns the archives of the providers in this version of rdma-core. Sets the cfg `provider` for each of
/// them.
fn providers(compiler: &Compiler) -> Vec<String> {
    let values: Vec<String> = PROVIDERS.iter().map(|name| format!("{name:?}")).collect();
    println!("cargo::rustc-check-cfg=cfg(provider, values({}))", values.join(", "));
    let libibverbs = compiler.path_of("libibverbs.a");
    println!("cargo::rerun-if-changed={}", libibverbs.display());
    let entries = libibverbs.parent().and_then(|folder| fs::read_dir(folder).ok());
    let mut names: Vec<String> = entries
        .unwrap_or_else(|| panic!("there is no libibverbs.a: `make setup` installs what the build needs"))
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    // If a provider is there in two versions, the later one matches this libibverbs.
    names.sort_by(|a, b| b.cmp(a));
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for provider in PROVIDERS {
        // Some provider archives have the version of the libibverbs interface in their names.
        let (plain, versioned) = (format!("lib{provider}.a"), format!("lib{provider}-rdmav"));
        let is_its = |name: &&String| **name == plain || name.starts_with(&versioned) && name.ends_with(".a");
        let is_known =
            |name: &&String| defines(&libibverbs.with_file_name(name), &format!("verbs_provider_{provider}"));
        match names.iter().filter(is_its).find(is_known) {
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
    /// Where the target's libraries are, if this machine's own directories do not have them: below the
    /// directory that pkg-config uses for this target, and where `rdma-sys` finds them.
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
            // The cross compiler may bring an older C library. The directories of -B take precedence over
            // it.
            options.push(format!("-B{root}/usr/lib/{architecture}-linux-gnu"));
            options.push(format!("--sysroot={root}"));
        }
        Compiler { program: format!("{architecture}-linux-gnu-gcc"), options }
    }

    /// Returns the path at which the compiler finds a library; only the file name if it does not find it.
    fn path_of(&self, archive: &str) -> PathBuf {
        let mut command = Command::new(&self.program);
        command.args(&self.options).arg(format!("-print-file-name={archive}"));
        let found =
            command.output().unwrap_or_else(|error| panic!("{} cannot be run: {error}", self.program));
        String::from_utf8(found.stdout).expect("a path of the system is text").trim_end().into()
    }
}

/// Returns whether the symbol table of an archive contains this symbol. The table is the archive's first
/// member, after a header of 60 bytes that has its length in ten digits (ar(5)). The names are at the end
/// of the table, each terminated by a NUL.
fn defines(archive: &Path, symbol: &str) -> bool {
    let bytes = fs::read(archive).unwrap_or_default();
    let length = bytes.get(56..66).and_then(|digits| str::from_utf8(digits).ok()?.trim_end().parse().ok());
    let table = length.and_then(|length: usize| bytes.get(68..)?.get(..length));
    let mut names = table.unwrap_or_default().split(|byte| *byte == 0);
    // A number may directly precede the first name.
    names.any(|name| name.ends_with(symbol.as_bytes()))
}

/// Returns the archives of libraries outside rdma-core that libibverbs and the providers need according to
/// pkg-config, such as libnl.
fn needed(compiler: &Compiler) -> Vec<String> {
    let probe = pkg_config::Config::new().statik(true).cargo_metadata(false).probe("libibverbs");
    let mut libraries = probe.unwrap_or_else(|error| panic!("{error}")).libs;
    // Each name occurs once: the linker searches the group until no symbol is missing.
    libraries.sort_unstable();
    libraries.dedup();
    let is_of_rdma_core =
        |name: &String| name == "ibverbs" || name.contains("-rdmav") || PROVIDERS.contains(&name.as_str());
    // These are parts of the C library, which is added last.
    let is_of_c = |name: &String| ["c", "pthread", "dl", "m", "rt"].contains(&name.as_str());
    let others = libraries.into_iter().filter(|name| !is_of_rdma_core(name) && !is_of_c(name));
    others
        .map(|name| {
            let archive = format!("lib{name}.a");
            assert!(
                compiler.path_of(&archive).is_absolute(),
                "rdma-core needs the static library {archive}, which is not on this machine: install the development package that has it"
            );
            archive
        })
        .collect()
}

/// Returns the source files in a directory that something is generated from, ordered by name.
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

/// Writes a Rust file that the source code includes.
fn generated(name: &str, text: &str) {
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(name), text).expect("the folder is there");
}
