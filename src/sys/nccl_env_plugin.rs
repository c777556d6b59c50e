//! The shared object that NCCL loads into the job's processes: the C interface of an env plugin (NCCL's
//! `plugins/env/README.md`) and the few system calls that it needs. `src/env_plugin/answer` decides what it
//! answers.
//!
//! This file is not a module of the program: `build.rs` compiles it separately, without the standard library,
//! and the program contains the result. It must work in any process: it starts no thread, allocates nothing,
//! and depends only on functions of glibc 2.17. If anything fails, it answers as NCCL itself does: with the
//! process's environment.
#![no_std]
#![allow(unsafe_code, reason = "the interface is C's")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

#[path = "../env_plugin/answer/mod.rs"]
mod answer;

use answer::{Answer, Arena, Decision, Device, Devices, List, MARKER, NO_DEVICE, Present, Settled};

/// The directory of the decision, unless this library's own directory contains it.
const FOLDER: &[u8] = b"/run/rdma-init";
const DECISION: &[u8] = b"nccl-env";
const ITSELF: &CStr = c"NCCL_ENV_PLUGIN";

// These are the same on x86-64 and arm64, except O_DIRECTORY and O_NOFOLLOW.
const O_RDONLY: c_int = 0;
const O_NONBLOCK: c_int = 0o4000;
const O_CLOEXEC: c_int = 0o2000000;
const AT_FDCWD: c_int = -100;
const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;
const OTHERS_WRITE: u32 = 0o022;
const AT_RANDOM: c_ulong = 25;
const AT_EXECFN: c_ulong = 31;

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{c_int, c_long};
    pub const O_DIRECTORY: c_int = 0o200000;
    pub const O_NOFOLLOW: c_int = 0o400000;
    pub const FSTAT: c_long = 5;
    pub const GETDENTS64: c_long = 217;
    /// The byte offsets of the mode, the owner and the size in `struct stat`.
    pub const MODE: usize = 24;
    pub const OWNER: usize = 28;
    pub const SIZE: usize = 48;
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{c_int, c_long};
    pub const O_DIRECTORY: c_int = 0o40000;
    pub const O_NOFOLLOW: c_int = 0o100000;
    pub const FSTAT: c_long = 80;
    pub const GETDENTS64: c_long = 61;
    pub const MODE: usize = 16;
    pub const OWNER: usize = 24;
    pub const SIZE: usize = 48;
}

use machine::{FSTAT, GETDENTS64, O_DIRECTORY, O_NOFOLLOW};

#[link(name = "c")]
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn geteuid() -> c_uint;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, to: *mut c_void, size: usize) -> isize;
    fn readlinkat(folder: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize;
    fn close(file: c_int) -> c_int;
    // glibc has functions for these only since a release after 2.17, or not at all.
    fn syscall(number: c_long, ...) -> c_long;
    fn abort() -> !;
}

/// No panic can be reached, because each index is checked. A test verifies that the linker removed this
/// function.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: It has no arguments, and does not return.
    unsafe { abort() }
}

/// NCCL's `ncclDebugLogger_t`: level, subsystems, file, line, format, arguments.
type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);
const LOG_INFO: c_int = 3;
const LOG_OF_INIT_AND_ENV: c_ulong = 1 | 0x80;

#[repr(C)]
pub struct PluginV1 {
    name: *const c_char,
    init: extern "C" fn(u8, u8, u8, *const c_char) -> c_int,
    finalize: extern "C" fn() -> c_int,
    get: extern "C" fn(*const c_char) -> *const c_char,
}

#[repr(C)]
pub struct PluginV2 {
    name: *const c_char,
    init: extern "C" fn(u8, u8, u8, *const c_char, Option<Logger>) -> c_int,
    finalize: extern "C" fn() -> c_int,
    get: extern "C" fn(*const c_char) -> *const c_char,
}

// SAFETY: Both are constant, and `name` points to a constant.
unsafe impl Sync for PluginV1 {}
// SAFETY: As above.
unsafe impl Sync for PluginV2 {}

