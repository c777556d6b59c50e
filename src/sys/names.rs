//! Replaces the name services of glibc by functions that know nothing.
//!
//! In a static program, those of glibc load `libnss_*.so` from wherever the image or
//! `LD_LIBRARY_PATH` says. libnl and libibverbs refer to them for functions that nothing here
//! calls (texts of addresses and protocols, address handles), which alone would link them. With
//! these replacements, nothing in the program can load such a library. Names of hosts are
//! looked up by [`crate::resolve`].

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

/// getaddrinfo(3) that finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getaddrinfo(_: *const c_char, _: *const c_char, _: *const c_void, _: *mut c_void) -> c_int {
    nix::libc::EAI_FAIL
}

/// freeaddrinfo(3): nothing was found, so there is nothing to free.
#[unsafe(no_mangle)]
extern "C" fn freeaddrinfo(_: *mut c_void) {}

/// getnameinfo(3) that finds nothing.
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

/// getprotobyname(3) that finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getprotobyname(_: *const c_char) -> *const c_void {
    null()
}

/// getprotobynumber(3) that finds nothing.
#[unsafe(no_mangle)]
extern "C" fn getprotobynumber(_: c_int) -> *const c_void {
    null()
}
