//! Runs `make build` in an environment with settings for other projects.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use super::machine::Machine;
use crate::support::repository;

/// A stand-in for cargo with what the Makefile needs from it: it writes down its environment, and creates a
/// binary where cargo would.
pub const CARGO: &str = r#"case $1 in
    --version) echo 'cargo 1.95.0'; exit ;;
esac
env >>"$W/environment"
folder=$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release
mkdir -p "$folder"
printf '#!/bin/sh\necho rdma-init\n' >"$folder/rdma-init"
chmod +x "$folder/rdma-init""#;

/// Copies the files that `make build` reads.
pub fn fill(clone: &Path) {
    fs::create_dir_all(clone.join("tests")).unwrap();
    for file in ["Makefile", "Cargo.toml", "tests/setup.sh", "tests/cross.sh", "tests/sysroot.sh"] {
        fs::copy(repository(file), clone.join(file)).unwrap();
    }
}

#[test]
fn the_binary_is_where_the_readme_says_and_static_all_the_same() {
    let machine = Machine::new().complete().with_rust("1.95.0", "1.95.0");
    machine.program("cargo", CARGO);
    machine.program("file", "echo 'ELF, statically linked'");
    for (name, value) in [
        ("CARGO_TARGET_DIR", "/elsewhere"),
        ("CARGO_BUILD_TARGET_DIR", "/elsewhere"),
        ("CARGO_BUILD_TARGET", "wasm32-unknown-unknown"),
        ("RUSTFLAGS", "-Dwarnings"),
        ("CARGO_ENCODED_RUSTFLAGS", "-Dwarnings"),
    ] {
        let clone = machine.path(&format!("clone-{name}"));
        fill(&clone);
        let mut make = machine.command("/usr/bin/make");
        machine
            .done(make.arg("build").current_dir(&clone).env(name, value))
            .expect_code(0)
            .expect_said(&format!("target/{ARCH}-unknown-linux-gnu/release/rdma-init: "));
        assert!(clone.join(format!("target/{ARCH}-unknown-linux-gnu/release/rdma-init")).exists(), "{name}");
    }
    let environment = fs::read_to_string(machine.path("environment")).unwrap();
    assert!(!environment.contains("-Dwarnings"), "{environment}");
}

/// A shell that was started before rustup was installed does not have rustup's directory in its PATH. `make
/// build` must still find cargo.
#[test]
fn a_cargo_that_was_just_installed_is_found() {
    let machine = Machine::new().complete().with_rust("0.66.0", "1.63.0").with_installer();
    machine.program("file", "echo 'ELF, statically linked'");
    let clone = machine.path("clone");
    fill(&clone);
    // The cargo from the installer answers every call with its version.
    let mut make = machine.command("/usr/bin/make");
    let done = machine.done(make.arg("build").current_dir(&clone));
    assert!(done.said.contains("\ncargo 1.95.0 (f2d3ce0bd 2026-03-21)\n"), "{done:#?}");
}

/// A Rust from a distribution, and one for arm64, use GNU ld, which rejects options that only other linkers
/// know.
#[test]
fn no_linker_of_its_own_is_asked_for() {
    let configuration = fs::read_to_string(repository(".cargo/config.toml")).unwrap();
    assert!(configuration.contains("+crt-static") && !configuration.contains("link-arg"), "{configuration}");
}