const NAME: *const c_char = c"rdma-init".as_ptr();

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclEnvPlugin_v1: PluginV1 = PluginV1 { name: NAME, init: init_v1, finalize, get };

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclEnvPlugin_v2: PluginV2 = PluginV2 { name: NAME, init: init_v2, finalize, get };

/// NCCL's `ncclSuccess`. If a plugin's `init` fails, NCCL's own initialization fails, so nothing here fails.
const SUCCESS: c_int = 0;

extern "C" fn init_v1(_: u8, _: u8, _: u8, _: *const c_char) -> c_int {
    prepare();
    SUCCESS
}

extern "C" fn init_v2(_: u8, _: u8, _: u8, _: *const c_char, logger: Option<Logger>) -> c_int {
    LOGGER.store(logger.map_or(ptr::null_mut(), |logger| logger as *mut c_void), Ordering::Release);
    prepare();
    SUCCESS
}

extern "C" fn finalize() -> c_int {
    LOGGER.store(ptr::null_mut(), Ordering::Release);
    SUCCESS
}

static LOGGER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The kinds of variables for which the log already says that a value was replaced.
static SAID: AtomicU8 = AtomicU8::new(0);

const UNTOUCHED: u8 = 0;
const BUSY: u8 = 1;
const READY: u8 = 2;
const WITHOUT: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(UNTOUCHED);

/// In bytes: the longest decision; a node's decision has some 2000.
const LONGEST: usize = 64 * 1024;

/// Memory that is all zeros in the file and occupies no space there. It also occupies no space in a process
/// that never touches it.
struct Memory {
    text: [u8; LONGEST],
    values: [u8; LONGEST],
    names: [u8; LONGEST],
    hcas: MaybeUninit<Devices<'static>>,
    interfaces: MaybeUninit<Devices<'static>>,
    /// Initialized before STATE becomes READY.
    settled: MaybeUninit<Settled<'static>>,
}

struct Shared(UnsafeCell<Memory>);

// SAFETY: The one thread that changes STATE from UNTOUCHED to BUSY writes; others read, once STATE is
// READY, after which nothing writes.
unsafe impl Sync for Shared {}

static MEMORY: Shared = Shared(UnsafeCell::new(Memory {
    text: [0; LONGEST],
    values: [0; LONGEST],
    names: [0; LONGEST],
    hcas: MaybeUninit::uninit(),
    interfaces: MaybeUninit::uninit(),
    settled: MaybeUninit::uninit(),
}));

/// Reads the decision once per process. If a second NCCL in the process asks meanwhile, it gets the process's
/// environment: waiting could take forever in a child that was forked at this moment.
fn prepare() {
    if STATE.compare_exchange(UNTOUCHED, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: Only one thread of the process ever gets here, and nothing reads before READY.
    let memory: &'static mut Memory = unsafe { &mut *MEMORY.0.get() };
    let Memory { text, values, names, hcas, interfaces, settled } = memory;
    let [hcas, interfaces] = [hcas, interfaces].map(|devices| devices.write(List::new(NO_DEVICE)));
    let state = match settle(text, values, names, hcas, interfaces) {
        Some(found) => {
            settled.write(found);
            READY
        }
        None => WITHOUT,
    };
    STATE.store(state, Ordering::Release);
}

/// Returns what was read; `None` if NCCL gets only the process's environment.
fn settled() -> Option<&'static Settled<'static>> {
    // SAFETY: When STATE is READY, it was written, and nothing writes any longer.
    (STATE.load(Ordering::Acquire) == READY).then(|| unsafe { (*MEMORY.0.get()).settled.assume_init_ref() })
}

fn settle(
    text: &'static mut [u8],
    values: &'static mut [u8],
    names: &'static mut [u8],
    hcas: &'static mut Devices<'static>,
    interfaces: &'static mut Devices<'static>,
) -> Option<Settled<'static>> {
    let length = read_decision(text)?;
    let decision = Decision::parse(text.get(..length)?).filter(is_of_this_boot)?;
    let mut names = Arena::new(names);
    let has_hcas = read_hcas(decision.sys, hcas, &mut names);
    let has_interfaces = read_interfaces(&decision, interfaces, values, &mut names);
    let present = Present {
        hcas: has_hcas.map(|()| hcas.as_slice()),
        interfaces: has_interfaces.map(|()| interfaces.as_slice()),
    };
    let is_active = |hca: &[u8], port: &[u8]| is_active(decision.sys, hca, port);
    Settled::new(&decision, present, &is_active, &mut Arena::new(values))
}

