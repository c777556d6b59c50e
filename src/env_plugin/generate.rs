//! Part of the build: compiles the shared object that NCCL loads. The program itself is static, so the build
//! script runs the compiler.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::Compiler;

const SOURCE: &str = "src/sys/nccl_env_plugin.rs";

pub fn compile(compiler: &Compiler) {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=src/env_plugin/answer/mod.rs");
    let [rustc, target, folder] =
        ["RUSTC", "TARGET", "OUT_DIR"].map(|name| env::var(name).expect("cargo sets it"));
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "nccl_env", "--target"]);
    let library = Path::new(&folder).join("libnccl-env.so");
    command.arg(target).arg("-o").arg(&library);
    // The library uses the container's C library, regardless of what the program itself is linked with.
    for option in ["target-feature=-crt-static", "relocation-model=pic", "panic=abort"] {
        command.args(["-C", option]);
    }
    for option in ["opt-level=s", "lto=fat", "codegen-units=1", "strip=symbols", "link-arg=-nostartfiles"] {
        command.args(["-C", option]);
    }
    // When an NCCL process ends, it closes the library while other threads may still call it.
    command.args(["-C", "link-arg=-Wl,-z,nodelete"]);
    command.arg("-C").arg(format!("linker={}", compiler.program));
    for option in &compiler.options {
        command.arg("-C").arg(format!("link-arg={option}"));
    }
    // This passes the location of the core library, if it is not beside the compiler.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(flags.split('\u{1f}').filter(|flag| flag.starts_with("--sysroot=")));
    let status = command.arg(SOURCE).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{SOURCE} cannot be compiled: {status:?}");
    let compiled = fs::read(&library).expect("the compiler has written it");
    fs::write(&library, with_headers_at_the_end(compiled)).expect("the compiler could write it");
}

// The types of program headers in elf(5).
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const HEADERS: u32 = 6;

/// Returns the library with its program headers as its last bytes. The dynamic loader reads them before it
/// maps anything, so it refuses a library whose end is missing. If the headers were at the beginning, the
/// loader would map parts that the file does not have, and touching them would end the process (SIGBUS).
fn with_headers_at_the_end(mut library: Vec<u8>) -> Vec<u8> {
    let half = |at: usize| usize::from(u16::from_le_bytes(library[at..at + 2].try_into().expect("2 bytes")));
    let (start, size) = (number(&library, 32), half(54));
    let mut headers: Vec<Vec<u8>> =
        library[start..start + half(56) * size].chunks(size).map(<[u8]>::to_vec).collect();
    let kind = |header: &[u8]| u32::from_le_bytes(header[..4].try_into().expect("4 bytes"));
    // In memory, programs look for the headers at their original place. GNU ld writes no header that locates
    // them, so the note, which contains the build ID, is replaced.
    if !headers.iter().any(|header| kind(header) == HEADERS) {
        let length = headers.len() * size;
        let has_headers = |header: &&Vec<u8>| {
            let (first, count) = (number(header, 8), number(header, 32));
            kind(header) == LOAD && first <= start && start + length <= first + count
        };
        let segment = headers.iter().find(has_headers).expect("the first segment has the headers");
        let address = number(segment, 16) + start - number(segment, 8);
        let note = headers.iter().position(|header| kind(header) == NOTE).expect("the linker writes a note");
        headers.remove(note);
        let readable = 4 << 32;
        let [start, address, length] = [start, address, length].map(|number| number as u64);
        let fields = [readable | u64::from(HEADERS), start, address, address, length, length, 8];
        headers.insert(0, fields.into_iter().flat_map(u64::to_le_bytes).collect());
    }
    library.resize(library.len().next_multiple_of(8), 0);
    let end = (library.len() as u64).to_le_bytes();
    library[32..40].copy_from_slice(&end);
    library.extend(headers.concat());
    library
}

fn number(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))).expect("a small file")
}
