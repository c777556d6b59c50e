//! Embeds the profiles, the demo hosts, and the env plugin for NCCL, and links libibverbs and the user-space providers
//! statically.
//!
//! `rdma-sys` asks pkg-config for the shared libraries; a static program needs
//! the archives, the libraries that these need, and every provider by its exact file
//! name: the `-lmlx5` form would find the shared object first.
//!
//! What rdma-core consists of changes from release to release. A provider that this release does
//! not have is left out, and a library that only it needs is found out by pkg-config.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/demo/generate.rs"]
mod demo;
#[path = "src/env_plugin/generate.rs"]
mod env_plugin;
#[path = "src/profiles/generate.rs"]
mod profiles;

/// One name for each kernel driver whose devices the program can open itself;
/// `src/verbs/providers.rs` registers those that are found.
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
    // When GNU ld comes to these, it has already passed the C library, so that is named again. On
    // arm64 the C library needs the compiler's atomic operations.
    archives.extend(["libc.a", "libgcc.a"].map(str::to_owned));
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for archive in archives {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
    link_map();
}

/// Has the linker write which objects of which archives are in the program, beside the program. `make dist` derives
/// the bill of materials and the licenses of the C libraries from it.
fn link_map() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // The profile's directory is above build/rdma-init-HASH/out.
    let beside = out.ancestors().nth(3).expect("cargo's layout has it").join("rdma-init.map");
    println!("cargo::rustc-link-arg-bin=rdma-init=-Wl,-Map={}", beside.display());
}

/// Puts the functions of a start beside each other in the program. The list was made on x86-64, with the names
/// of the C library's functions there; and only an optimized program has these functions.
fn order_functions() {
    const ORDER: &str = "src/start.ld";
    println!("cargo::rerun-if-changed={ORDER}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("PROFILE", "release") {
        let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{root}/{ORDER}");
    }
}

/// The archives of the providers that come with this release of rdma-core. Sets the cfg
/// `provider` for each of them.
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
    // Of two versions, the later one is that of this libibverbs.
    names.sort_by(|a, b| b.cmp(a));
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for provider in PROVIDERS {
        // Some providers have the version of libibverbs' interface in their names.
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

/// Whether the symbol table of an archive has this symbol. It is the archive's first member,
/// behind a header of 60 bytes, of which ten tell its length (ar(5)); the names are at its end,
/// each with a NUL.
fn defines(archive: &Path, symbol: &str) -> bool {
    let bytes = fs::read(archive).unwrap_or_default();
    let length = bytes.get(56..66).and_then(|digits| str::from_utf8(digits).ok()?.trim_end().parse().ok());
    let table = length.and_then(|length: usize| bytes.get(68..)?.get(..length));
    let mut names = table.unwrap_or_default().split(|byte| *byte == 0);
    // A number may come right before the first name.
    names.any(|name| name.ends_with(symbol.as_bytes()))
}

/// The archives of the libraries outside rdma-core that libibverbs and the providers need, as
/// pkg-config tells, such as libnl's.
fn needed(compiler: &Compiler) -> Vec<String> {
    let probe = pkg_config::Config::new().statik(true).cargo_metadata(false).probe("libibverbs");
    let mut libraries = probe.unwrap_or_else(|error| panic!("{error}")).libs;
    // Each is named once, and the group is searched until nothing is missing.
    libraries.sort_unstable();
    libraries.dedup();
    let is_of_rdma_core =
        |name: &String| name == "ibverbs" || name.contains("-rdmav") || PROVIDERS.contains(&name.as_str());
    // Parts of the C library, which comes last.
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
