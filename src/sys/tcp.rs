//! The kernel's counters of a TCP connection.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;

/// Counts since the start of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// In bytes: the longest data that this end sends in one packet.
    pub segment: u32,
    /// The bytes of data that the other end has acknowledged.
    pub acknowledged: u64,
    /// The packets that this end has sent, including retransmissions.
    pub packets: u64,
    /// The packets that this end has sent again because they were lost. TCP takes a late acknowledgment of a busy
    /// machine for a loss, too; Linux 4.19 and later count what had arrived all the same (RFC 2883).
    pub again: u64,
}

/// In bytes: the parts of `struct tcp_info` that Linux 4.2 and later, and Linux 4.19 and later, fill in. Its
/// fields never move (`include/uapi/linux/tcp.h`).
const LENGTH: usize = 144;
const LONGEST: usize = 220;

/// The offsets of the fields.
const SND_MSS: usize = 16;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const SEGS_OUT: usize = 136;
const DSACK_DUPS: usize = 216;

/// Asks the kernel for the counts (tcp(7), `TCP_INFO`).
///
/// # Errors
/// Fails with ENOPROTOOPT if a kernel or a sandbox does not count this.
pub(crate) fn counts(stream: &TcpStream) -> Result<Counts, Errno> {
    let mut info = [0u8; LONGEST];
    let mut length = LONGEST as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, for which there is room.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    Errno::result(result)?;
    if (length as usize) < LENGTH {
        return Err(Errno::ENOPROTOOPT);
    }
    let number = |at: usize| {
        info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    let acknowledged = info.get(BYTES_ACKED..BYTES_ACKED + 8).and_then(|bytes| bytes.try_into().ok());
    Ok(Counts {
        segment: number(SND_MSS),
        acknowledged: acknowledged.map_or(0, u64::from_ne_bytes),
        packets: number(SEGS_OUT).into(),
        // An older kernel leaves this zero.
        again: number(TOTAL_RETRANS).saturating_sub(number(DSACK_DUPS)).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_was_acknowledged_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut second = listener.accept().unwrap().0;
        first.write_all(&[7; 5000]).unwrap();
        second.read_exact(&mut [0; 5000]).unwrap();
        second.write_all(&[7; 8]).unwrap();
        first.read_exact(&mut [0; 8]).unwrap();
        let counts = counts(&first).unwrap();
        // On some kernels, the connection itself counts as one byte.
        assert!((5000..=5001).contains(&counts.acknowledged), "{counts:?}");
        assert!(counts.segment > 500 && counts.packets >= 2 && counts.again == 0, "{counts:?}");
    }
}
