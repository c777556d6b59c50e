//! Unpredictable random bytes.

use std::io;

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
