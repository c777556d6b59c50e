//! Tests that the command gets its arguments and its environment byte for byte.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use rdma_init::env_plugin::answer::hash;

use super::run::{Ran, rdma_init, run, run_with_input};
use crate::support::binary;
use crate::support::executable::executable;

/// In bytes: the kernel accepts no longer environment entry (`MAX_ARG_STRLEN`).
const LONGEST_ENTRY: usize = 128 * 1024;

fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap()
}

/// Returns the command that starts the program with exactly these entries in this order. `Command` alone
/// cannot represent them: they may be duplicates and may have no `=`.
fn with_entries(arguments: &[&str], entries: Vec<CString>) -> Command {
    let program = c(binary().into_os_string().as_bytes());
    let arguments: Vec<CString> =
        ["rdma-init"].iter().chain(arguments).map(|argument| c(argument.as_bytes())).collect();
    let mut command = Command::new(binary());
    // SAFETY: the closure makes two system calls. The arrays that it passes point into strings
    // that it owns; they hold addresses as numbers so that the closure is Send.
    unsafe {
        let addresses = |strings: &[CString]| -> Vec<usize> {
            strings.iter().map(|string| string.as_ptr() as usize).chain([0]).collect()
        };
        let (argv, envp) = (addresses(&arguments), addresses(&entries));
        command.pre_exec(move || {
            let _owned = (&arguments, &entries);
            // Arguments and environment may occupy a quarter of the stack, at most 6 MiB.
            let stack = libc::rlimit { rlim_cur: 64 << 20, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_STACK, &stack);
            libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast());
            Err(io::Error::last_os_error())
        });
    }
    command
}

fn entries(entries: &[&[u8]]) -> Vec<CString> {
    // These starts leave nothing on this machine.
    let own: [&[u8]; 4] = [
        b"PATH=/usr/bin:/bin",
        b"RDMA_INIT_CONFIG=/dev/null",
        b"RDMA_INIT_STATE_DIR=",
        b"RDMA_INIT_WRITE_NCCL_CONF=false",
    ];
    own.iter().chain(entries).map(|entry| c(entry)).collect()
}

fn joined(entries: &[CString]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.as_bytes_with_nul()).copied().collect()
}

#[test]
fn odd_entries_arrive_in_order() {
    let odd = entries(&[
        b"Z=1",
        b"A=\xff\xfe",
        b"no-equals",
        b"A=second",
        b"=starts-with-equals",
        b"",
        b"\xc3(=x",
        b"B=line\nbreak",
        b"NCCL_IB_TC=\xff",
        b"a=1",
        b"Z=2",
        b"EMPTY=",
    ]);
    let ran = run(with_entries(&["--", "cat", "/proc/self/environ"], odd.clone())).expect_code(0);
    assert!(ran.stdout.starts_with(&joined(&odd)), "{:?}", String::from_utf8_lossy(&ran.stdout));
}

#[test]
fn filling_in_changes_nothing_else() {
    let inherited = entries(&[b"Z=\xff", b"T_OLD=1", b"no-equals", b"T_OLD=2", b"T_OL=3"]);
    let arguments = ["--set", "T_OLD=new", "--set", "T_NEW=x", "--", "cat", "/proc/self/environ"];
    let ran = run(with_entries(&arguments, inherited.clone())).expect_code(0);
    let found: Vec<&[u8]> = ran.stdout.split_inclusive(|byte| *byte == 0).collect();
    let kept = entries(&[b"Z=\xff", b"no-equals", b"T_OL=3"]);
    let (first, added) = (found[..kept.len()].concat(), &found[kept.len()..]);
    assert_eq!(String::from_utf8_lossy(&first), String::from_utf8_lossy(&joined(&kept)));
    for entry in [&b"T_NEW=x\0"[..], b"T_OLD=new\0"] {
        assert_eq!(added.iter().filter(|added| **added == entry).count(), 1, "{added:?}");
    }
    assert!(!added.iter().any(|added| added.starts_with(b"T_OLD=1") || added.starts_with(b"T_OLD=2")));
}

