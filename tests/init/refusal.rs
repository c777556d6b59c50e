//! Tests a command that must not start without the checks: it does not start, however the preparation ends.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::support::clock::{Clock, SECOND};
use crate::support::hang::Hang;
use crate::support::refused_call::refuse;
use crate::support::running::{Ended, after, as_pid_1, hanging, in_place, rdma_init, send};

const HANGS: &str = "/sys/class/infiniband";

/// Returns how a run ended in which the preparation took too long, and the content of its termination log. This much
/// time passes at once when the preparation hangs.
fn timed_out(as_pid_1: bool, keys: &[(&str, &str)], passes: Duration) -> (Ended, String) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let hang = Hang::interruptible(HANGS);
    let mut command = rdma_init(["--prepare-timeout", "500ms", "--", "echo", "started"]);
    command.env("RDMA_INIT_TERMINATION_LOG", &log).envs(keys.iter().copied());
    let clock = Clock::advancing();
    let running = clock.hanging(command, as_pid_1, &hang);
    // Only the timeout ends a hang, even if it expires before the preparation reaches the hang.
    if !passes.is_zero() {
        hang.wait();
        clock.pass(passes);
    }
    let ended = running.end().expect_code(121);
    assert_eq!(ended.stdout, "", "{ended:#?}");
    (ended, fs::read_to_string(log).unwrap())
}

#[test]
fn a_timeout_refuses_where_a_key_asks_for_it_and_names_that_key() {
    let keys = [
        ("RDMA_INIT_REQUIRE_RDMA", "true", "require-rdma does"),
        ("RDMA_INIT_MEMLOCK", "enforce", "memlock = \"enforce\" does"),
        ("RDMA_INIT_SELF_TEST", "enforce", "self-test = \"enforce\" does"),
    ];
    for as_pid_1 in [true, false] {
        for (variable, value, named) in &keys[..2] {
            let (ended, log) = timed_out(as_pid_1, &[(variable, value)], Duration::ZERO);
            let reason = ended.stderr.lines().find_map(|line| {
                line.strip_prefix("rdma-init: refusing to start the command (exit code 121): ")
            });
            let reason = reason.unwrap_or_else(|| panic!("{ended:#?}"));
            assert!(reason.contains("prepare-timeout") && reason.contains(named), "{reason}");
            for (.., other) in keys.iter().filter(|(.., key)| key != named) {
                assert!(!reason.contains(other.split(' ').next().unwrap()), "{reason}");
            }
            assert_eq!(log, format!("rdma-init: {reason}\n"), "as PID 1 {as_pid_1}");
        }
    }
}

/// The time for a self-test is added to the time for the preparation.
#[test]
fn a_timeout_refuses_where_the_self_test_is_enforced() {
    let (ended, log) = timed_out(true, &[("RDMA_INIT_SELF_TEST", "enforce")], 15 * SECOND);
    let ended = ended.expect_time(Duration::ZERO, 15 * SECOND + Duration::from_millis(500));
    for text in [&ended.stderr, &log] {
        assert!(text.contains("and self-test = \"enforce\" does not let the command start"), "{text}");
        assert!(!text.contains("require-rdma") && !text.contains("memlock"), "{text}");
    }
}

/// Without another file name, the reason goes to the kubelet's default termination log.
#[test]
fn the_reason_goes_to_dev_termination_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("termination-log");
    fs::write(&log, "something longer that was there before\n".repeat(20)).unwrap();
    for (keys, is_written) in [(&["RDMA_INIT_REQUIRE_RDMA"][..], true), (&[], false)] {
        let hang = Hang::interruptible(HANGS);
        let mut ours = rdma_init(["--prepare-timeout", "500ms", "--", "/bin/true"]);
        ours.env_remove("RDMA_INIT_CONFIG").envs(keys.iter().map(|key| (key, "true")));
        let mount = format!("mount --bind {} /dev; exec", folder.path().display());
        let running = hanging(after(&mount, ours), true, &hang);
        let ended = running.end().expect_code(if is_written { 121 } else { 0 });
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.starts_with("rdma-init: the preparation did not finish"), is_written, "{ended:#?}");
        assert_eq!(text.lines().count(), if is_written { 1 } else { 20 }, "{ended:#?}");
        fs::write(&log, "something longer that was there before\n".repeat(20)).unwrap();
    }
}

