//! A child process that reports to its parent over a socket. If it hangs or crashes, only that process is
//! affected.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use caps::Capability;
use nix::errno::Errno;
use nix::libc::SIGKILL;
use nix::unistd::Pid;

use super::stdio::close_inherited;
use super::{capabilities, fork, seccomp, signals};
use crate::exit;

/// The capabilities that a port's test may need: to open a device that only root may open, and to pin memory.
const CAPABILITIES: [Capability; 2] = [Capability::CAP_DAC_OVERRIDE, Capability::CAP_IPC_LOCK];

/// Starts a child that works with its end of a socket, and exits with 0 if the work returns `true`. The child dies with
/// its parent, has only these descriptors and the standard ones, keeps few capabilities, and can execute no program.
/// Reading the parent's end does not block.
///
/// # Errors
/// Fails as [`fork::spawn`] and socketpair(2) do.
pub(crate) fn start(
    keep: &[RawFd],
    work: impl FnOnce(UnixStream) -> bool,
) -> Result<(Pid, UnixStream), Errno> {
    let pair = UnixStream::pair().and_then(|(ours, its)| ours.set_nonblocking(true).map(|()| (ours, its)));
    let (ours, its) = pair.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let parent = Pid::this();
    let mut kept = keep.to_vec();
    kept.push(its.as_raw_fd());
    let pid = fork::spawn(move || {
        signals::on_parent_death(SIGKILL, parent);
        close_inherited(&mut kept);
        capabilities::keep_only(&CAPABILITIES);
        seccomp::refuse_what_is_never_called();
        if work(its) { 0 } else { exit::FAILED }
    })?;
    Ok((pid, ours))
}

/// Whether the child may report more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    More,
    All,
    /// `take` did not accept the bytes.
    TooMuch,
}

/// Reads what the child has reported so far. `take` returns whether it accepts the bytes.
pub(crate) fn read(socket: &mut UnixStream, mut take: impl FnMut(&[u8]) -> bool) -> ReadState {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return ReadState::All,
            Ok(length) if !take(buffer.get(..length).unwrap_or_default()) => return ReadState::TooMuch,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return ReadState::More,
            Err(_) => return ReadState::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use caps::{CapSet, CapsHashSet};

    use super::*;

    #[test]
    fn a_child_keeps_few_capabilities() {
        let held = |set| caps::read(None, set).unwrap();
        let own = held(CapSet::Permitted);
        let (_, mut socket) = start(&[], move |mut socket| {
            let kept: CapsHashSet = own.intersection(&CAPABILITIES.into_iter().collect()).copied().collect();
            socket.write_all(&[u8::from(held(CapSet::Permitted) == kept)]).is_ok()
        })
        .unwrap();
        socket.set_nonblocking(false).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [1]);
    }

    #[test]
    fn a_child_executes_no_program() {
        let (_, mut socket) = start(&[], |mut socket| {
            let executed = nix::unistd::execv(c"/bin/true", &[c"true"]);
            socket.write_all(&[u8::from(executed == Err(Errno::EPERM))]).is_ok()
        })
        .unwrap();
        socket.set_nonblocking(false).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [1]);
    }
}
