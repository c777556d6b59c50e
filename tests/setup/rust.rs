//! Tests which Rust the set-up chooses, and what it prints about it.

use super::machine::Machine;

const GET: &str = "GET /rustup/archive/1.28.2/";

/// Debian 12 and Ubuntu 22.04 have no package named rustup.
#[test]
fn a_distribution_without_rustup_gets_the_official_installer() {
    let machine = Machine::new().with_installer();
    machine
        .set_up()
        .expect_code(0)
        .expect_said("installing gcc")
        .expect_said("setup: Rust 1.91 or later is needed, and none is here\n")
        .expect_said("setup: installing Rust for this user alone, in ")
        .expect_asked(&[
            "apt-get -qq -o DPkg::Lock::Timeout=300 update",
            "install -y --no-install-recommends gcc",
            "-s install rustup",
            "install -y --no-install-recommends curl",
            GET,
            "rustup-init -q -y --no-modify-path --profile minimal",
        ])
        .expect_not_asked("(sudo)");
    // The second run has nothing to do.
    let log = std::fs::read_to_string(machine.path("log")).unwrap();
    let again = machine.set_up().expect_code(0);
    assert_eq!(again.said, "");
    assert_eq!(again.log.join("\n"), log.trim_end());
}

/// The set-up announces a download before it starts.
#[test]
fn what_is_not_the_installer_is_not_run() {
    let machine = Machine::new().complete().with_server("#!/bin/sh\ntouch \"$W/was-run\"\n");
    let done = machine
        .set_up()
        .expect_code(1)
        .expect_said("is not rustup 1.28.2: its SHA-256 is ")
        .expect_said("It was not run.")
        .expect_asked(&[GET]);
    // The test uses the published checksum, because it sets no other one.
    let sums = ["20a06e644b0d9bd2", "e3853c5a252fca15"];
    assert!(sums.iter().any(|sum| done.said.contains(sum)), "{done:#?}");
    assert!(!machine.path("was-run").exists());
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let machine = Machine::new().complete().variable("RUSTUP_UPDATE_ROOT", "http://127.0.0.1:1/rustup");
    machine
        .set_up()
        .expect_code(1)
        .expect_said("cannot fetch http://127.0.0.1:1/rustup/archive/1.28.2/")
        .expect_said("RUSTUP_DIST_SERVER");
}

/// `command -v cargo` also finds Debian's cargo, so only its version shows that it is too old.
#[test]
fn a_rust_that_is_too_old_is_seen_by_its_version() {
    for (cargo, rustc, is_recent) in [
        ("0.66.0", "1.63.0", false),
        ("1.85.0", "1.85.0", false),
        ("1.91.0 (ea2d97820 2025-10-10)", "1.90.0", false),
        ("1.90.0-nightly", "1.91.0", false),
        ("1.91.0", "1.91.0 (f8297e351 2025-10-28) (Debian 1.91.0+dfsg1-1)", true),
        ("1.100.0", "1.100.0-nightly", true),
        ("2.0.0", "2.0.0", true),
    ] {
        let done = Machine::new().complete().with_rust(cargo, rustc).with_installer().set_up().expect_code(0);
        match is_recent {
            true => assert_eq!((done.said.as_str(), done.log.len()), ("", 0), "{cargo}"),
            false => {
                let said = format!("Rust 1.91 or later is needed, and rustc {rustc} is here\n");
                done.expect_said(&said).expect_asked(&[GET, "rustup-init"]);
            }
        }
    }
}

/// Debian 13 and Ubuntu 24.04 have a package named rustup.
#[test]
fn the_distribution_s_rustup_is_taken_where_there_is_one() {
    let machine = Machine::new().offering_rustup().with_installer();
    machine
        .set_up()
        .expect_code(0)
        .expect_asked(&[
            "-s install rustup",
            "install -y --no-install-recommends rustup",
            "rustup toolchain install stable --no-self-update --profile minimal",
            "rustup default stable",
        ])
        .expect_not_asked("GET")
        .expect_not_asked("override");
}

/// The distribution's rustup conflicts with its cargo. The set-up uses the official installer instead of
/// removing a package.
#[test]
fn nothing_is_removed_for_it() {
    let machine = Machine::new().complete().offering_rustup().with_rust("1.85.0", "1.85.0");
    machine
        .write("conflicts", "")
        .with_installer()
        .set_up()
        .expect_code(0)
        .expect_asked(&["-s install rustup", GET, "rustup-init"])
        .expect_not_asked("recommends rustup");
}

#[test]
fn a_rustup_that_is_there_fetches_what_it_lacks() {
    let done = Machine::new().complete().with_rustup("stable").set_up().expect_code(0);
    done.expect_asked(&["rustup toolchain install stable"])
        .expect_not_asked("rustup default stable")
        .expect_not_asked("override")
        .expect_not_asked("apt-get");
    // The user's default toolchain stays; only this directory gets another one.
    let done = Machine::new().complete().with_rustup("1.70.0").set_up().expect_code(0);
    done.expect_asked(&["rustup toolchain install stable", "rustup override set stable --path /"])
        .expect_not_asked("rustup default stable");
}

#[test]
fn sudo_makes_a_user_root_where_that_is_needed() {
    let done = Machine::new().of_user().with_installer().set_up().expect_code(0);
    done.expect_asked(&["install -y --no-install-recommends gcc", "update (sudo)", GET]).log.iter().for_each(
        |line| {
            let is_plain = line.starts_with("apt-get -s") || !line.starts_with("apt-get");
            assert!(is_plain || line.ends_with("(sudo)"), "{line}");
        },
    );
}

#[test]
fn without_root_and_sudo_it_says_what_root_has_to_do() {
    let done = Machine::new().of_user().without("sudo").set_up().expect_code(1);
    done.expect_said("only root can install what is missing, and there is no sudo")
        .expect_said("apt-get update && apt-get install --no-install-recommends gcc libc6-dev pkg-config")
        .expect_not_asked("apt-get");
    // Installing Rust does not require root.
    let machine = Machine::new().complete().offering_rustup().of_user().without("sudo");
    machine.with_installer().set_up().expect_code(0).expect_asked(&[GET]).expect_not_asked("apt-get");
}

#[test]
fn what_apt_cannot_install_is_named() {
    let machine = Machine::new();
    machine.program("apt-get", "echo 'E: no network' >&2; exit 100");
    machine.set_up().expect_code(1).expect_said("E: no network").expect_said("cannot install gcc libc6-dev");
}

#[test]
fn a_distribution_that_is_too_old_is_told_so_before_anything_else() {
    for (libc, code) in [("2.31-13+deb11u11", 1), ("2.35-0ubuntu3.8", 0), ("2.41-12", 0)] {
        let libc = format!("{libc}\n");
        let machine = Machine::new().complete().with_rust("1.95.0", "1.95.0").write("libc", &libc);
        let done = machine.set_up().expect_code(code);
        let is_told = done.said.contains("this distribution is too old (libc6 2.31-13+deb11u11)");
        assert_eq!(is_told, code == 1, "{done:#?}");
    }
}
