//! Unpredictable random bytes.

use std::io;
use std::time::Duration;

use nix::libc;

/// Fills the buffer with random bytes from the kernel (getrandom(2)), which needs no file in the image.
///
/// # Errors
/// Fails with ENOSYS, or with EPERM from a sandbox.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the kernel writes no more than the length of the slice.
        let length = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(length) {
            Ok(length) => rest = rest.get_mut(length..).unwrap_or_default(),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Returns a random time between half of this time and all of it, so that many nodes do not connect at
/// once.
pub(crate) fn jittered(time: Duration) -> Duration {
    let mut byte = [0];
    // Without random numbers, the nodes connect at the same time.
    let _ = fill(&mut byte);
    time / 2 + time / 2 * u32::from(byte[0]) / 255
}