/// The command does not get the token, regardless of how the program starts it. All other variables stay.
#[test]
fn the_token_of_the_self_test_is_not_the_command_s() {
    let entries = entries(&[b"RDMA_INIT_TOKEN=hunter2", b"Z=1", b"RDMA_INIT_TOKEN=hunter3"]);
    let command = ["--", "cat", "/proc/self/environ"];
    for options in [&[][..], &["--supervise"], &["--set", "T_X=1"], &["exec"]] {
        let ran = run(with_entries(&[options, &command].concat(), entries.clone())).expect_code(0);
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(text.contains("Z=1") && !text.contains("hunter"), "{options:?}: {text}");
    }
}

/// A value that the user set stays, even if it is not UTF-8, because NCCL reads bytes.
#[test]
fn a_setting_that_is_not_utf8_stands() {
    let profile = tempfile::tempdir().unwrap();
    let text = "name = \"t\"\ntitle = \"t\"\nsource = \"t\"\n[variables]\nNCCL_DEBUG = \"WARN\"\n";
    std::fs::write(profile.path().join("t.toml"), text).unwrap();
    let inherited = entries(&[b"NCCL_DEBUG=\xff"]);
    let folder = profile.path().to_str().unwrap();
    let arguments = ["--profile-dir", folder, "--profile", "t", "--", "cat", "/proc/self/environ"];
    let ran = run(with_entries(&arguments, inherited.clone())).expect_code(0);
    let settings: Vec<&[u8]> =
        ran.stdout.split(|byte| *byte == 0).filter(|e| e.starts_with(b"NCCL_DEBUG=")).collect();
    assert_eq!(settings, [b"NCCL_DEBUG=\xff"]);
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let odd = OsStr::from_bytes(b"\xff\xfe x\ny");
    let words = ["--", "printf", "%s|"].map(OsStr::new);
    let ran = run(rdma_init([&words[..], &[odd, OsStr::new("")]].concat())).expect_code(0);
    assert_eq!(ran.stdout, b"\xff\xfe x\ny||");
    // The command's own name may also contain any bytes.
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join(std::ffi::OsString::from_vec(b"tool\xff".to_vec()));
    executable(&name, "#!/bin/sh\nexit 9\n");
    run(rdma_init([OsStr::new("--"), name.as_os_str()])).expect_code(9);
}

/// Returns entries with this total size. The last one is short enough to be adjusted.
fn large(bytes: usize) -> Vec<CString> {
    let mut all = entries(&[]);
    let mut left = bytes;
    for number in 0.. {
        let length = left.min(LONGEST_ENTRY - 1);
        if length < 16 {
            break;
        }
        let mut entry = format!("LARGE_{number:04}=").into_bytes();
        entry.resize(length - 1, b'x');
        all.push(c(&entry));
        left -= length;
    }
    all
}

#[test]
fn an_environment_of_megabytes_arrives() {
    let all = large(5 << 20);
    let ran = run(with_entries(&["--", "cat", "/proc/self/environ"], all.clone())).expect_code(0);
    assert!(ran.stdout.starts_with(&joined(&all)), "{} bytes arrived", ran.stdout.len());
}

