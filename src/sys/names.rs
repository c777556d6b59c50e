//! No name services of glibc.
//!
//! In a static program they load `libnss_*.so` from wherever the image or
//! `LD_LIBRARY_PATH` says. libnl and libibverbs refer to them for functions that nobody
//! here calls (texts of addresses and protocols, address handles), which alone would link
//! them. With these in their place, nothing in the program can ask. Names of hosts are
//! [`crate::resolve`]'s.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

/// Knows nothing (getaddrinfo(3)).
#[unsafe(no_mangle)]
extern "C" fn getaddrinfo(_: *const c_char, _: *const c_char, _: *const c_void, _: *mut c_void) -> c_int {
    nix::libc::EAI_FAIL
}

/// There is nothing to free, as nothing was found.
#[unsafe(no_mangle)]
extern "C" fn freeaddrinfo(_: *mut c_void) {}

/// Knows nothing (getnameinfo(3)).
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

/// Knows nothing (getprotobyname(3)).
#[unsafe(no_mangle)]
extern "C" fn getprotobyname(_: *const c_char) -> *const c_void {
    null()
}

/// Knows nothing (getprotobynumber(3)).
#[unsafe(no_mangle)]
extern "C" fn getprotobynumber(_: c_int) -> *const c_void {
    null()
}
