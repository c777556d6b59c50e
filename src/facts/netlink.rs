//! Requests to the kernel over a netlink socket (netlink(7)), and its answers.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvmsg, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// In bytes: `struct nlmsghdr`.
const HEADER: usize = 16;

/// The most messages from other processes to skip while waiting for the kernel's answer.
const MOST_STRANGE: usize = 4096;

/// Opens a netlink socket.
///
/// # Errors
/// The socket's error: a sandbox may refuse it.
pub(super) fn open(protocol: SockProtocol) -> Result<OwnedFd, Errno> {
    let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    // The kernel answers at once. A sandbox that only pretends to support netlink must not delay the command.
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
    Ok(fd)
}

/// Sends a request. `flags` are the flags in addition to `NLM_F_REQUEST`; `payload` follows the header.
///
/// # Errors
/// The socket's error.
pub(super) fn ask(fd: &OwnedFd, kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Result<(), Errno> {
    let mut bytes = [&[0; HEADER], payload].concat();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut packet = NetlinkBuffer::new(&mut bytes);
    packet.set_length(length);
    packet.set_message_type(kind);
    packet.set_flags(NLM_F_REQUEST | flags);
    packet.set_sequence_number(sequence);
    sendto(fd.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty()).map(drop)
}

/// Receives complete messages from the kernel.
///
/// # Errors
/// The socket's error; EMSGSIZE if the buffer is too small.
pub(super) fn receive<'b>(fd: &OwnedFd, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    for _ in 0..MOST_STRANGE {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg::<NetlinkAddr>(fd.as_raw_fd(), &mut parts, None, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(received) if received.flags.contains(MsgFlags::MSG_TRUNC) => return Err(Errno::EMSGSIZE),
            Ok(received) if received.bytes == 0 => break,
            // Other processes may send to this socket, too.
            Ok(received) if received.address.is_some_and(|address| address.pid() != 0) => {}
            Ok(received) => {
                let length = received.bytes;
                return Ok(buffer.get(..length).unwrap_or_default());
            }
        }
    }
    Err(Errno::EBADMSG)
}
