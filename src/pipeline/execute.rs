//! Becoming the command.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

use super::{exec_failed, refuse};
use crate::apply::{environment, memlock};
use crate::facts::{Reader, limits, process};
use crate::init::{Decided, Refusal};
use crate::log::say;
use crate::sys::environ;
use crate::sys::exec::Image;

/// Becomes the command. If that fails, says so and returns the exit code.
pub fn execute(mut image: Image, command: &[CString]) -> i32 {
    let error = image.exec();
    failed(error, command, &image)
}

/// As [`execute`], with the command as it would have started without rdma-init.
pub fn execute_untouched(command: Vec<CString>) -> i32 {
    execute(Image::new(command.clone(), environ::entries()), &command)
}

/// As [`execute`], with variables that were filled in, for which the kernel may have no room.
/// The command then starts without them, or not at all if there is a `refusal`.
pub fn execute_filled(mut image: Image, command: &[CString], refusal: Option<Refusal>) -> i32 {
    let error = image.exec();
    if error != Errno::E2BIG {
        return failed(error, command, &image);
    }
    let what = "the environment has no room for the variables that were filled in";
    if let Some(refusal) = refusal {
        refuse(&refusal.because(what), refusal.code);
        return refusal.code;
    }
    say(&format!("{what}; the command starts without them."));
    execute(Image::new(command.to_vec(), environ::entries()), command)
}

/// As [`execute_filled`], in a process that has not prepared anything itself.
pub fn execute_decided(decided: &Decided, command: Vec<CString>, refusal: Option<Refusal>) -> i32 {
    if decided.raises_memlock {
        raise_memlock();
    }
    let image = Image::new(command.clone(), environment::with(environ::entries(), decided.filled()));
    execute_filled(image, &command, refusal)
}

/// Raises the limit of pinned memory of this process, in silence.
pub fn raise_memlock() {
    if let Some(before) = limits::read().memlock {
        memlock::raise(before, &process::read(&Reader::new(Path::new("/"))));
    }
}

fn failed(error: Errno, command: &[CString], image: &Image) -> i32 {
    let name = command.first().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.as_bytes()));
    let (message, code) = exec_failed(name, error, image);
    say(&message);
    code
}
