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

/// One archive per kernel driver whose devices the program can open itself.
/// `src/verbs/providers.rs` registers the same list at run time.
const PROVIDERS: &[&str] = &[
    "libmlx5.a",
    "libmlx4.a",
    "libefa.a",
    "libmana.a",
    "libbnxt_re-rdmav34.a",
    "liberdma-rdmav34.a",
    "libhns-rdmav34.a",
    "libirdma-rdmav34.a",
    "librxe-rdmav34.a",
    "libsiw-rdmav34.a",
];

/// What they need.
const LIBRARIES: &[&str] = &["libibverbs.a", "libnl-route-3.a", "libnl-3.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    profiles::generate();
    demo::generate();
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-search=native={folder}");
    PROVIDERS.iter().chain(LIBRARIES).chain(&["libc.a"]).for_each(|archive| lighten(archive, &folder));
    without_vfio(&folder);
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for archive in PROVIDERS.iter().chain(LIBRARIES) {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
}

/// Writes a copy without the tables for unwinding, 5 % of the program: a panic is of Rust
/// code, and never passes through C.
fn lighten(archive: &str, folder: &str) {
    let copy = format!("{folder}/{archive}");
    let found = Command::new("cc").arg(format!("-print-file-name={archive}")).output();
    let found = found.unwrap_or_else(|error| panic!("cc cannot be run: {error}")).stdout;
    let path = String::from_utf8(found).expect("a path of the system is text");
    // Where there is no such file, the linker will say so.
    let _ = Command::new("objcopy")
        .args(["--remove-section=.eh_frame", "--remove-section=.rela.eh_frame", path.trim_end(), &copy])
        .status();
}

/// Takes mlx5's driver for VFIO out of the copy, 1 % of the program: its devices come from a
/// function of its own (`mlx5dv_get_vfio_device_list`), which nobody here calls, so the
/// question whether a device is one of them has the answer no.
fn without_vfio(folder: &str) {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // Whatever release of rdma-core it is, and wherever this cannot be done, it stays.
    let _ = run("nm", &["--defined-only", "libmlx5.a"])
        .and_then(|symbols| {
            let mut names = symbols.lines().filter_map(|line| line.rsplit(' ').next());
            names.find(|name| name.ends_with("is_mlx5_vfio_dev")).map(str::to_owned)
        })
        .and_then(|name| {
            let source = format!("_Bool {name}(const void *device) {{ (void)device; return 0; }}\n");
            fs::write(format!("{folder}/no_vfio.c"), source).ok()?;
            run("cc", &["-Os", "-fno-asynchronous-unwind-tables", "-c", "no_vfio.c"])?;
            run("ar", &["d", "libmlx5.a", "mlx5_vfio.c.o"])?;
            run("ar", &["r", "libmlx5.a", "no_vfio.o"])
        });
}

/// The files of a folder that something is generated from, in the order of their names.
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

/// Writes Rust for the source to include.
fn generated(name: &str, text: &str) {
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(name), text).expect("the folder is there");
}
