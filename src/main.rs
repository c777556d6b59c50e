//! Blocks every signal, then everything else.
//!
//! The program has no Rust start-up code. That code would set SIGPIPE to ignored before any code could see
//! the inherited setting, and would take time during which an early SIGTERM to PID 1 is lost.
#![no_main]

use rdma_init::{start, sys};

// SAFETY: libc calls the symbol `main` once; no other item has this name.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    let inherited = sys::signals::block_all();
    start::finish(start::start(inherited))
}