extern "C" fn get(name: *const c_char) -> *const c_char {
    if name.is_null() {
        return ptr::null();
    }
    // SAFETY: NCCL passes a text that ends with NUL; it is as valid for getenv(3).
    let (value, name) = unsafe { (getenv(name), CStr::from_ptr(name)) };
    let Some(settled) = settled() else { return value };
    let given = bytes_of(value);
    // If the marker came with the process's start, a value that a person set in the process is not a copy,
    // even if it is equal.
    let marker = given
        .and_then(|given| variable(MARKER_C).filter(|marker| is_of_start(given) == is_of_start(marker)));
    match settled.answer(name.to_bytes(), given, marker) {
        Answer::OfProcess => value,
        Answer::Unset => ptr::null(),
        Answer::Decided(decided) => decided.as_ptr(),
        Answer::InPlaceOfForeign(decided) => {
            say_once(name, value, decided);
            decided.as_ptr()
        }
    }
}

const MARKER_C: &CStr = c"NCCL_RDMA_INIT";
const _: () = assert!(MARKER_C.to_bytes().len() == MARKER.len());

fn bytes_of<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: The text is one that getenv(3) has returned, which ends with NUL. As for NCCL itself, it
    // stays until the process changes the variable.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

fn variable<'a>(name: &CStr) -> Option<&'a [u8]> {
    // SAFETY: The name ends with NUL.
    bytes_of(unsafe { getenv(name.as_ptr()) })
}

/// Returns whether the process was started with this text in its environment. A text that the process sets
/// itself is elsewhere. So are all texts if a program has moved its environment to show a title in its place.
fn is_of_start(text: &[u8]) -> bool {
    // The kernel puts the strings that a program is started with between these two addresses.
    // SAFETY: It has no memory to write to, and answers 0 for what it does not know.
    let [low, high] = [AT_RANDOM, AT_EXECFN].map(|kind| unsafe { getauxval(kind) });
    let place = text.as_ptr().addr() as c_ulong;
    low < place && place < high
}

/// Says in NCCL's log, once for each kind of variable, that a value was replaced. It does not use an NCCL
/// warning, because that text would become the process's last error.
fn say_once(name: &CStr, value: *const c_char, decided: &CStr) {
    let kind = if name == c"NCCL_IB_HCA" { 1 } else { 2 };
    let logger = LOGGER.load(Ordering::Acquire);
    if logger.is_null() || SAID.fetch_or(kind, Ordering::Relaxed) & kind != 0 {
        return;
    }
    // SAFETY: Only a `Logger` is ever stored there, and it is not null.
    let log: Logger = unsafe { mem::transmute::<*mut c_void, Logger>(logger) };
    let format = c"rdma-init: %s=%s names only devices that this node does not have, so NCCL gets %s";
    let file = c"rdma-init";
    // SAFETY: As for printf(3): three texts for three `%s`, each ending with NUL.
    unsafe {
        log(
            LOG_INFO,
            LOG_OF_INIT_AND_ENV,
            file.as_ptr(),
            0,
            format.as_ptr(),
            name.as_ptr(),
            value,
            decided.as_ptr(),
        );
    }
}

/// A file descriptor that this library owns.
struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: It was opened here, and is closed once.
        unsafe { close(self.0) };
    }
}

impl File {
    fn open(folder: &File, path: &CStr, flags: c_int) -> Option<File> {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags;
        // SAFETY: The path ends with NUL.
        let file = unsafe { openat(folder.0, path.as_ptr(), flags) };
        (file >= 0).then_some(File(file))
    }

