//! A cable between two network namespaces that delays each frame. Not every kernel has netem.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Forwards the frames of two TAP interfaces to each other. Dropping this value removes both interfaces.
pub struct SlowCable {
    forwarder: Option<JoinHandle<()>>,
    /// Closing this ends the forwarder.
    running: Option<UnixStream>,
}

impl SlowCable {
    /// Returns a cable. Each end is a process with the namespace, and the interface's name there.
    pub fn new(ends: [(u32, &str); 2], delay: Duration) -> SlowCable {
        let taps = ends.map(|(pid, name)| tap(pid, name));
        let (running, end) = UnixStream::pair().unwrap();
        let forwarder = Some(std::thread::spawn(move || forward(taps, delay, &end)));
        SlowCable { forwarder, running: Some(running) }
    }
}

impl Drop for SlowCable {
    fn drop(&mut self) {
        self.running = None;
        if let Some(forwarder) = self.forwarder.take() {
            let _ = forwarder.join();
        }
    }
}

/// Creates a TAP interface in a process's network namespace.
fn tap(pid: u32, name: &str) -> File {
    let name = name.to_owned();
    // Only this thread enters the namespace, and then ends.
    let make = move || {
        let namespace = File::open(format!("/proc/{pid}/ns/net")).unwrap();
        // SAFETY: the descriptor is open; the call changes this thread alone.
        assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
        let mut options = File::options();
        let file =
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
        // SAFETY: a structure of numbers and arrays, which may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request lives longer than the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        assert_eq!(made, 0, "{name}: {}", std::io::Error::last_os_error());
        file
    };
    std::thread::spawn(make).join().unwrap()
}

/// Frames in flight to the other end, each with its arrival time.
type OnTheirWay = VecDeque<(Instant, Vec<u8>)>;

fn forward(mut taps: [File; 2], delay: Duration, end: &UnixStream) {
    let mut frames: [OnTheirWay; 2] = Default::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let next = frames.iter().filter_map(|frames| frames.front()).map(|(at, _)| *at).min();
        let timeout = next.map_or(PollTimeout::NONE, |at| {
            // Rounds up to the next millisecond, so that no frame is late by less than one.
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let mut fds =
            [end.as_fd(), taps[0].as_fd(), taps[1].as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, timeout);
        if fds[0].any() == Some(true) {
            return;
        }
        for (tap, frames) in taps.iter_mut().zip(&mut frames) {
            loop {
                match tap.read(&mut buffer) {
                    Ok(length) => frames.push_back((Instant::now() + delay, buffer[..length].to_vec())),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // There are no more frames, or the interface is down.
                    Err(_) => break,
                }
            }
        }
        let now = Instant::now();
        for (from, frames) in frames.iter_mut().enumerate() {
            while frames.front().is_some_and(|(at, _)| *at <= now) {
                let (_, frame) = frames.pop_front().expect("there is one");
                // If the interface is down, it loses the frame, as a cable would.
                let _ = taps[1 - from].write(&frame);
            }
        }
    }
}
