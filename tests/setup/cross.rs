//! Tests the build for the architecture that this machine does not have.

use std::env::consts::ARCH;
use std::fs;

use super::machine::{Done, Machine};
use super::makefile::{CARGO, fill};

/// Returns the other architecture, its name in Debian, the package of the compiler, and the Ubuntu archive.
fn other() -> (&'static str, &'static str, &'static str, &'static str) {
    match ARCH {
        "aarch64" => ("x86_64", "amd64", "gcc-x86-64-linux-gnu", "http://archive.ubuntu.com/ubuntu"),
        _ => ("aarch64", "arm64", "gcc-aarch64-linux-gnu", "http://ports.ubuntu.com/ubuntu-ports"),
    }
}

/// Makes a machine with a rustup, a rustc that has only this machine's standard library until rustup adds
/// another one, and the other programs that the build calls.
fn machine(os_release: &str) -> Machine {
    let machine = Machine::new().complete().with_rust("1.95.0", "1.95.0").write("os-release", os_release);
    machine.program("cargo", CARGO);
    machine
        .program("rustc", r#"case $1 in --version) echo 'rustc 1.95.0' ;; *) echo "$W/toolchain" ;; esac"#);
    machine.program("file", "echo 'ELF, statically linked'");
    machine.program(&format!("qemu-{}-static", other().0), "exec \"$@\"");
    // A package is an empty file, and unpacking it creates a library with its name.
    machine.program(
        "apt-get",
        r#"echo "apt-get $*" >>"$W/log"
           list=${*##*Dir::Etc::sourcelist=}
           [ "$list" = "$*" ] || cat "${list%% *}" >>"$W/log"
           while [ $# -gt 0 ] && [ "$1" != download ]; do shift; done
           [ ! -e "$W/offline" ] || [ "${1:-}" != download ] || { echo 'E: no network' >&2; exit 100; }
           for package; do [ "$package" = download ] || : >"$package.deb"; done"#,
    );
    machine.program("dpkg-deb", r#"mkdir -p "$3/usr/lib"; : >"$3/usr/lib/${2##*/}""#);
    machine
}

fn with_rustup(machine: &Machine) {
    machine.program("rustup", r#"echo "rustup $*" >>"$W/log"; mkdir -p "$W/toolchain/lib/rustlib/$3""#);
}

fn build(machine: &Machine) -> Done {
    let clone = machine.path("clone");
    fill(&clone);
    let mut make = machine.command("/usr/bin/make");
    make.args(["build", &format!("ARCHITECTURE={}", other().0)]).current_dir(&clone);
    machine.done(make.env("RDMA_INIT_TEST_OS_RELEASE", machine.path("os-release")))
}

const DEBIAN: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";

#[test]
fn another_architecture_needs_packages_that_this_machine_does_not_get() {
    let (architecture, name, compiler, _) = other();
    let machine = machine(DEBIAN);
    with_rustup(&machine);
    build(&machine)
        .expect_code(0)
        .expect_said(&format!("target/{architecture}-unknown-linux-gnu/release/rdma-init: "))
        .expect_asked(&[
            &format!("install -y --no-install-recommends {compiler} qemu-user-static"),
            &format!("rustup target add {architecture}-unknown-linux-gnu"),
            &format!("-o APT::Architecture={name} -o APT::Architectures={name} "),
            "download libc6-dev linux-libc-dev libibverbs-dev",
        ])
        .expect_not_asked("ubuntu");
    let root = machine.path("clone/target/sysroot").join(architecture);
    assert!(root.join("usr/lib/libibverbs-dev.deb").exists());
    let environment = fs::read_to_string(machine.path("environment")).unwrap();
    let underscores = format!("{architecture}_unknown_linux_gnu");
    for line in [
        format!("CARGO_TARGET_{}_LINKER={architecture}-linux-gnu-gcc", underscores.to_uppercase()),
        format!("PKG_CONFIG_SYSROOT_DIR_{underscores}={}", root.display()),
    ] {
        assert!(environment.lines().any(|found| found == line), "no {line:?} in {environment}");
    }
    // The second time, nothing needs to be downloaded.
    let downloads = |done: &Done| done.log.iter().filter(|line| line.contains("download")).count();
    assert_eq!(downloads(&build(&machine).expect_code(0)), 1);
}

/// Ubuntu splits its architectures into two archives, and a machine is configured only for its own.
#[test]
fn ubuntu_s_other_archive_is_asked() {
    let machine = machine("ID=ubuntu\nVERSION_CODENAME=noble\n");
    with_rustup(&machine);
    let line = format!("{} noble-security main universe", other().3);
    build(&machine).expect_code(0).expect_asked(&["update", &line, "download libc6-dev"]);
}

#[test]
fn what_was_cut_off_is_fetched_again() {
    let machine = machine(DEBIAN).write("offline", "");
    with_rustup(&machine);
    build(&machine).expect_code(2).expect_said("E: no network").expect_said("cannot fetch the packages for ");
    fs::remove_file(machine.path("offline")).unwrap();
    build(&machine).expect_code(0).expect_asked(&["download libc6-dev", "download libc6-dev"]);
}

/// Debian's Rust knows only its own package of the standard library, and that of the other architecture
/// must have exactly the same version.
#[test]
fn a_rust_of_the_distribution_gets_the_library_of_its_own_version() {
    let (architecture, ..) = other();
    let machine = machine(DEBIAN);
    machine.program(
        "dpkg-query",
        r#"case "$*" in
               '-S '*/toolchain/lib/rustlib/*'/lib/libstd-*.rlib') echo "libstd-rust-dev:any: $2" ;;
               *libstd-rust-dev) echo '1.95.0+dfsg1-2~bpo13+1' ;;
               *libc6) cat "$W/libc" ;;
               *) echo 'install ok installed' ;;
           esac"#,
    );
    let folder = format!("lib/rustlib/{architecture}-unknown-linux-gnu/lib");
    machine
        .program("dpkg-deb", &format!(r#"case $2 in *libstd*) mkdir -p "$3$W/toolchain/{folder}" ;; esac"#));
    for _ in 0..2 {
        build(&machine).expect_code(0).expect_asked(&["libstd-rust-dev=1.95.0+dfsg1-2~bpo13+1"]);
    }
    let environment = fs::read_to_string(machine.path("environment")).unwrap();
    let sysroot = machine.path("clone/target/sysroot").join(architecture);
    let wanted = format!(
        "CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUSTFLAGS=--sysroot={}{}\n",
        architecture.to_uppercase(),
        sysroot.display(),
        machine.path("toolchain").display()
    );
    assert_eq!(environment.matches(&wanted).count(), 2, "no {wanted:?} in {environment}");
    let log = fs::read_to_string(machine.path("log")).unwrap();
    assert_eq!(log.matches(" download ").count(), 1, "{log}");
}

#[test]
fn the_error_says_what_an_unmanaged_rust_lacks() {
    let (architecture, ..) = other();
    let machine = machine(DEBIAN);
    build(&machine).expect_code(2).expect_said(&format!(
        "is neither of rustup nor of a package, and has no standard library for {architecture} in "
    ));
    // If it is already there, that is enough.
    let library = format!("toolchain/lib/rustlib/{architecture}-unknown-linux-gnu");
    fs::create_dir_all(machine.path(&library)).unwrap();
    build(&machine).expect_code(0);
}
