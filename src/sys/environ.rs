//! Reads the process's arguments and environment, byte for byte.
//!
//! If the program's file has a capability (`setcap cap_ipc_lock+p`), the kernel sets AT_SECURE, and a static
//! glibc then removes LD_LIBRARY_PATH, LD_PRELOAD, TMPDIR and others from its environment before `main`
//! (`_dl_non_dynamic_init` in `elf/dl-support.c`, with the names in `sysdeps/generic/unsecvars.h`;
//! `__tunables_init` in `elf/dl-tunables.c`). It removes only the pointers: the strings stay where the kernel
//! put them.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use nix::libc::{self, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The kernel's `argv` and the number of arguments.
static ARGV: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());
static ARGC: AtomicUsize = AtomicUsize::new(0);

/// glibc calls the functions in this section before `main`, with `main`'s arguments.
#[used]
// SAFETY: the section has pointers to functions of this form.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn(c_int, *mut *const c_char, *const *const c_char) = {
    extern "C" fn remember(argc: c_int, argv: *mut *const c_char, _: *const *const c_char) {
        ARGC.store(usize::try_from(argc).unwrap_or(0), Ordering::Relaxed);
        ARGV.store(argv, Ordering::Relaxed);
    }
    remember
};

/// In bytes: the kernel limits arguments and environment together to three quarters of this (`_STK_LIM`;
/// `bprm_stack_limits` in `fs/exec.c`).
const LONGEST: usize = 8 * 1024 * 1024;

/// Returns every entry of the environment as inherited: in order, including duplicates, entries without `=`,
/// and bytes that are not UTF-8.
///
/// If the entries are not [whole](is_whole), returns those that libc left.
pub(crate) fn entries() -> Vec<CString> {
    if is_cleaned() { before_cleaning().unwrap_or_else(left_by_libc) } else { left_by_libc() }
}

/// Returns whether [`entries`] returns every inherited entry.
pub(crate) fn is_whole() -> bool {
    !is_cleaned() || before_cleaning().is_some()
}

/// Returns whether libc may have removed entries.
fn is_cleaned() -> bool {
    // SAFETY: the auxiliary vector is there as long as the process is.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn left_by_libc() -> Vec<CString> {
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

/// Returns the entries from the memory into which the kernel copied them; `None` if the memory's layout is
/// unknown.
fn before_cleaning() -> Option<Vec<CString>> {
    let (argv, argc) = (ARGV.load(Ordering::Relaxed), ARGC.load(Ordering::Relaxed));
    if argv.is_null() || argc == 0 {
        return None;
    }
    // SAFETY: `argv` came from libc, which has it from the kernel: `argc` pointers to C strings and
    // a null pointer, then the same for the environment, and then the auxiliary vector, which
    // begins with a number that is not zero (the System V ABI, "initial process stack"). If libc
    // has taken a pointer out it has moved the others up, so null pointers are left before the
    // vector. Nothing writes to this memory after that. The strings of the environment begin
    // behind the last argument, and end at the latest at the program's file name.
    unsafe {
        let mut slot = argv.add(argc + 1);
        let mut count = 0;
        while !(*slot).is_null() || (*slot.add(1)).is_null() {
            count += 1;
            slot = slot.add(1);
        }
        let last = CStr::from_ptr(*argv.add(argc - 1));
        let start = last.as_ptr().add(last.count_bytes() + 1);
        let end = libc::getauxval(libc::AT_EXECFN) as usize;
        let length = end.checked_sub(start.addr()).filter(|length| *length <= LONGEST)?;
        strings(std::slice::from_raw_parts(start.cast(), length), count, &left_by_libc())
    }
}

/// Returns this many strings from the start of this memory; `None` unless all strings that libc left are
/// among them, in the same order.
fn strings(memory: &[u8], count: usize, left: &[CString]) -> Option<Vec<CString>> {
    let mut found = Vec::new();
    let mut rest = memory;
    for _ in 0..count {
        let string = CStr::from_bytes_until_nul(rest).ok()?;
        rest = rest.get(string.count_bytes() + 1..)?;
        found.push(string.to_owned());
    }
    let mut all = found.iter();
    // libc copies this one without some of its tunables.
    let is_original = |entry: &&CString| !entry.to_bytes().starts_with(b"GLIBC_TUNABLES=");
    left.iter().filter(is_original).all(|entry| all.any(|one| one == entry)).then_some(found)
}

/// Returns the arguments, including the program's own name.
pub(crate) fn arguments() -> Vec<CString> {
    std::env::args_os()
        // An argument comes from a C string, so it contains no NUL.
        .filter_map(|argument| CString::new(argument.into_vec()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_has_what_libc_shows() {
        assert!(!is_cleaned() && is_whole());
        assert_eq!(before_cleaning().unwrap(), entries());
    }

    #[test]
    fn what_is_laid_out_in_another_way_is_not_taken() {
        let c = |text: &str| CString::new(text).unwrap();
        let memory = b"A=1\0\0LD_PRELOAD=x\0\xff\0A=2\0 random bytes";
        let whole = ["A=1", "", "LD_PRELOAD=x"].map(c);
        let found = strings(memory, 5, &[c("A=1"), c("GLIBC_TUNABLES=")]).unwrap();
        assert_eq!(found[..3], whole);
        assert_eq!(found[3].as_bytes(), b"\xff");
        assert_eq!(found[4], c("A=2"));
        // The list asks for more strings than there are, or for strings that are missing or in another order.
        assert_eq!(strings(memory, 6, &[]), None);
        assert_eq!(strings(memory, 5, &[c("B=1")]), None);
        assert_eq!(strings(memory, 5, &[c("LD_PRELOAD=x"), c("A=1")]), None);
        assert_eq!(strings(memory, 2, &[c("LD_PRELOAD=x")]), None);
        assert_eq!(strings(&[], 0, &[]), Some(Vec::new()));
    }
}
