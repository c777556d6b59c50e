//! Tests what the command inherits, and which descriptors PID 1 closes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;

use crate::support::clock::{Clock, SECOND};
use crate::support::hang::Hang;
use crate::support::process::close;
use crate::support::running::{
    Running, as_pid_1, descriptors, from_scratch, hanging, has_descriptors, rdma_init, shell, status,
};
use crate::support::signal_states::{STATES, State, inherit, shown};
use crate::support::{poll_until, status_field};

/// Returns the differences between the state of a command that the program started and one that was started
/// directly, for each of [`STATES`].
pub fn differences(options: &[&str], start: fn(Command) -> Running) -> Vec<String> {
    let difference = |state: &State| {
        let mut direct = Command::new("/bin/cat");
        direct.env_clear().arg("/proc/self/status").stdout(Stdio::piped()).stderr(Stdio::piped());
        from_scratch(&mut direct);
        inherit(&mut direct, state);
        let mut ours = rdma_init([options, &["--", "/bin/cat", "/proc/self/status"]].concat());
        inherit(&mut ours, state);
        let (direct, ours) = (start(direct).end(), start(ours).end().expect_code(0));
        let (wanted, found) = (shown(&direct.stdout), shown(&ours.stdout));
        (wanted != found).then(|| format!("{}:\n  wanted {wanted}\n  found  {found}", state.name))
    };
    STATES.iter().filter_map(difference).collect()
}

#[test]
fn the_command_gets_the_mask_and_dispositions_that_pid_1_had() {
    let differences = differences(&[], as_pid_1);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Whatever signal state PID 1 inherits, it notices the end of the command and reaps orphans.
#[test]
fn no_inherited_state_makes_pid_1_hang() {
    for state in STATES {
        let mut command = shell("(sleep 0.01 &); (true &); sleep 0.03; exit 5");
        inherit(&mut command, state);
        let ended = as_pid_1(command).end();
        assert_eq!(ended.status.code(), Some(5), "{}: {ended:#?}", state.name);
    }
}

/// A signal that was pending at the start reaches the command.
#[test]
fn a_pending_signal_reaches_the_command() {
    let mut command = rdma_init(["--", "sleep", "1000"]);
    let blocked = 1 << (libc::SIGTERM - 1);
    inherit(&mut command, &State { name: "pending", blocked, ignored: &[], pending: Some(libc::SIGTERM) });
    let running = as_pid_1(command);
    let child = running.command();
    poll_until("SIGTERM is pending for the command", || {
        let status = status(child);
        (status_field(&status, "ShdPnd")? == format!("{blocked:016x}")).then_some(())
    });
}

/// Duplicates the file's descriptor to a number from 300 up, which stays open over the exec.
fn keep_open(command: &mut Command, file: &File) {
    let fd = file.as_raw_fd();
    // SAFETY: fcntl is async-signal-safe, and the file outlives the start.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_DUPFD, 300) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

#[test]
fn inherited_descriptors_are_the_command_s_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("inherited")).unwrap();
    let mut command = rdma_init(["--", "sleep", "1000"]);
    keep_open(&mut command, &file);
    keep_open(&mut command, &file);
    let running = as_pid_1(command);
    has_descriptors(running.command(), &[0, 1, 2, 300, 301]).unwrap();
    // PID 1 also closes its own pipe to the preparation.
    has_descriptors(running.pid, &[0, 1, 2]).unwrap();
}

#[test]
fn environment_and_arguments_arrive() {
    let mut command = rdma_init(["--set", "T_X=1", "--", "sh", "-c", "echo \"$T_X,$T_Y,$0,$1\"", "a b", ""]);
    command.env("T_Y", "2");
    assert_eq!(as_pid_1(command).end().expect_code(0).stdout, "1,2,a b,\n");
}

fn closed_in_turn() -> impl Iterator<Item = Vec<i32>> {
    (0..8).map(|bits| (0..3).filter(|number| bits & (1 << number) != 0).collect())
}

#[test]
fn standard_descriptors_that_are_closed_stay_closed() {
    let mut failures = Vec::new();
    for closed in closed_in_turn() {
        let mut command = rdma_init(["--set", "T_X=1", "--", "sleep", "1000"]);
        close(&mut command, closed.clone());
        let running = as_pid_1(command);
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.command()));
        let Ok(child) = attempt else {
            failures.push(format!("with {closed:?} closed, the command does not start"));
            continue;
        };
        let wanted: Vec<i32> = (0..3).filter(|number| !closed.contains(number)).collect();
        if let Err(found) = has_descriptors(child, &wanted) {
            failures.push(format!("with {closed:?} closed, the command has {found}"));
        }
        running.kill(libc::SIGTERM);
        running.end().expect_code(143);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Files that PID 1 and the preparation open must never take the place of a closed standard descriptor,
/// because a message would then be written into it. (Before Linux 6.9, an eventfd there would interpret a
/// message as a number.)
#[test]
fn our_own_descriptors_never_take_the_place_of_standard_ones() {
    let mut wrong = Vec::new();
    for closed in closed_in_turn() {
        let hang = Hang::interruptible("/sys/class/infiniband");
        let mut command = rdma_init(["--", "true"]);
        close(&mut command, closed.clone());
        let running = hanging(command, true, &hang);
        hang.wait();
        for (name, pid) in [("PID 1", running.pid), ("the preparation", running.child())] {
            let standard = descriptors(pid).into_iter().filter(|(number, _)| closed.contains(number));
            for (number, what) in standard.filter(|(_, what)| what != "/") {
                wrong.push(format!("with {closed:?} closed, {name} has {what} as {number}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_broken_or_full_standard_error_does_not_matter() {
    let broken = nix::unistd::pipe().unwrap().1;
    let mut command = rdma_init(["--set", "T_X=1", "--", "sh", "-c", "echo \"started $T_X\""]);
    command.stderr(broken);
    assert_eq!(as_pid_1(command).end().expect_code(0).stdout, "started 1\n");

    let (_reader, writer) = nix::unistd::pipe().unwrap();
    // SAFETY: fcntl sets a flag on this test's own pipe; it is cleared once the pipe is full.
    unsafe {
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        while nix::unistd::write(&writer, &[b'.'; 4096]).is_ok() {}
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0);
    }
    let mut command = rdma_init(["--set", "T_X=1", "--", "sh", "-c", "echo \"started $T_X\""]);
    command.stderr(writer);
    let ended = Clock::advancing().as_pid_1(command).end().expect_code(0);
    assert_eq!(ended.stdout, "started 1\n");
    assert!(ended.waited < 20 * SECOND, "{ended:#?}");
}

/// PID 1 writes a message into a broken pipe, and no process ends because of it.
#[test]
fn pid_1_may_speak_into_a_broken_pipe() {
    let mut command = rdma_init(["--prepare-timeout", "1ns", "--", "sh", "-c", "echo started"]);
    command.stderr(nix::unistd::pipe().unwrap().1);
    assert_eq!(as_pid_1(command).end().expect_code(0).stdout, "started\n");
}

#[test]
fn a_low_limit_of_open_files_is_no_hang() {
    for limit in 3..10 {
        let mut command = shell("echo started");
        // SAFETY: setrlimit is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: limit, rlim_max: limit });
                Ok(())
            });
        }
        let ended = as_pid_1(command).end();
        // The shell itself may need a higher limit.
        assert!(ended.status.code().is_some() && !ended.stderr.contains("panicked"), "{limit}: {ended:#?}");
    }
}
