//! Writes that never wait, on descriptors whose open file description is blocking and shared with other
//! processes.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::num::NonZeroUsize;

/// In bytes: the most to give to a pipe at once, which is a pipe's usual capacity.
const MOST: usize = 64 * 1024;

/// Writes as much as fits into a pipe. Returns `None` if the kernel cannot do that without waiting.
///
/// Allocates nothing, so a signal handler may use it.
pub(super) fn to_pipe(pipe: BorrowedFd, bytes: &[u8]) -> Option<Result<usize, Errno>> {
    [to_pipe_at_once, by_pages].into_iter().map(|way| way(pipe, bytes)).find(|result| {
        // Other errors mean that the kernel or a seccomp filter does not support this way.
        matches!(result, Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EPIPE))
    })
}

/// Writes as much as fits into a pipe. Works since Linux 6.4, but not for named pipes (`FMODE_NOWAIT` in
/// `__do_pipe_flags` and `fifo_open`, `fs/pipe.c`).
pub(super) fn to_pipe_at_once(pipe: BorrowedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel only reads these bytes. The offset -1 stands for no offset.
    let written = unsafe { libc::pwritev2(pipe.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
    Errno::result(written).map(isize::unsigned_abs)
}

/// Works in every Linux, but not in gVisor. The pipe gets memory pages instead of a copy, so they are fresh
/// pages that belong only to the pipe afterwards (`wait_for_space` in `fs/splice.c`).
fn by_pages(pipe: BorrowedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let bytes = bytes.get(..MOST).unwrap_or(bytes);
    let size = NonZeroUsize::new(bytes.len()).ok_or(Errno::EINVAL)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of
    // ours; it is as long as what is copied into it, and nothing has a pointer to it afterwards.
    unsafe {
        let flags = MapFlags::MAP_PRIVATE;
        let pages = mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)?;
        pages.cast::<u8>().copy_from_nonoverlapping(std::ptr::NonNull::from(bytes).cast(), size.get());
        let part = libc::iovec { iov_base: pages.as_ptr(), iov_len: size.get() };
        let written = libc::vmsplice(pipe.as_raw_fd(), &raw const part, 1, libc::SPLICE_F_NONBLOCK);
        let result = Errno::result(written).map(isize::unsigned_abs);
        let _ = munmap(pages, size.get());
        result
    }
}

/// Sends as much as fits into a socket.
pub(super) fn to_socket(socket: BorrowedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel only reads these bytes.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    Errno::result(sent).map(isize::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    /// Fills a pipe with blocking ends until it is full, and reads it.
    fn fills(way: fn(BorrowedFd, &[u8]) -> Result<usize, Errno>) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut sent = Vec::new();
        let full = loop {
            let text = format!("{}{}\n", sent.len(), "x".repeat(5000));
            match way(writer.as_fd(), text.as_bytes()) {
                Ok(length) => sent.extend_from_slice(&text.as_bytes()[..length]),
                Err(errno) => break errno,
            }
        };
        assert_eq!(full, Errno::EAGAIN);
        assert!(sent.len() > PAGE);
        drop(writer);
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert_eq!(received, sent);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let broken = super::super::signals::without_signals_of_writing(|| way(writer.as_fd(), b"x"));
        assert_eq!(broken, Err(Errno::EPIPE));
    }

    const PAGE: usize = 4096;

    #[test]
    fn a_full_pipe_is_not_waited_for() {
        fills(|pipe, bytes| to_pipe(pipe, bytes).unwrap());
        fills(by_pages);
    }

    #[test]
    fn a_full_socket_is_not_waited_for() {
        let (writer, _reader) = std::os::unix::net::UnixStream::pair().unwrap();
        while to_socket(writer.as_fd(), &[0; PAGE]).is_ok() {}
        assert_eq!(to_socket(writer.as_fd(), &[0; PAGE]), Err(Errno::EAGAIN));
    }

    #[test]
    fn a_file_that_is_not_a_pipe_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(by_pages(file.as_fd(), b"x"), Err(Errno::EBADF));
    }
}
