//! Part of the build: compiles the shared object that NCCL loads. The program itself is static, so the
//! build script calls the compiler.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::Compiler;

const SOURCE: &str = "src/sys/nccl_env_plugin.rs";

pub fn compile(compiler: &Compiler) {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=src/env_plugin/answer/mod.rs");
    let [rustc, target, folder] =
        ["RUSTC", "TARGET", "OUT_DIR"].map(|name| env::var(name).expect("cargo sets it"));
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "nccl_env", "--target"]);
    command.arg(target).arg("-o").arg(Path::new(&folder).join("libnccl-env.so"));
    // The C library of the container it is, whatever the program itself is linked with.
    for option in ["target-feature=-crt-static", "relocation-model=pic", "panic=abort"] {
        command.args(["-C", option]);
    }
    for option in ["opt-level=s", "lto=fat", "codegen-units=1", "strip=symbols", "link-arg=-nostartfiles"] {
        command.args(["-C", option]);
    }
    // At its end a process of NCCL's closes the library, while other threads may still ask.
    command.args(["-C", "link-arg=-Wl,-z,nodelete"]);
    command.arg("-C").arg(format!("linker={}", compiler.program));
    for option in &compiler.options {
        command.arg("-C").arg(format!("link-arg={option}"));
    }
    // Where the core library is, if not beside the compiler.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(flags.split('\u{1f}').filter(|flag| flag.starts_with("--sysroot=")));
    let status = command.arg(SOURCE).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{SOURCE} cannot be compiled: {status:?}");
}
