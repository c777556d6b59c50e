//! Tests a limit on the size of files (`ulimit -f`). A write beyond the limit fails, and also
//! raises SIGXFSZ, which ends a process that has no handler for it.

use std::fs;
use std::process::Command;

use nix::libc;

use crate::support::hang::Hang;
use crate::support::running::{Way, after, as_pid_1, in_place, rdma_init, send, shell};
use crate::support::signal_states::{State, inherit};

/// Makes the program run under a limit of 0, with this place for its state.
fn limited(place: &tempfile::TempDir, mut ours: Command) -> Command {
    ours.env("RDMA_INIT_STATE_DIR", place.path());
    after("ulimit -f 0; exec", ours)
}

const WAYS: [Way; 3] = [(&[], in_place), (&["--supervise"], in_place), (&[], as_pid_1)];

#[test]
fn a_limit_of_nothing_does_not_keep_the_command_from_its_start() {
    let place = tempfile::tempdir().unwrap();
    for (flags, start) in WAYS {
        let script = "echo \"$T_X\"; exit 7";
        let ours = rdma_init([flags, &["--set", "T_X=prepared", "--", "sh", "-c", script]].concat());
        let ended = start(limited(&place, ours)).end().expect_code(7);
        assert_eq!(ended.stdout, "prepared\n", "{ended:#?}");
    }
}

/// What an earlier start left is removed, because the command gets other values.
#[test]
fn a_failed_state_update_is_not_blamed_on_another_user() {
    for (flags, start) in WAYS {
        let place = tempfile::tempdir().unwrap();
        let ours = |value: &str| {
            let set = format!("NCCL_IB_TC={value}");
            let mut ours = rdma_init([flags, &["--set", &set, "--", "true"]].concat());
            ours.env("RDMA_INIT_STATE_DIR", place.path());
            ours
        };
        start(ours("106")).end().expect_code(0);
        assert!(fs::read_to_string(place.path().join("env.sh")).unwrap().contains("106"));
        let ended = start(limited(&place, ours("107"))).end().expect_code(0);
        assert!(ended.stderr.contains("EFBIG"), "{flags:?}: {ended:#?}");
        assert!(!ended.stderr.contains("another user or container"), "{flags:?}: {ended:#?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{flags:?}: {ended:#?}");
    }
}

/// The command inherits the disposition of SIGXFSZ from the program's parent, not from the program.
#[test]
fn the_command_inherits_what_there_was() {
    let place = tempfile::tempdir().unwrap();
    let ignored = State { name: "ignored XFSZ", blocked: 0, ignored: &[libc::SIGXFSZ], pending: None };
    let default = State { name: "nothing", ignored: &[], ..ignored };
    for (flags, start) in WAYS {
        for state in [ignored, default] {
            let ours = rdma_init([flags, &["--", "cat", "/proc/self/status"]].concat());
            let mut command = limited(&place, ours);
            inherit(&mut command, &state);
            let found = start(command).end().expect_code(0).stdout;
            let mask = if state.ignored.is_empty() { 0 } else { 1u64 << (libc::SIGXFSZ - 1) };
            assert!(found.contains(&format!("SigIgn:\t{mask:016x}\n")), "{}: {found}", state.name);
            for empty in ["SigCgt", "SigPnd", "ShdPnd", "SigBlk"] {
                assert!(found.contains(&format!("{empty}:\t{:016x}\n", 0)), "{}: {found}", state.name);
            }
        }
    }
}

/// The messages of PID 1 exceed the limit. The signal that this raises must end neither PID 1 nor the
/// command.
#[test]
fn messages_beyond_the_file_size_limit_end_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (log, script) = (folder.path().join("log"), "sh -c \"true & exec true\"; ");
    fs::write(&log, "").unwrap();
    let all = format!("{}exit 7", script.repeat(20));
    let ours = rdma_init(["--warn-on-reap", "--", "sh", "-c", &all]);
    let first = format!("exec 2>{}; ulimit -f 0; exec", log.display());
    as_pid_1(after(&first, ours)).end().expect_code(7);
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
}

/// A SIGXFSZ that another process sends has the same effect as without the program.
#[test]
fn sigxfsz_from_another_process_keeps_its_effect() {
    const HANGS: &str = "/sys/class/infiniband";
    for is_pid_1 in [true, false] {
        let hang = Hang::interruptible(HANGS);
        let running = crate::support::running::hanging(shell("echo started"), is_pid_1, &hang);
        hang.wait();
        send(running.pid, libc::SIGXFSZ);
        let ended = running.end();
        let code = ended.status.code();
        assert_eq!(ended.stdout, "", "{ended:#?}");
        let signal = crate::support::running::signal_of(ended.status);
        assert!(if is_pid_1 { code == Some(153) } else { signal == Some(libc::SIGXFSZ) }, "{ended:#?}");
    }
}