/// A termination log that also hangs does not keep the container from ending.
#[test]
fn a_termination_log_that_hangs_or_fails_does_not_outlast_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (log, fifo) = (folder.path().join("log"), folder.path().join("fifo"));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let hanging_log = || Hang::killable(HANGS).and(log.to_str().unwrap());
    for as_pid_1 in [true, false] {
        for (path, hang) in [(&log, hanging_log()), (&fifo, Hang::interruptible(HANGS))] {
            // Without an init, a call that only SIGKILL can end would hang beyond this time.
            let hang = if as_pid_1 || path == &fifo {
                hang
            } else {
                Hang::interruptible(HANGS).and(log.to_str().unwrap())
            };
            let mut command =
                rdma_init(["--prepare-timeout", "500ms", "--require-rdma", "--", "echo", "started"]);
            command.env("RDMA_INIT_TERMINATION_LOG", path);
            let ended = Clock::advancing().hanging(command, as_pid_1, &hang).end().expect_code(121);
            assert!(ended.waited < 10 * SECOND, "{ended:#?}");
            let failed = format!("cannot write the reason to {}", path.display());
            assert!(ended.stderr.contains(&failed), "{ended:#?}");
            assert_eq!(ended.stdout, "", "{ended:#?}");
        }
    }
}

/// If no descriptor or process is available for the log, the refusal is still quick.
#[test]
fn where_no_process_can_write_the_reason_the_error_says_so() {
    for errno in [libc::EMFILE, libc::ENFILE] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = rdma_init(["--require-rdma", "--", "echo", "started"]);
        command.env("RDMA_INIT_TERMINATION_LOG", folder.path().join("log"));
        refuse(&mut command, &[libc::SYS_pipe2], errno);
        let ended = in_place(command).end().expect_code(121);
        let why = Errno::from_raw(errno);
        let failed = format!("the process that writes it could not be started: {why}");
        assert!(ended.stderr.contains(&failed) && !ended.stderr.contains("took longer"), "{ended:#?}");
    }
}

#[test]
fn a_crash_refuses_where_pinned_memory_is_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let hang = Hang::interruptible(HANGS);
    let mut command = rdma_init(["--", "echo", "started"]);
    command.env("RDMA_INIT_MEMLOCK", "enforce").env("RDMA_INIT_REFUSE_EXIT_CODE", "77");
    command.env("RDMA_INIT_TERMINATION_LOG", &log);
    let running = hanging(command, true, &hang);
    hang.wait();
    send(running.child(), libc::SIGKILL);
    let ended = running.end().expect_code(77);
    assert_eq!(ended.stdout, "", "{ended:#?}");
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "rdma-init: the preparation was killed by SIGKILL, and memlock = \"enforce\" does not let the command start in that case\n"
    );
}

/// Without a key that asks for a refusal, the command starts without the variables that do not fit into the
/// kernel's limits.
#[test]
fn no_room_in_the_environment_refuses_where_a_key_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("c.toml"), folder.path().join("log"));
    // The value is longer, in bytes, than one variable may be (MAX_ARG_STRLEN).
    fs::write(&config, format!("[set]\nT_FILLED = \"{}\"\n", "y".repeat(200_000))).unwrap();
    for is_pid_1 in [true, false] {
        let start = |enforced: bool| {
            let mut command = rdma_init(["--", "echo", "started"]);
            command.env("RDMA_INIT_CONFIG", &config).env("RDMA_INIT_TERMINATION_LOG", &log);
            // The long value in the report would fill the pipe, and the program waits for no slow reader.
            command.env("RDMA_INIT_LOG_LEVEL", "warn");
            if enforced {
                command.env("RDMA_INIT_MEMLOCK", "enforce").env("RDMA_INIT_REFUSE_EXIT_CODE", "77");
            }
            if is_pid_1 { as_pid_1(command).end() } else { in_place(command).end() }
        };
        let reason = "the environment has no room for the variables that were filled in, and memlock = \"enforce\" does not let the command start in that case";
        let ended = start(true).expect_code(77);
        assert_eq!(ended.stdout, "", "{ended:#?}");
        let said = format!("rdma-init: refusing to start the command (exit code 77): {reason}\n");
        assert!(ended.stderr.ends_with(&said), "{ended:#?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), format!("rdma-init: {reason}\n"));
        fs::remove_file(&log).unwrap();

        let ended = start(false).expect_code(0);
        assert_eq!(ended.stdout, "started\n", "{ended:#?}");
        assert!(ended.stderr.contains("the command starts without them"), "{ended:#?}");
        assert!(!log.exists());
    }
}

/// The deadline may expire at the moment when the preparation ends. Only one of the two must take effect.
#[test]
fn a_refused_command_is_not_started_at_the_timeout() {
    for micros in (0..6000).step_by(300) {
        let timeout = format!("{}us", Duration::from_micros(micros).as_micros().max(1));
        let flags = ["--require-rdma", "--prepare-timeout", &timeout, "--", "echo", "started"];
        let ended = as_pid_1(rdma_init(flags)).end().expect_code(121);
        assert_eq!(ended.stdout, "", "{timeout}: {ended:#?}");
    }
}
