//! The process's arguments and environment, byte for byte.

use std::ffi::{CStr, CString};

use nix::libc;
use std::os::unix::ffi::OsStringExt;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Every entry of the environment as it was inherited: order, duplicates,
/// entries without `=` and bytes that are not UTF-8 included.
pub fn entries() -> Vec<CString> {
    let mut entries = Vec::new();
    // SAFETY: `environ` is set up by libc before `main` and nothing in this
    // program changes it (no setenv, no putenv); it is null or an array of
    // C strings that a null pointer ends.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// The arguments, including the program's own name.
pub fn arguments() -> Vec<CString> {
    std::env::args_os()
        // An argument comes from a C string, so it holds no NUL.
        .filter_map(|argument| CString::new(argument.into_vec()).ok())
        .collect()
}
