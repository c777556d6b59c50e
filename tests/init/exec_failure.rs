//! Tests a command that could not be executed, and a command that ends with the same code.

use nix::libc;

use crate::support::hang::Hang;
use crate::support::running::{Running, as_pid_1, hanging, in_place, rdma_init, send};

fn both(options: &[&str], command: &[&str]) -> [Running; 2] {
    let with = |more: &[&str]| rdma_init([options, more, &["--"], command].concat());
    [as_pid_1(with(&[])), in_place(with(&["--supervise"]))]
}

#[test]
fn a_command_that_cannot_be_executed_is_named_with_the_reason() {
    let cases: [(&[&str], i32, &str); 9] = [
        (&["no-such-command"], 127, "cannot run no-such-command: it is not in the PATH (ENOENT)"),
        (&["/no/such"], 127, "cannot run /no/such: there is no such file"),
        (&["/"], 126, "cannot run /: it is a directory"),
        (
            &["plan"],
            127,
            "it is not in the PATH (ENOENT). If you mean that of rdma-init: docker run --entrypoint /",
        ),
        (
            &["--require-rdma", "x"],
            127,
            "Set RDMA_INIT_REQUIRE_RDMA instead (docker run -e), or use docker run --entrypoint /",
        ),
        (&["--port", "1"], 127, "If it is meant for the ENTRYPOINT that the image had before"),
        (&["python train.py"], 127, "each word is a string of its own: [\"python\", \"train.py\"]."),
        (&["cd /app && python t.py"], 127, r#": ["sh", "-c", "cd /app && python t.py"]."#),
        (&["/etc/passwd"], 126, "cannot run /etc/passwd: it is not an executable file"),
    ];
    for (command, code, message) in cases {
        for running in both(&[], command) {
            let ended = running.end().expect_code(code);
            assert!(ended.stderr.contains(message), "{command:?}: {ended:#?}");
            assert!(!ended.stderr.contains("exit code"), "it did not even run: {ended:#?}");
        }
    }
}

#[test]
fn a_program_that_ends_with_126_or_127_did_run() {
    for code in [126, 127] {
        for running in both(&[], &["sh", "-c", &format!("exit {code}")]) {
            let ended = running.end().expect_code(code);
            assert!(!ended.stderr.contains("cannot run"), "{ended:#?}");
            assert!(ended.stderr.contains(&format!("sh ended with exit code {code}")), "{ended:#?}");
        }
    }
}

/// `remap-exit` changes only codes of the command, not those of the program itself.
#[test]
fn codes_of_our_own_are_not_remapped() {
    let all = ["--remap-exit", "127", "--remap-exit", "126", "--remap-exit", "125", "--remap-exit", "121"];
    for running in both(&all, &["no-such-command"]) {
        running.end().expect_code(127);
    }
    for running in both(&all, &["sh", "-c", "exit 127"]) {
        running.end().expect_code(0);
    }
    let refused = [&all[..], &["--require-rdma"]].concat();
    for running in both(&refused, &["true"]) {
        running.end().expect_code(121);
    }
}

/// The error and the command's code are also kept apart if PID 1 starts the command itself.
#[test]
fn it_is_told_apart_without_the_preparation() {
    for (command, code, message) in [
        ("no-such-command", 127, "cannot run no-such-command: it is not in the PATH"),
        ("false", 1, "false ended"),
    ] {
        let hang = Hang::interruptible("/sys/class/infiniband");
        let running = hanging(rdma_init(["--remap-exit", "127", "--", command]), true, &hang);
        // By now, PID 1 has its orders. It starts the command in place of the killed process.
        send(hang.wait(), libc::SIGKILL);
        let ended = running.end().expect_code(code);
        assert!(ended.stderr.contains(message), "{ended:#?}");
        assert_eq!(ended.stderr.contains("ended with"), code == 1, "{ended:#?}");
    }
}
