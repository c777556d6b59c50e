//! Tests a preparation that crashes where no PID 1 monitors it: the command still starts, once, in the
//! place of the preparation.

use std::fs;
use std::process::Command;

use nix::libc;

use crate::support::hang::Hang;
use crate::support::refused_call::refuse;
use crate::support::running::{Ended, after, as_pid_1, hanging, in_place, rdma_init, send, signal_of};

const HANGS: &str = "/sys/class/infiniband";

const SIGNALS: [(i32, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
];

/// Makes a command that prints a variable. The variable is set only if the preparation finished.
fn command() -> Command {
    let script = "echo \"ran $$ ${T_X:-unprepared}\"; exit 7";
    rdma_init(["--set", "T_X=prepared", "--", "sh", "-c", script])
}

/// Sends a signal that names the process itself as its sender, as a real fault does.
pub fn fault(pid: i32, signal: i32) {
    // SAFETY: the structure is plain data that starts as `struct siginfo` does: three numbers, then
    // padding, and then the sender's process and user.
    let sent = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = signal;
        info.si_code = libc::SI_QUEUE;
        (&raw mut info).cast::<i32>().add(4).write(pid);
        libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, &raw const info)
    };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

/// Lets the preparation hang, and makes it crash there.
fn crashed(mut command: Command, path: &str, signal: i32, change: impl FnOnce(&mut Command)) -> (Ended, i32) {
    change(&mut command);
    let hang = Hang::interruptible(path);
    let running = hanging(command, false, &hang);
    let pid = hang.wait();
    assert_eq!(pid, running.pid);
    fault(pid, signal);
    (running.end(), pid)
}

#[test]
fn the_command_starts_in_place() {
    for (signal, name) in SIGNALS {
        let (ended, pid) = crashed(command(), HANGS, signal, |_| {});
        let ended = ended.expect_code(7);
        assert_eq!(ended.stdout, format!("ran {pid} unprepared\n"), "{ended:#?}");
        let said = format!(
            "rdma-init: the preparation was killed by {name}. The command is started as it would have \
             been without rdma-init: no variable is filled in.\n"
        );
        assert!(ended.stderr.ends_with(&said), "{ended:#?}");
    }
}

/// Causes a real crash: the stack is too small.
#[test]
fn a_stack_that_is_too_small_does_not_keep_the_command_from_its_start() {
    for start in [in_place, as_pid_1] {
        let mut crashes = 0;
        for size in [64, 80, 96, 112] {
            let ended = start(after(&format!("ulimit -s {size}; exec"), command())).end().expect_code(7);
            assert_eq!(ended.stdout.matches("ran ").count(), 1, "{size}: {ended:#?}");
            let is_killed = ended.stderr.contains("the preparation was killed by SIGSEGV");
            assert_eq!(is_killed, ended.stdout.ends_with(" unprepared\n"), "{size}: {ended:#?}");
            crashes += usize::from(is_killed);
        }
        println!("{crashes} of 4 crashed");
    }
}

#[test]
fn what_was_decided_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("a-state-that-hangs");
    let (ended, pid) = crashed(command(), "a-state-that-hangs", libc::SIGSEGV, |command| {
        command.env("RDMA_INIT_STATE_DIR", &state);
    });
    let ended = ended.expect_code(7);
    assert_eq!(ended.stdout, format!("ran {pid} prepared\n"), "{ended:#?}");
    for part in ["the preparation was killed by SIGSEGV", "started with what was decided"] {
        assert_eq!(ended.stderr.matches(part).count(), 1, "{part}: {ended:#?}");
    }
}

#[test]
fn it_refuses_where_a_key_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let (ended, _) = crashed(command(), HANGS, libc::SIGABRT, |command| {
        command.env("RDMA_INIT_REQUIRE_RDMA", "true").env("RDMA_INIT_REFUSE_EXIT_CODE", "77");
        command.env("RDMA_INIT_TERMINATION_LOG", &log);
    });
    let ended = ended.expect_code(77);
    assert_eq!(ended.stdout, "", "{ended:#?}");
    let reason = "the preparation was killed by SIGABRT, and require-rdma does not let the command start in that case\n";
    assert!(ended.stderr.ends_with(reason), "{ended:#?}");
    assert_eq!(fs::read_to_string(&log).unwrap(), format!("rdma-init: {reason}"));
}

/// The parent of the program may have blocked all signals, and the kernel kills a process for a fault whose
/// signal is blocked.
const BLOCKED: &str = "exec env --block-signal=SEGV --block-signal=ABRT";

#[test]
fn a_signal_that_is_blocked_is_a_crash_nevertheless() {
    let first = format!("ulimit -s 64; {BLOCKED}");
    let ended = in_place(after(&first, command())).end().expect_code(7);
    assert_eq!(ended.stdout.matches("ran ").count(), 1, "{ended:#?}");
}

/// A signal that another process sends in the meantime stays pending for the command, which inherits the
/// mask.
#[test]
fn a_signal_that_is_blocked_waits_for_the_command() {
    for signal in [libc::SIGSEGV, libc::SIGABRT] {
        let hang = Hang::interruptible(HANGS);
        let ours = rdma_init(["--", "grep", "-E", "^(SigBlk|ShdPnd)", "/proc/self/status"]);
        let running = hanging(after(BLOCKED, ours), false, &hang);
        hang.wait();
        send(running.pid, signal);
        hang.release();
        let ended = running.end().expect_code(0);
        let mask = |signals: &[i32]| signals.iter().fold(0u64, |mask, signal| mask | 1 << (signal - 1));
        let (pending, blocked) = (mask(&[signal]), mask(&[libc::SIGSEGV, libc::SIGABRT]));
        assert_eq!(ended.stdout, format!("ShdPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}\n"), "{ended:#?}");
    }
}

/// The parser of the flags needs more stack than there is.
#[test]
fn a_flag_is_obeyed_that_could_not_be_parsed() {
    for start in [in_place, as_pid_1] {
        for size in [64, 96, 128, 160] {
            let ours = rdma_init(["--require-rdma", "--", "echo", "started"]);
            let ended = start(after(&format!("ulimit -s {size}; exec"), ours)).end().expect_code(121);
            assert_eq!(ended.stdout, "", "{size}: {ended:#?}");
        }
    }
}

/// Such a signal from another process is for the command, as without rdma-init.
#[test]
fn a_crash_signal_from_another_process_is_not_a_crash() {
    for (signal, name) in SIGNALS {
        let hang = Hang::interruptible(HANGS);
        let running = hanging(command(), false, &hang);
        hang.wait();
        send(running.pid, signal);
        let ended = running.end();
        assert_eq!(
            (signal_of(ended.status), ended.stdout.as_str()),
            (Some(signal), ""),
            "{name}: {ended:#?}"
        );
    }
}

/// After such an error, glibc's getifaddrs(3) and if_nameindex(3) would end the process.
#[test]
fn an_odd_error_of_the_netlink_socket_is_no_crash() {
    for errno in [libc::ENOTCONN, libc::ECONNREFUSED, libc::EBADF] {
        let mut command = rdma_init(["inspect", "--json"]);
        refuse(&mut command, &[libc::SYS_recvmsg], errno);
        let ended = in_place(command).end().expect_code(0);
        assert!(ended.stdout.contains("interfaces cannot be listed"), "{errno}: {ended:#?}");
    }
}
