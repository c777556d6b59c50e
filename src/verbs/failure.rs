//! Why a call of libibverbs failed.

use std::fmt;
use std::ptr::NonNull;

use nix::errno::Errno;

use crate::facts::reader::describe;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Errno(Errno),
    /// A sentence, where the kernel gives no errno.
    Because(String),
}

impl Failure {
    pub fn because(reason: impl Into<String>) -> Failure {
        Failure::Because(reason.into())
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Errno(errno) => f.write_str(&describe(*errno)),
            Failure::Because(reason) => f.write_str(reason),
        }
    }
}

/// Returns the result of a call that returns null and sets errno when it fails.
pub(super) fn made<T>(pointer: *mut T) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer).ok_or_else(|| Errno::last().into())
}

/// Returns the result of a call that returns the errno. Some providers return -1 and set errno
/// instead.
pub(super) fn done(result: i32) -> Result<(), Failure> {
    match result {
        0 => Ok(()),
        -1 => Err(Errno::last().into()),
        errno => Err(Errno::from_raw(errno).into()),
    }
}
