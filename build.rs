//! Embeds the profiles and the demo hosts, and links libibverbs and the user-space providers
//! statically.
//!
//! `rdma-sys` asks pkg-config for the shared libraries; a static program needs
//! the archives, their libnl dependencies, and every provider by its exact file
//! name: the `-lmlx5` form would find the shared object first.

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

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    profiles::generate();
    demo::generate();
    println!("cargo::rustc-link-arg=-Wl,--start-group");
    for archive in PROVIDERS {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    for archive in ["libibverbs.a", "libnl-route-3.a", "libnl-3.a"] {
        println!("cargo::rustc-link-arg=-l:{archive}");
    }
    println!("cargo::rustc-link-arg=-Wl,--end-group");
}
