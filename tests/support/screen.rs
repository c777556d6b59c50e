//! A terminal with its own session, seen by the person in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::unistd::{Pid, tcgetpgrp};

use super::running::{Running, as_pid_1};
use super::{DEADLINE, poll_until};

/// The side of the terminal where a user types and reads.
pub struct Screen {
    pub master: File,
    pieces: Receiver<Vec<u8>>,
    /// The text that the terminal has shown since the last text that the test waited for.
    pub text: String,
}

/// Starts a program as PID 1 of a session with its own terminal.
pub fn on_a_terminal(mut command: Command) -> (Running, Screen) {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    if command.get_envs().all(|(name, _)| name != "TERM") {
        command.env("TERM", "dumb");
    }
    command.env("HOME", "/nowhere");
    let end = |slave: &OwnedFd| slave.try_clone().unwrap();
    command.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(pty.slave);
    let other_side = pty.master.as_raw_fd();
    // SAFETY: the closure makes three system calls with plain numbers.
    unsafe {
        command.pre_exec(move || {
            libc::close(other_side);
            match libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(()),
            }
        });
    }
    let running = as_pid_1(command);
    let master = File::from(pty.master);
    let mut source = master.try_clone().unwrap();
    let (send, pieces) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = source.read(&mut buffer) {
            if send.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    (running, Screen { master, pieces, text: String::new() })
}

impl Screen {
    pub fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows this text, after the text that the test waited for before.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.text.find(text) {
                self.text.drain(..at + text.len());
                return;
            }
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.text.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("the terminal does not show {text:?}, but {:?}", self.text),
            }
        }
    }

    pub fn resize(&self, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request only reads the structure.
        unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    }

    /// Waits until this process group is the terminal's foreground group.
    #[track_caller]
    pub fn is_given_to(&self, group: i32) {
        poll_until(&format!("the terminal is given to {group}"), || {
            (tcgetpgrp(&self.master).ok()? == Pid::from_raw(group)).then_some(())
        });
    }
}
