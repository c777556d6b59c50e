//! Tests that standard output belongs to the command, and that a reader of standard error, or the lack of
//! one, cannot keep the command from starting.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::pty::openpty;
use serde_json::Value;

use super::run::{program, rdma_init, run};
use crate::support::executable::copy_of_binary;
use crate::support::golden::facts;
use crate::support::process::close;
use crate::support::{DEADLINE, poll_for, poll_until, skip};

#[test]
fn the_report_goes_to_standard_error_alone() {
    for level in ["error", "warn", "info", "debug"] {
        for format in ["text", "json"] {
            let flags = ["--log-level", level, "--log-format", format, "--set", "T_X=1"];
            let command = rdma_init(flags.iter().chain(&["--", "printf", "%s", "only this"]));
            let ran = run(command).expect_code(0);
            assert_eq!(ran.text(), "only this", "{level} {format}");
        }
    }
    let ran = run(rdma_init(["--set", "T_X=1", "--", "true"])).expect_code(0);
    assert!(ran.stderr.starts_with("rdma-init ") && ran.stderr.contains("T_X"), "{ran:#?}");
}

/// The log is for people and for programs, so it must not contain Rust's debug output.
#[test]
fn a_debug_log_shows_no_structures_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let lines: [&[&str]; 4] = [
        &["plan", "--facts", "demo:cce-roce"],
        &["--set", "NCCL_DEBUG=WARN", "--", "true"],
        &["--set", "NCCL_DEBUG=WARN", "--self-test", "warn", "--supervise", "--", "true"],
        &["exec", "--", "true"],
    ];
    for line in lines {
        for format in ["text", "json"] {
            let flags = ["--log-level", "debug", "--log-format", format, "--state-dir", state];
            let said = run(rdma_init(flags.iter().chain(line))).stderr;
            let is_of_rust = |text: &str| {
                ["Some(", "None", "Ok(", "Err("].iter().any(|word| text.contains(word))
                    || format == "text" && text.contains(" { ")
            };
            let bad: Vec<&str> = said.lines().filter(|text| is_of_rust(text)).collect();
            assert!(bad.is_empty(), "{line:?}: {bad:#?}");
            if line.contains(&"true") {
                assert!(said.contains("state"), "{line:?}: {said}");
            }
        }
    }
}

#[test]
fn json_is_one_object_on_each_line() {
    let arguments = ["--log-format", "json", "--set", "T_X=quote \" and\nline", "--", "true"];
    let ran = run(rdma_init(arguments)).expect_code(0);
    let lines: Vec<Value> = objects(&ran.stderr);
    assert!(lines.iter().any(|line| line["event"] == "plan"), "{ran:#?}");
    let variable = lines.iter().find(|line| line["variable"] == "T_X");
    assert_eq!(variable.expect("T_X is reported")["value"], "quote \" and\nline");
}

/// If the user requested JSON, a failure is reported in JSON as well.
#[test]
fn failures_are_json_as_well() {
    let ran = run(rdma_init(["--log-format", "json", "--", "no-such-command"])).expect_code(127);
    let lines = objects(&ran.stderr);
    assert!(
        lines.iter().any(|line| line["message"].as_str().unwrap_or_default().contains("no-such-command"))
    );
    let ran = run(rdma_init(["--log-format", "json", "--profile", "nosuch", "--", "true"])).expect_code(125);
    assert!(!objects(&ran.stderr).is_empty());
    let ran = run(rdma_init(["--log-format", "json", "--memlock", "on", "--", "true"])).expect_code(125);
    assert!(!objects(&ran.stderr).is_empty());
}

#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| match serde_json::from_str::<Value>(line) {
            Ok(value) if value.is_object() => value,
            other => panic!("{line:?} is no JSON object: {other:?}"),
        })
        .collect()
}

#[test]
fn level_error_is_silent_when_nothing_is_wrong() {
    for format in ["text", "json"] {
        let ran = run(rdma_init(["--log-level", "error", "--log-format", format, "--", "true"]));
        assert_eq!(ran.expect_code(0).stderr, "");
    }
}

/// A report that shows only warnings also contains the line with the decision, because a warning alone does
/// not say what it is about.
#[test]
fn a_warning_stands_below_what_was_decided() {
    let mut command = rdma_init(["--log-level", "warn", "--", "true"]);
    command.env("NCCL_IB_DISABEL", "1");
    let ran = run(command).expect_code(0);
    let (head, rest) = ran.stderr.split_once('\n').unwrap();
    let known = concat!("rdma-init ", env!("CARGO_PKG_VERSION"), ": ");
    assert!(head.strip_prefix(known).is_some_and(|decided| decided.contains("RDMA")), "{ran:#?}");
    assert!(rest.starts_with("  warning: ") && rest.contains("NCCL_IB_DISABEL"), "{ran:#?}");
}