    /// Opens the path that these parts form together.
    fn at(folder: &File, parts: &[&[u8]], flags: c_int) -> Option<File> {
        let mut memory = [0; PATH];
        let path = Arena::new(&mut memory).join(parts.iter().copied())?;
        File::open(folder, path, flags)
    }

    /// Reads from the start to the end of the file, or until the buffer is full.
    fn read(&self, to: &mut [u8]) -> Option<usize> {
        let mut length = 0;
        loop {
            let room = to.get_mut(length..)?;
            if room.is_empty() {
                return Some(length);
            }
            // SAFETY: There is room for that many bytes.
            match unsafe { read(self.0, room.as_mut_ptr().cast(), room.len()) } {
                0 => return Some(length),
                count => length += usize::try_from(count).ok()?,
            }
        }
    }

    fn status(&self) -> Option<Status> {
        // The buffer is at least as large as `struct stat` and has its alignment.
        let mut words = [0_u64; 32];
        // SAFETY: The kernel writes a `struct stat`, for which there is room.
        if unsafe { syscall(FSTAT, self.0, words.as_mut_ptr()) } != 0 {
            return None;
        }
        let half = |at: usize| Some((words.get(at / 8)? >> (at % 8 * 8)) as u32);
        Some(Status {
            mode: half(machine::MODE)?,
            owner: half(machine::OWNER)?,
            size: *words.get(machine::SIZE / 8)?,
        })
    }
}

const PATH: usize = 512;
const HERE: File = File(AT_FDCWD);

struct Status {
    mode: u32,
    owner: u32,
    size: u64,
}

impl Status {
    fn is(&self, kind: u32, owner: u32) -> bool {
        self.mode & S_IFMT == kind && self.mode & OTHERS_WRITE == 0 && self.owner == owner
    }
}

/// Returns whether the decision was made on this machine since the last boot.
fn is_of_this_boot(decision: &Decision) -> bool {
    if decision.boot.is_empty() {
        return true;
    }
    let mut text = [0; 64];
    let path = [decision.proc, b"/sys/kernel/random/boot_id"];
    let length = File::at(&mem::ManuallyDrop::new(HERE), &path, 0).and_then(|file| file.read(&mut text));
    let own = length.and_then(|length| text.get(..length));
    own.is_some_and(|own| own.trim_ascii() == decision.boot)
}

/// Reads the decision if only root or this process's own user can have written it.
fn read_decision(to: &mut [u8]) -> Option<usize> {
    let of_library = variable(ITSELF).and_then(|path| {
        let end = path.iter().rposition(|byte| *byte == b'/')?;
        path.get(..end).filter(|folder| folder.starts_with(b"/"))
    });
    let folder =
        File::at(&mem::ManuallyDrop::new(HERE), &[of_library.unwrap_or(FOLDER)], O_DIRECTORY | O_NOFOLLOW)?;
    let status = folder.status()?;
    // SAFETY: It has no arguments, and cannot fail.
    let own = unsafe { geteuid() };
    let owner = if status.owner == 0 { 0 } else { own };
    let file = File::at(&folder, &[DECISION], O_NOFOLLOW)?;
    let of_file = file.status()?;
    let is_trusted =
        status.is(S_IFDIR, owner) && of_file.is(S_IFREG, owner) && of_file.size < to.len() as u64;
    if is_trusted { file.read(to).filter(|length| *length < to.len()) } else { None }
}

