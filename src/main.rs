//! Blocks every signal, then everything else.
//!
//! Rust's own start-up code is left out. It would set SIGPIPE to ignored before any code could
//! see what was inherited, and would take time in which an early SIGTERM to PID 1 is lost.
#![no_main]

use rdma_init::{start, sys};

// SAFETY: libc calls the symbol `main` once; no other has the name.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    let inherited = sys::signals::block_all();
    start::finish(start::start(inherited))
}
