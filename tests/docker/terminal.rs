//! Tests `docker run -t` and `-it` through a pseudo-terminal, like a person's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ttyname};

use crate::support::DEADLINE;
use crate::support::docker::{Container, Engine, engine};

/// A client of the engine in its own terminal.
struct Terminal {
    client: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// The text that has appeared since the last text that the test waited for.
    shown: String,
    all: String,
    /// The descriptor for changing the window's size.
    window: OwnedFd,
}

impl Terminal {
    fn open(mut command: Command) -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let client = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // The command keeps its copies of the terminal's descriptors, so the terminal would never close.
        drop(command);
        let keyboard = File::from(pty.master);
        let mut from = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails with EIO once every process has closed the terminal.
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { client, keyboard, screen, shown: String::new(), all: String::new(), window: pty.slave }
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text appears.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        assert!(self.appears(text, DEADLINE), "{text:?} did not appear: {:?}", self.all);
    }

    fn appears(&mut self, text: &str, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            if let Some(start) = self.shown.find(text) {
                self.shown.drain(..start + text.len());
                return true;
            }
            match self.screen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.show(&bytes),
                Err(_) => return false,
            }
        }
    }

    fn show(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        self.shown += &text;
        self.all += &text;
    }

    /// Changes the window's size repeatedly, as when a person drags its corner, until this text appears.
    #[track_caller]
    fn resize(&mut self, columns: u16, text: &str) {
        let window = ttyname(self.window.as_fd()).unwrap();
        let status =
            Command::new("stty").arg("-F").arg(window).args(["cols", &columns.to_string()]).status().unwrap();
        assert!(status.success());
        let client = Pid::from_raw(self.client.id().try_into().unwrap());
        let until = Instant::now() + DEADLINE;
        while Instant::now() < until {
            // The kernel sends SIGWINCH to the terminal's foreground group, which does not include the
            // client. The client may miss a signal while it starts.
            kill(client, Signal::SIGWINCH).unwrap();
            if self.appears(text, Duration::from_millis(200)) {
                return;
            }
        }
        panic!("{text:?} did not appear: {:?}", self.all);
    }

    /// Waits for the end. Returns the exit code and everything that was shown.
    #[track_caller]
    fn close(mut self) -> (Option<i32>, String) {
        drop(std::mem::replace(&mut self.window, File::open("/dev/null").unwrap().into()));
        let until = Instant::now() + DEADLINE;
        loop {
            match self.screen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.show(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("does not end: {:?}", self.all),
            }
        }
        let status = self.client.wait().unwrap();
        (status.code(), std::mem::take(&mut self.all))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// Starts `docker run -it`.
fn open<'a>(engine: &'a Engine, command: &[&str]) -> (Terminal, Container<'a>) {
    let container = engine.named();
    let mut docker = engine.run_command(&container.name, ["--interactive", "--tty"]);
    docker.arg(&engine.image).args(command);
    (Terminal::open(docker), container)
}

#[test]
fn a_terminal_without_a_keyboard_works() {
    let Some(engine) = engine() else { return };
    let ended = engine.script(["--tty"], "[ -t 0 ] && [ -t 1 ] && echo on a terminal; exit 4").expect_code(4);
    assert!(ended.stdout.contains("on a terminal\r\n"), "{ended:#?}");
    assert!(ended.stdout.contains("there is no RDMA device in this container\r\n"), "{ended:#?}");
}

#[test]
fn attach_and_leave() {
    let Some(engine) = engine() else { return };
    let container = engine.create(["--interactive", "--tty"], &["sh"]);
    container.docker(["start"], &[]).expect_code(0);
    let mut docker = engine.client();
    docker.args(["attach", &container.name]);
    let mut terminal = Terminal::open(docker);
    terminal.type_in("echo to''gether\n");
    terminal.wait_for("together\r\n");
    terminal.type_in("exit 0\n");
    let (code, shown) = terminal.close();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn ctrl_c_ends_the_command() {
    let Some(engine) = engine() else { return };
    let (mut terminal, _container) = open(engine, &["sh", "-c", "echo re''ady; exec sleep 1000"]);
    terminal.wait_for("ready");
    terminal.type_in("\x03");
    let (code, shown) = terminal.close();
    assert_eq!(code, Some(130), "{shown}");
    // The terminal itself sent the signal to the command; PID 1 did not forward it.
    assert!(shown.contains("was killed by SIGINT (exit code 130)"), "{shown}");
    assert!(!shown.contains("forwarded"), "{shown}");
}

#[test]
fn one_ctrl_c_arrives_once() {
    let Some(engine) = engine() else { return };
    let script =
        "trap 'echo interrupted' INT; trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    let (mut terminal, container) = open(engine, &["sh", "-c", script]);
    terminal.wait_for("ready");
    for _ in 0..5 {
        terminal.type_in("\x03");
        terminal.wait_for("interrupted");
    }
    // If PID 1 had forwarded the signal a second time, that one would have arrived before this one.
    container.signal("TERM");
    let (code, shown) = terminal.close();
    assert_eq!((code, shown.matches("interrupted").count()), (Some(9), 5), "{shown}");
}

#[test]
fn a_shell_has_job_control() {
    let Some(engine) = engine() else { return };
    let (mut terminal, _container) = open(engine, &["sh"]);
    terminal.wait_for("/ # ");
    // The trap in the job shows when the job has the terminal again. `sleep` runs in the job's background.
    let job = "sh -c 'trap \"echo res\"umed CONT; echo st\"\"arted; sleep 1000 & while :; do wait; done'\n";
    terminal.type_in(job);
    terminal.wait_for("started\r\n");
    terminal.type_in("\x1a");
    terminal.wait_for("Stopped");
    terminal.type_in("fg\n");
    terminal.wait_for("resumed\r\n");
    terminal.type_in("\x03");
    terminal.wait_for("/ # ");
    terminal.type_in("echo co''de $?\n");
    terminal.wait_for("code 130\r\n");
    terminal.type_in("exit 6\n");
    let (code, shown) = terminal.close();
    assert_eq!(code, Some(6), "{shown}");
    assert!(!shown.contains("job control turned off"), "{shown}");
}

#[test]
fn a_window_that_changes_its_size_tells_the_command() {
    let Some(engine) = engine() else { return };
    let script = "trap 'echo size $(stty size)' WINCH; trap 'exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    let (mut terminal, container) = open(engine, &["sh", "-c", script]);
    terminal.wait_for("ready");
    for columns in [91, 133] {
        terminal.resize(columns, &format!("size 24 {columns}"));
    }
    container.signal("TERM");
    let (code, shown) = terminal.close();
    assert_eq!(code, Some(0), "{shown}");
}
