//! Simulates another writer to standard error that is always first: as soon as the program has decided to
//! write, because the pipe has room, this writer fills that room.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::hang::{answering, go_on, install, receive};

/// The calls that can put data into a pipe, with the descriptor as the first argument.
const CALLS: [libc::c_long; 4] = [libc::SYS_write, libc::SYS_writev, libc::SYS_pwritev2, libc::SYS_vmsplice];

/// Returns a function that installs the filter for this standard error. The thread that then starts the
/// program must call it.
pub fn before_each_write(pipe: &OwnedFd) -> impl FnOnce() + Send + use<> {
    // This opens a separate file description, so that only this one is non-blocking.
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut writer = writer.expect("the pipe can be opened");
    let answer = answering(move |listener| {
        while has_call(&listener) {
            let Some(call) = receive(&listener) else { continue };
            if call.data.args[0] == libc::STDERR_FILENO as u64 {
                fill(&mut writer);
            }
            go_on(&listener, call.id);
        }
    });
    move || {
        let listener = install(&CALLS, 0).expect("a seccomp filter can be installed");
        answer(listener);
    }
}

/// Waits for a call; returns `false` if no process has the filter any more.
fn has_call(listener: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let come = poll(&mut fds, PollTimeout::NONE);
    come.is_ok() && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

fn fill(pipe: &mut File) {
    for size in [4096, 1] {
        while pipe.write(&[b'x'; 4096][..size]).is_ok() {}
    }
}