/// Returns the largest environment with which the kernel starts the program.
fn largest(arguments: &[&str]) -> Vec<CString> {
    let starts = |bytes: usize| {
        let mut command = with_entries(arguments, large(bytes));
        match command.output() {
            Ok(_) => true,
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let (mut fits, mut too_large) = (5 << 20, 7 << 20);
    assert!(starts(fits) && !starts(too_large));
    while too_large - fits > 64 {
        let middle = (fits + too_large) / 2;
        if starts(middle) { fits = middle } else { too_large = middle }
    }
    large(fits)
}

#[test]
fn the_largest_environment_that_the_kernel_takes_is_no_obstacle() {
    let arguments = ["--", "/bin/true"];
    run(with_entries(&arguments, largest(&arguments))).expect_code(0);
}

/// If there is no room for one of the program's own variables, the command still starts.
#[test]
fn no_room_for_another_variable_does_not_keep_the_command_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    std::fs::write(&config, format!("[set]\nT_FILLED = \"{}\"\n", "y".repeat(4000))).unwrap();
    let arguments = ["--", "/bin/true"];
    let mut all = largest(&arguments);
    let config = c(format!("RDMA_INIT_CONFIG={}", config.display()).as_bytes());
    // All entries together are no longer than the size that was found to fit.
    let last = all.pop().unwrap();
    let spare = last.as_bytes().len().saturating_sub(config.as_bytes().len());
    all.extend([c(&last.as_bytes()[..spare.max(1)])]);
    all[1] = config;
    let ran: Ran = run(with_entries(&arguments, all));
    ran.expect_code(0);
}

#[test]
fn standard_input_is_the_command_s() {
    let ran = run_with_input(rdma_init(["--", "cat"]), "a\0b\n").expect_code(0);
    assert_eq!(ran.stdout, b"a\0b\n");
}

#[test]
fn what_another_start_filled_in_and_a_tool_copied_here_is_decided_anew() {
    let hash = |value: &str| String::from_utf8(hash(value.as_bytes()).into()).unwrap();
    let [hca, ucx, debug] = ["=mlx5_77", "mlx5_77:1", "INFO"].map(hash);
    let marker = format!(
        "1:ffff:ENV_PLUGIN={},IB_HCA={hca},DEBUG={debug},.UCX_NET_DEVICES={ucx}",
        hash("/x/libnccl-env.so")
    );
    let given = |arguments: &[&str], hca: &str| {
        let mut command = rdma_init(arguments);
        command.env_clear().env("RDMA_INIT_CONFIG", "/dev/null").env("NCCL_RDMA_INIT", &marker);
        command.env("NCCL_ENV_PLUGIN", "/x/libnccl-env.so").env("NCCL_IB_HCA", hca);
        command.env("UCX_NET_DEVICES", "mlx5_77:1").env("NCCL_ALGO", "Ring");
        // A variable of the application, with the value that the other start gave NCCL_DEBUG.
        command.env("DEBUG", "INFO");
        let ran = run(command).expect_code(0);
        (ran.text().to_owned(), ran.stderr)
    };
    let start = ["--state-dir=", "--write-nccl-conf=false", "--profile", "none", "--", "/usr/bin/env"];
    let enter = ["exec", "--state-dir=", "--", "/usr/bin/env"];
    for arguments in [&start[..], &enter[..]] {
        let (text, said) = given(arguments, "=mlx5_77");
        let has = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name}=")));
        for name in ["NCCL_RDMA_INIT", "NCCL_ENV_PLUGIN", "UCX_NET_DEVICES"] {
            assert!(!has(name), "{name}: {text}{said}");
        }
        assert!(!text.contains("mlx5_77") && text.contains("NCCL_ALGO=Ring\n"), "{text}{said}");
        assert!(text.lines().any(|line| line == "DEBUG=INFO"), "{text}{said}");
        // A value that a person has since changed belongs to that person.
        assert!(given(arguments, "=mlx5_78").0.contains("NCCL_IB_HCA==mlx5_78\n"), "{text}");
    }
    let (_, said) = given(&start, "=mlx5_77");
    assert!(said.contains("decides them again: ") && said.contains("NCCL_IB_HCA"), "{said}");
    let why = ["plan", "--state-dir=", "--why", "NCCL_IB_HCA"];
    assert!(given(&why, "=mlx5_78").0.contains("NCCL_IB_HCA==mlx5_78, set by you"));
    assert!(!given(&why, "=mlx5_77").0.contains("mlx5_77"));
}