/// rdma-sys does not build with the libclang of Debian 13 and Ubuntu 24.04.
#[test]
fn a_libclang_that_is_too_new_is_not_used() {
    let machine = Machine::new().complete().with_rust("1.95.0", "1.95.0");
    fs::create_dir_all(machine.path("llvm/llvm-19/lib")).unwrap();
    machine.program("cargo", CARGO);
    machine.program("file", "echo 'ELF, statically linked'");
    machine.program("gcc", "echo /gcc/include");
    machine.program("mv", "/bin/mv \"$@\"");
    // The python3 stub replaces pip, which downloads an archive, and zipfile, which unpacks it.
    machine.program(
        "python3",
        r#"echo "python3 $*" >>"$W/log"
           case "$2 $3" in
               'pip download') : >"${8}/libclang-14.0.6.whl" ;;
               'zipfile -e')
                   native=$5/libclang-14.0.6.data/platlib/clang/native
                   mkdir -p "$native"
                   : >"$native/libclang.so"
                   ;;
           esac"#,
    );
    let clone = machine.path("clone");
    fill(&clone);
    for _ in 0..2 {
        let mut make = machine.command("/usr/bin/make");
        make.arg("build").current_dir(&clone).env("RDMA_INIT_TEST_LLVM", machine.path("llvm"));
        machine.done(&mut make).expect_code(0);
    }
    let environment = fs::read_to_string(machine.path("environment")).unwrap();
    let wanted = format!("LIBCLANG_PATH={}/target/libclang\n", clone.display());
    assert_eq!(environment.matches(&wanted).count(), 2, "{environment}");
    assert!(environment.contains("BINDGEN_EXTRA_CLANG_ARGS=-I/gcc/include\n"), "{environment}");
    // libclang was downloaded only once.
    let log = fs::read_to_string(machine.path("log")).unwrap();
    assert_eq!(log.matches("pip download").count(), 1, "{log}");
    assert!(log.contains("install -y --no-install-recommends python3 python3-pip"), "{log}");
}

/// A stand-in for cargo-deny with what the script needs from it. If `$W/offline` exists, nothing can be
/// downloaded; if `$W/advisory` exists, there is an advisory against a crate.
const DENY: &str = r#"echo "cargo $*" >>"$W/log"
case "$*" in
    'deny --locked fetch db')
        [ ! -e "$W/offline" ] || { echo 'failed to fetch advisory database' >&2; exit 1; } ;;
    'deny --locked --offline check advisories')
        [ ! -e "$W/advisory" ] || { echo 'error[vulnerability]' >&2; exit 1; }
        echo 'advisories ok' ;;
    *) exit 9 ;;
esac"#;

/// An advisory fails the check if there is a copy of the database. If there is none, the check reports that
/// nothing was checked.
#[test]
fn advisories_are_checked_or_it_is_said_that_they_are_not() {
    const UNCHECKED: &str = "advisories: NOT CHECKED: ";
    for (offline, copy, advisory, code, said) in [
        (false, false, false, 0, "advisories ok"),
        (false, false, true, 1, "error[vulnerability]"),
        (true, false, true, 0, UNCHECKED),
        (true, true, false, 0, "advisories ok"),
        (true, true, true, 1, "error[vulnerability]"),
    ] {
        let machine = Machine::new().complete();
        machine.program("cargo", DENY);
        machine.program("timeout", "shift; exec \"$@\"");
        machine.program("tail", "/usr/bin/tail \"$@\"");
        for (name, is_there) in [("offline", offline), ("advisory", advisory)] {
            if is_there {
                fs::write(machine.path(name), "").unwrap();
            }
        }
        if copy {
            fs::create_dir_all(machine.path("home/cargo/advisory-dbs/advisory-db-3157b0e258782691/crates"))
                .unwrap();
        }
        let done = machine.done(machine.command("/bin/sh").arg(repository("tests/advisories.sh")));
        let done = done.expect_code(code).expect_said(said);
        assert_eq!(done.said.contains(UNCHECKED), said == UNCHECKED, "{done:#?}");
    }
    let makefile = fs::read_to_string(repository("Makefile")).unwrap();
    assert!(
        makefile.contains("\tcargo deny --locked check licenses bans sources\n\t@sh tests/advisories.sh\n")
    );
}

/// A suite that no lane names would never run.
#[test]
fn each_suite_is_in_one_lane() {
    let suites = fs::read_to_string(repository("tests/suite.rs")).unwrap();
    let suites = suites.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let suites: Vec<&str> = suites.filter(|name| *name != "support").collect();
    let makefile = fs::read_to_string(repository("Makefile")).unwrap();
    let lanes = makefile.lines().find_map(|line| line.strip_prefix("LANES := ")).unwrap();
    let suites_in = |lane: &str| {
        let line = makefile.lines().find_map(|line| line.strip_prefix(&format!("SUITES_{lane} := ")));
        line.unwrap_or_default().split(" --skip ").next().unwrap().split(' ').map(str::to_owned).collect()
    };
    let named: Vec<String> = lanes.split(' ').flat_map::<Vec<String>, _>(suites_in).collect();
    for suite in suites {
        let times = named.iter().filter(|name| **name == format!("{suite}::")).count();
        assert_eq!(times, 1, "{suite} is in {times} of the lanes {lanes}");
    }
}