/// Reads this node's HCAs; returns `None` if there may be others.
fn read_hcas(sys: &[u8], to: &mut Devices<'static>, names: &mut Arena<'static>) -> Option<()> {
    let folder = File::at(&mem::ManuallyDrop::new(HERE), &[sys, b"/class/infiniband"], O_DIRECTORY)?;
    // The buffer has the alignment of `struct linux_dirent64`.
    let mut words = [0_u64; 512];
    loop {
        // SAFETY: There is room for that many bytes.
        let read = unsafe { syscall(GETDENTS64, folder.0, words.as_mut_ptr(), mem::size_of_val(&words)) };
        let length = usize::try_from(read).ok()?;
        if length == 0 {
            return Some(());
        }
        // SAFETY: Words are valid as bytes, and there are 8 times as many.
        let bytes =
            unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), mem::size_of_val(&words)) };
        let mut rest = bytes.get(..length)?;
        while !rest.is_empty() {
            // The entry contains: inode, offset, length of the entry, type, name.
            let size = usize::from(u16::from_le_bytes([*rest.get(16)?, *rest.get(17)?]));
            let name = CStr::from_bytes_until_nul(rest.get(19..size)?).ok()?;
            if !name.to_bytes().starts_with(b".") {
                let name = names.join(core::iter::once(name.to_bytes()))?;
                to.push(hca(&folder, name, names))?;
            }
            rest = rest.get(size.max(1)..)?;
        }
    }
}

/// Returns whether a port of an HCA is ACTIVE (`IB_PORT_ACTIVE`).
fn is_active(sys: &[u8], hca: &[u8], port: &[u8]) -> bool {
    let path = [sys, b"/class/infiniband/", hca, b"/ports/", port, b"/state"];
    let mut state = [0; 32];
    let length = File::at(&mem::ManuallyDrop::new(HERE), &path, 0).and_then(|file| file.read(&mut state));
    length.and_then(|length| state.get(..length)).is_some_and(|state| state.starts_with(b"4:"))
}

/// Reads the interfaces of this process's network namespace. sysfs alone is not sufficient: it shows the
/// namespace in which it was mounted, which may be the host's. Returns `None` if there may be others.
fn read_interfaces(
    decision: &Decision,
    to: &mut Devices<'static>,
    text: &mut [u8],
    names: &mut Arena<'static>,
) -> Option<()> {
    let here = mem::ManuallyDrop::new(HERE);
    let length = File::at(&here, &[decision.proc, b"/self/net/dev"], 0)?.read(text)?;
    let text = text.get(..length).filter(|_| length < text.len())?;
    let folder = File::at(&here, &[decision.sys, b"/class/net"], O_DIRECTORY);
    // The first two lines are headings.
    for line in text.split(|byte| *byte == b'\n').skip(2).filter(|line| !line.is_empty()) {
        let end = line.iter().position(|byte| *byte == b':')?;
        let name = names.join(core::iter::once(line.get(..end)?.trim_ascii_start()))?.to_bytes();
        let pci = folder.as_ref().and_then(|folder| end_of_link(folder, &[name, b"/device"], names));
        to.push(Device { name, id: b"", pci: pci.unwrap_or_default() })?;
    }
    Some(())
}

fn hca(folder: &File, name: &'static CStr, names: &mut Arena<'static>) -> Device<'static> {
    let name = name.to_bytes();
    Device {
        name,
        id: line(folder, &[name, b"/node_guid"], names).unwrap_or_default(),
        pci: end_of_link(folder, &[name, b"/device"], names).unwrap_or_default(),
    }
}

/// Returns the first line of a short file.
fn line(folder: &File, path: &[&[u8]], names: &mut Arena<'static>) -> Option<&'static [u8]> {
    let mut text = [0; 128];
    let length = File::at(folder, path, 0)?.read(&mut text)?;
    let line = text.get(..length)?.split(|byte| *byte == b'\n').next()?;
    Some(names.join(core::iter::once(line))?.to_bytes())
}

/// Returns the last path component of a symbolic link's target.
fn end_of_link(folder: &File, path: &[&[u8]], names: &mut Arena<'static>) -> Option<&'static [u8]> {
    let (mut path_memory, mut target) = ([0; PATH], [0_u8; PATH]);
    let path = Arena::new(&mut path_memory).join(path.iter().copied())?;
    // SAFETY: The path ends with NUL, and there is room for that many bytes.
    let length = unsafe { readlinkat(folder.0, path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let target = target.get(..usize::try_from(length).ok()?)?;
    let end = target.rsplit(|byte| *byte == b'/').next()?;
    Some(names.join(core::iter::once(end))?.to_bytes())
}