/// Runs `echo started` with this standard error, and fails unless the command starts. The time limit of the
/// preparation cannot help: only the program itself may give a reader up.
#[track_caller]
fn starts_without_a_reader(stderr: impl Into<Stdio>, flags: &[&str]) {
    let flags = [&["--prepare-timeout", "1h"], flags].concat();
    let mut command = rdma_init(flags.iter().chain(&["--", "sh", "-c", "echo started"]));
    command.stderr(stderr).stdout(Stdio::piped()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    let watch = watch_over(&child);
    let output = child.wait_with_output().unwrap();
    drop(watch);
    assert!(output.status.success() && output.stdout == b"started\n", "{output:?}");
}

/// Kills a process that hangs, so that the test fails instead of hanging. The caller drops the result once
/// the process has ended; then nothing is killed.
fn watch_over(child: &Child) -> Sender<()> {
    let (sender, ended) = channel();
    let pid = child.id().cast_signed();
    std::thread::spawn(move || {
        if ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: kill takes plain numbers. The sender is dropped right after the process
            // has ended, so its number is not yet another process's.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    sender
}

/// Returns a setting that makes the report longer than the room that the tests leave in a pipe.
fn long() -> String {
    format!("T_LONG={}", "x".repeat(3000))
}

#[test]
fn a_broken_pipe_does_not_matter() {
    let broken = || nix::unistd::pipe().unwrap().1;
    starts_without_a_reader(broken(), &[]);
    starts_without_a_reader(broken(), &["--set", &long()]);
    starts_without_a_reader(broken(), &["--log-format", "json"]);
    // A failure writes nothing to standard output, either.
    let mut command = rdma_init(["--", "no-such-command"]);
    command.stderr(broken());
    assert_eq!(command.status().unwrap().code(), Some(127));
    let mut command = rdma_init::<&str>([]);
    command.stderr(broken());
    assert_eq!(command.status().unwrap().code(), Some(125));
}

/// Writes until the pipe has no room left.
fn fill(writer: &OwnedFd) {
    let flags = OFlag::from_bits_retain(fcntl(writer, FcntlArg::F_GETFL).unwrap());
    fcntl(writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    for chunk in [4096, 1] {
        while nix::unistd::write(writer, &vec![b'.'; chunk]).is_ok() {}
    }
    fcntl(writer, FcntlArg::F_SETFL(flags)).unwrap();
}

#[test]
fn a_full_pipe_that_is_not_read_does_not_delay_the_start() {
    for format in ["text", "json"] {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        fill(&writer);
        starts_without_a_reader(writer.try_clone().unwrap(), &["--log-format", format]);
        // Now the pipe has room for only part of the report.
        nix::unistd::read(&reader, &mut [0; 4096]).unwrap();
        starts_without_a_reader(writer, &["--log-format", format, "--set", &long()]);
        drop(reader);
    }
}

#[test]
fn a_terminal_that_is_not_read_does_not_delay_the_start() {
    for take_back in [0, 100, 1000] {
        let pty = openpty(None, None).unwrap();
        fill(&pty.slave);
        if take_back > 0 {
            nix::unistd::read(&pty.master, &mut vec![0; take_back]).unwrap();
        }
        starts_without_a_reader(pty.slave, &["--set", &long()]);
    }
}

#[test]
fn a_full_socket_that_is_not_read_does_not_delay_the_start() {
    let (writer, _reader) = std::os::unix::net::UnixStream::pair().unwrap();
    let writer = OwnedFd::from(writer);
    fill(&writer);
    starts_without_a_reader(writer, &["--set", &long()]);
}

#[test]
fn a_full_disk_or_a_file_for_reading_does_not_matter() {
    starts_without_a_reader(File::options().write(true).open("/dev/full").unwrap(), &[]);
    starts_without_a_reader(File::open("/dev/null").unwrap(), &[]);
    starts_without_a_reader(File::open("/etc").unwrap(), &[]);
}

#[test]
fn standard_descriptors_that_are_closed_stay_closed() {
    for bits in 0..8 {
        let closed: Vec<i32> = (0..3).filter(|number| bits & (1 << number) != 0).collect();
        let mut command = rdma_init(["--", "sleep", "1000"]);
        close(&mut command, closed.clone());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let proc = format!("/proc/{}", child.id());
        let sleeps = || (fs::read_to_string(format!("{proc}/comm")).ok()? == "sleep\n").then_some(());
        let started = std::panic::catch_unwind(|| poll_until("the command starts", sleeps));
        let wanted: Vec<String> = (0..3).filter(|n| !closed.contains(n)).map(|n| n.to_string()).collect();
        let open = || {
            let entries = fs::read_dir(format!("{proc}/fd")).unwrap();
            let mut open: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            open.sort_unstable();
            open
        };
        // While the program starts, it briefly has files open.
        let settled = poll_for(DEADLINE, || (open() == wanted).then_some(()));
        let open = open();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(started.is_ok(), "with {closed:?} closed");
        assert!(settled.is_some(), "with {closed:?} closed: {open:?}");
    }
}

/// If standard error is closed, the next file that is opened must not get its descriptor number.
#[test]
fn messages_never_land_in_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    File::create(&config).unwrap().write_all(b"memlock = \"off\"\n").unwrap();
    let mut command = rdma_init(["--set", &long(), "--", "sh", "-c", "exit 3"]);
    command.env("RDMA_INIT_CONFIG", &config);
    close(&mut command, vec![0, 1, 2]);
    assert_eq!(command.status().unwrap().code(), Some(3));
    assert_eq!(fs::read(&config).unwrap(), b"memlock = \"off\"\n");
}

#[test]
fn a_reader_of_our_own_commands_may_go_away() {
    for arguments in
        [&["profiles"][..], &["inspect", "--json"], &["--help"], &["plan", "--facts", "demo:erdma"]]
    {
        let mut command = rdma_init(arguments);
        command.stdout(nix::unistd::pipe().unwrap().1).stderr(Stdio::piped());
        let output = command.output().unwrap();
        // Like any program, it ends without a message, by the signal or with an exit code.
        assert!(matches!(output.status.signal(), None | Some(libc::SIGPIPE)), "{output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn standard_output_that_cannot_be_written_is_an_error() {
    let mut command = rdma_init(["profiles"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot write to standard output: No space left"), "{said}");
}

/// A fix is to be pasted.
#[test]
fn texts_name_the_program_by_its_path_if_no_path_leads_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy_of_binary(folder.path());
    let shown = path.to_str().unwrap();
    let facts = facts("device-plugin-given-hcas-are-down");
    let said = |command: Command| run(command).text().to_owned();
    let advice = |own: &str| format!("the lines `skip` of `{own} plan`");
    let absolute = said(program(&path, ["plan", "--facts", &facts]));
    assert!(absolute.contains(&advice(shown)), "{absolute}");
    let mut relative = program("./rdma-init", ["plan", "--facts", &facts]);
    relative.current_dir(folder.path());
    assert!(said(relative).contains(&advice(shown)));
    let mut in_path = program(&path, ["plan", "--facts", &facts]);
    in_path.env("PATH", folder.path());
    assert!(said(in_path).contains(&advice("rdma-init")));
    let usage = run(program(&path, ["plan", "--no-such"])).expect_error(&[]);
    assert!(usage.stderr.contains(&format!("see {shown} plan --help")), "{usage:#?}");
}

#[test]
fn quiet_shows_only_what_is_wrong() {
    let on = |facts: &str, words: &[&str]| {
        run(rdma_init(words.iter().chain(&["--quiet", "--facts", facts]))).text().to_owned()
    };
    let sound = "demo:cce-roce";
    assert_eq!([on(sound, &["plan"]), on(sound, &["self-test"])], ["", ""]);
    let broken = facts("device-plugin-given-hcas-are-down");
    let plan = on(&broken, &["plan"]);
    assert!(plan.starts_with("rdma-init ") && plan.contains("\n  error: "), "{plan}");
    assert!(!plan.contains("\n  use ") && !plan.contains("\n  skip ") && !plan.contains("note: "), "{plan}");
    let tests = on(&broken, &["self-test"]);
    assert!(tests.contains("FAILED") && !tests.contains("\n  ok "), "{tests}");
}

#[test]
fn the_licenses_of_all_that_is_linked_are_in_the_program_s_file() {
    let ran = run(rdma_init(["licenses"]));
    if ran.stderr.contains("has no notices") {
        return skip(
            "the build could not collect the notices: it needs Debian's copyright files, and a Rust of rustup",
        );
    }
    let ran = ran.expect_code(0);
    for text in [
        "MIT License",
        "Apache License",
        "rdma-core",
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "miniz_oxide",
        "glibc",
    ] {
        assert!(ran.text().contains(text), "{text}");
    }
    // `strip` removes them.
    let folder = tempfile::tempdir().unwrap();
    let path = copy_of_binary(folder.path());
    run(program("truncate", ["-s", "-1", path.to_str().unwrap()])).expect_code(0);
    run(program(&path, ["licenses"])).expect_error(&["has no notices", "licenses/"]);
}
