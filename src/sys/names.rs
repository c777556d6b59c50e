//! Replaces glibc's name services with functions that find nothing.
//!
//! In a static program, glibc's functions load `libnss_*.so` from wherever the image or `LD_LIBRARY_PATH`
//! says. libnl and libibverbs refer to them in functions that nothing here calls (texts of addresses and
//! protocols, address handles), which alone would link them. With these replacements, nothing in the program
//! can load such a library. [`crate::resolve`] looks up host names.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

/// Replaces getaddrinfo(3) and finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getaddrinfo(_: *const c_char, _: *const c_char, _: *const c_void, _: *mut c_void) -> c_int {
    nix::libc::EAI_FAIL
}

/// Replaces freeaddrinfo(3) and frees nothing, because nothing is ever found.
#[unsafe(no_mangle)]
extern "C" fn freeaddrinfo(_: *mut c_void) {}

/// Replaces getnameinfo(3) and finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getnameinfo(
    _: *const c_void,
    _: u32,
    _: *mut c_char,
    _: u32,
    _: *mut c_char,
    _: u32,
    _: c_int,
) -> c_int {
    nix::libc::EAI_FAIL
}

/// Replaces getprotobyname(3) and finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getprotobyname(_: *const c_char) -> *const c_void {
    null()
}

/// Replaces getprotobynumber(3) and finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getprotobynumber(_: c_int) -> *const c_void {
    null()
}
