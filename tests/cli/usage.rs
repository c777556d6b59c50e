//! Tests usage messages, exit codes, and how the command is found.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::run::{rdma_init, run};
use crate::support::binary;
use crate::support::executable::executable;
use crate::support::process::surroundings;

#[test]
fn without_arguments_it_says_how_to_use_it() {
    run(rdma_init::<&str>([])).expect_error(&["Usage: rdma-init [OPTIONS] -- COMMAND"]);
    run(rdma_init(["--"])).expect_error(&["Usage: rdma-init [OPTIONS] -- COMMAND"]);
    run(rdma_init(["--memlock", "off"])).expect_error(&["Usage: rdma-init [OPTIONS] -- COMMAND"]);
}

#[test]
fn help_and_version_go_to_standard_output() {
    for flag in ["--help", "-h"] {
        let ran = run(rdma_init([flag])).expect_code(0);
        assert!(ran.text().contains("Usage: rdma-init [OPTIONS] -- COMMAND [ARG]..."), "{ran:#?}");
        assert!(ran.text().contains("--prepare-timeout"), "{ran:#?}");
        assert_eq!(ran.stderr, "");
    }
    for flag in ["--version", "-V"] {
        let ran = run(rdma_init([flag])).expect_code(0);
        assert_eq!(ran.text(), concat!("rdma-init ", env!("CARGO_PKG_VERSION"), "\n"));
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_command_without_dashes_is_an_error_that_says_so() {
    let advice = "put -- before it: rdma-init -- ls -la";
    run(rdma_init(["ls", "-la"])).expect_error(&["\"ls\"", advice]);
    run(rdma_init(["torchrun"])).expect_error(&["rdma-init -- torchrun"]);
    // torchrun --no-python removes the dashes, and the error says so.
    let twice =
        "the launcher took it away, as torchrun --no-python does: write it twice: rdma-init -- -- ls -la";
    run(rdma_init(["ls", "-la"])).expect_error(&[twice]);
    run(rdma_init(["--memlock=off", "ls", "-la"])).expect_error(&["ls"]);
    run(rdma_init(["ls", "--", "-la"])).expect_error(&["ls"]);
    run(rdma_init([""])).expect_error(&[]);
}

#[test]
fn what_is_no_option_is_an_error_that_names_it() {
    let said = |arguments: &[&str], message: &str| {
        run(rdma_init(arguments)).expect_error(&[&format!("rdma-init: {message}")]);
    };
    said(&["--supervize", "--", "true"], "there is no option --supervize; did you mean --supervise?");
    said(&["plan", "--fact", "x"], "plan has no option --fact; did you mean --facts?");
    said(&["plan", "--nonsense"], "plan has no option --nonsense; see rdma-init plan --help.");
    let behind = "Put the command's own options after the command, after the dashes.";
    said(
        &["--nonsense", "--", "true"],
        &format!("there is no option --nonsense; see rdma-init --help. {behind}"),
    );
    said(&["plan", "--", "x"], "plan does not take \"x\"; see rdma-init plan --help.");
    said(
        &["exec", "ls"],
        "\"ls\" is not an option of rdma-init exec. To run it, put -- before it: rdma-init exec -- ls",
    );
    said(
        &["--memlock=off", "ls"],
        "\"ls\" is not a command of rdma-init. To run it, put -- before it: rdma-init [OPTIONS] -- ls",
    );
    said(
        &["inspct"],
        "\"inspct\" is not a command of rdma-init; did you mean rdma-init inspect? To run it, put -- before",
    );
    // These words are the CMD of an image whose own ENTRYPOINT was replaced.
    let image = "there is no option --model; see rdma-init --help. Put the command's own options after the command, after two dashes: rdma-init -- COMMAND --model. If it is meant for the ENTRYPOINT that the image had before, write that one after the dashes: ENTRYPOINT [\"/rdma-init\", \"--\", \"OLD\", \"ENTRYPOINT\"].";
    said(&["--model", "y"], image);
    run(rdma_init(["--memlok", "off", "--", "true"])).expect_error(&["--memlok", "--memlock"]);
    run(rdma_init(["-x", "--", "true"])).expect_error(&["-x"]);
    run(rdma_init(["--memlock", "--", "true"])).expect_error(&["--memlock"]);
    run(rdma_init(["--require-rdma=maybe", "--", "true"]))
        .expect_error(&["the option --require-rdma takes no value"]);
    run(rdma_init(["plan", "--", "true"])).expect_error(&["true"]);
}

#[test]
fn an_empty_argument_list_is_no_crash() {
    use std::os::unix::process::CommandExt;
    let program = std::ffi::CString::new(binary().into_os_string().into_encoded_bytes()).unwrap();
    let mut command = rdma_init::<&str>([]);
    // SAFETY: execve is async-signal-safe, and all that it reads was made before the fork.
    unsafe {
        command.pre_exec(move || {
            let nothing = [std::ptr::null()];
            nix::libc::execve(program.as_ptr(), nothing.as_ptr(), nothing.as_ptr());
            Err(std::io::Error::last_os_error())
        });
    }
    run(command).expect_error(&["Usage"]);
}

#[test]
fn everything_after_the_dashes_is_the_command_s() {
    let ran = run(rdma_init(["--", "printf", "%s|", "--", "--help", "", "plan", "a b"])).expect_code(0);
    assert_eq!(ran.text(), "--|--help||plan|a b|");
}

/// This machine's Python parses the command line with argparse, as torchrun does. All versions since 3.6
/// treat dashes in the same way.
#[test]
fn dashes_that_argparse_takes_away_can_be_written_twice() {
    let script = "import argparse, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument('--no-python', action='store_true')
parser.add_argument('training_script')
parser.add_argument('training_script_args', nargs=argparse.REMAINDER)
job = parser.parse_args()
sys.exit(subprocess.call([job.training_script, *job.training_script_args]))";
    let launched = |arguments: &[&str]| {
        let program = binary();
        let mut command = rdma_init(["--", "python3", "-c", script, "--no-python"]);
        command.arg(&program).args(arguments);
        run(command)
    };
    let once = launched(&["--", "echo", "started"]).expect_code(125);
    let twice = format!("write it twice: {} -- -- echo started", binary().display());
    assert!(once.stderr.contains(&twice), "{once:#?}");
    for whole in [
        &["--", "--", "echo", "started"][..],
        &["--memlock=off", "--", "echo", "started"],
        &["exec", "--", "echo", "started"],
    ] {
        assert_eq!(launched(whole).expect_code(0).text(), "started\n", "{whole:?}");
    }
    // With a launcher that does not remove the dashes, the effect is the same.
    let ran = run(rdma_init(["--", "--", "echo", "--", "started"])).expect_code(0);
    assert_eq!(ran.text(), "-- started\n");
}

#[test]
fn an_image_s_own_entrypoint_and_command_are_thought_of() {
    run(rdma_init(["--"]))
        .expect_error(&["there is nothing to run", "ENTRYPOINT resets the base image's CMD"]);
    run(rdma_init(["--", "--"])).expect_error(&["there is nothing to run"]);
    run(rdma_init(["exec", "--", "--"])).expect_error(&["there is nothing to run"]);
    let bare = run(rdma_init::<&str>([])).expect_code(125);
    assert!(!bare.stderr.contains("ENTRYPOINT"), "{bare:#?}");
    let ran = run(rdma_init(["--", "--model", "y"])).expect_code(127);
    let advice = "cannot run --model: it is not in the PATH (ENOENT). If it is meant for the ENTRYPOINT that the image had before, write that one after the dashes: ENTRYPOINT [\"/rdma-init\", \"--\", \"OLD\", \"ENTRYPOINT\"].";
    assert!(ran.stderr.contains(advice), "{ran:#?}");
}

#[test]
fn a_command_that_is_missing_gives_127() {
    let ran = run(rdma_init(["--", "no-such-command"])).expect_code(127);
    assert!(ran.stderr.contains("cannot run no-such-command"), "{ran:#?}");
    for command in ["/no/such/command", "", "./no-such-command", "/etc/passwd/x"] {
        let ran = run(rdma_init(["--", command])).expect_code(127);
        assert!(ran.stderr.contains("cannot run"), "{ran:#?}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_gives_126() {
    for command in ["/etc/passwd", "/", "/etc"] {
        let ran = run(rdma_init(["--", command])).expect_code(126);
        assert!(ran.stderr.contains(&format!("cannot run {command}")), "{ran:#?}");
    }
}

#[test]
fn an_interpreter_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let path = script.to_str().unwrap();
    let said = |text: &str, command: &str| {
        executable(&script, text);
        let mut program = rdma_init(["--", command]);
        program.env("PATH", folder.path());
        run(program).expect_code(127).stderr
    };
    let missing = format!(
        "cannot run {path}: the first line of {path} names the interpreter /no/such/interpreter, which is not in the image (ENOENT)."
    );
    let of_path = said("#!/no/such/interpreter -x\n", path);
    assert!(of_path.contains(&missing), "{of_path}");
    // The script is in the PATH, but the kernel returns the same error as for a missing file.
    let by_name = said("#!/no/such/interpreter -x\n", "script");
    assert!(by_name.contains("names the interpreter /no/such/interpreter"), "{by_name}");
    // The script is named by a path relative to the working directory.
    let relative = |text: &str, command: &str| {
        executable(&script, text);
        let mut program = rdma_init(["--", command]);
        program.current_dir(folder.path());
        run(program).expect_code(127).stderr
    };
    for (text, advice) in [
        (
            "#!/no/such/interpreter\n",
            "the first line of ./script names the interpreter /no/such/interpreter,",
        ),
        ("#!bin/none\n", "the first line of ./script names the interpreter bin/none,"),
        ("#!/bin/sh\r\n", "the lines of ./script end with a carriage return"),
    ] {
        let said = relative(text, "./script");
        assert!(said.contains(&format!("cannot run ./script: {advice}")), "{said}");
    }
    let missing = relative("", "./other");
    let advice = format!(
        "cannot run ./other: there is no such file; the working directory is {} (ENOENT)",
        folder.path().display()
    );
    assert!(missing.contains(&advice), "{missing}");
    let windows = said("#!/bin/sh\r\necho\r\n", path);
    assert!(
        windows.contains("end with a carriage return") && windows.contains(r#""/bin/sh\r""#),
        "{windows}"
    );
}

#[test]
fn a_script_without_an_interpreter_line_runs_through_sh() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("my-script");
    executable(&script, "printf '%s,' \"$0\" \"$@\"\nexit 3\n");
    let path = script.to_str().unwrap();
    let ran = run(rdma_init(["--", path, "a b", ""])).expect_code(3);
    assert_eq!(ran.text(), format!("{path},a b,,"));

    let mut by_name = rdma_init(["--", "my-script"]);
    by_name.env("PATH", folder.path());
    assert_eq!(run(by_name).expect_code(3).text(), format!("{path},"));
}

#[test]
fn the_path_is_searched_as_a_shell_does() {
    let folder = tempfile::tempdir().unwrap();
    let (denied, good) = (folder.path().join("denied"), folder.path().join("good"));
    fs::create_dir_all(&denied).unwrap();
    fs::create_dir_all(good.join("a-folder")).unwrap();
    fs::write(denied.join("tool"), "").unwrap();
    fs::set_permissions(denied.join("tool"), PermissionsExt::from_mode(0o644)).unwrap();
    executable(&good.join("tool"), "#!/bin/sh\nexit 7\n");
    let with_path = |path: String, name: &str| {
        let mut command = rdma_init(["--", name]);
        command.env("PATH", path).current_dir(&good);
        run(command)
    };
    let (denied, good) = (denied.display(), good.display());
    with_path(format!("/etc/passwd:/nowhere:{denied}:{good}"), "tool").expect_code(7);
    with_path(format!("{denied}"), "tool").expect_code(126);
    with_path(format!("{good}"), "a-folder").expect_code(126);
    with_path("/nowhere:".to_owned(), "tool").expect_code(7);
    with_path("/nowhere".to_owned(), "tool").expect_code(127);
    with_path("/nowhere".to_owned(), "./tool").expect_code(7);

    let mut without = rdma_init(["--", "sh", "-c", "exit 5"]);
    without.env_remove("PATH");
    run(without).expect_code(5);
}

#[test]
fn unusable_preflight_values_are_errors() {
    for (meet, said) in [
        ("", "the key preflight-meet has the value \"\" in the flag --meet: expected a text"),
        ("a b", "--meet=a b: \"a b\" is not an address; expected HOST:PORT"),
        ("node-0:99999", "is not an address"),
        ("node-0:0", "port 0 is not a port of node 0"),
        (":7777", "the address of node 0 has no host"),
    ] {
        run(rdma_init(["preflight", "--nodes", "2", "--node", "1", "--meet", meet])).expect_error(&[said]);
    }
    for (option, value, said) in [
        (
            "--each",
            "0s",
            "preflight-each has the value \"0s\" in the flag --each: expected a duration above 0, such as 500ms",
        ),
        ("--rounds", "some", "in the flag --rounds: expected one of log, full"),
        ("--min-bandwidth", "-1", "expected a number above 0"),
        ("--min-bandwidth", "nan", "expected a number above 0"),
    ] {
        run(rdma_init(["preflight", &format!("{option}={value}")])).expect_error(&[option, said]);
    }
}

/// An option without effect on a command is an error that names the command that accepts it.
#[test]
fn a_command_takes_its_own_options_only() {
    for (line, said) in [
        (
            "compare --kill-group x",
            "compare has no option --kill-group; rdma-init -- COMMAND takes it; see rdma-init compare --help.",
        ),
        (
            "--kill-group compare x",
            "compare has no option --kill-group; rdma-init -- COMMAND takes it; see rdma-init compare --help.",
        ),
        (
            "status --facts x",
            "status has no option --facts; rdma-init inspect, rdma-init plan, rdma-init env, rdma-init profiles and rdma-init self-test take it",
        ),
        (
            "--why X -- true",
            "there is no option --why; rdma-init plan and rdma-init profiles take it; see rdma-init --help.",
        ),
        (
            "stat --memlock off",
            "stat has no option --memlock; rdma-init -- COMMAND, rdma-init plan, rdma-init exec and rdma-init self-test take it",
        ),
        ("preflight --preflight-wait 5s", "preflight has no option --preflight-wait; it is called --wait"),
        ("--preflight-wait 5s preflight", "preflight has no option --preflight-wait; it is called --wait"),
        ("preflight --no-bisection", "it is called --bisection=false"),
        ("preflight --format slurm", "it is called --exclude-format"),
        ("--preflight-json x -- true", "it is called --preflight-json-file"),
    ] {
        run(rdma_init(line.split(' '))).expect_error(&[said]);
    }
    // Before the command's name, an option applies to the command if the command accepts it.
    for line in [
        "--profile none plan --facts demo:cce-roce --json",
        "plan --profile none --facts demo:cce-roce --json",
        "--profile erdma plan --profile none --facts demo:cce-roce --json",
    ] {
        let ran = run(rdma_init(line.split(' '))).expect_code(0);
        let plan: serde_json::Value = serde_json::from_str(ran.text()).unwrap();
        assert!(
            plan["profile"]["name"].is_null() || plan["profile"]["name"] == "none",
            "{line}: {}",
            plan["profile"]
        );
    }
}

#[test]
fn a_bad_value_is_named_with_its_option_and_what_is_expected() {
    for (line, said) in [
        (
            "stat --watch abc",
            "stat: the option --watch has the value \"abc\": expected a time such as 500ms, 25s or 2m.",
        ),
        ("stat --watch 1ms", "stat: the option --watch has the value \"1ms\": expected 10ms or more."),
        ("self-test --each 0s", "self-test: the option --each has the value \"0s\": expected a time such as"),
        (
            "self-test --size x",
            "self-test: the option --size has the value \"x\": expected a number of bytes, at least",
        ),
        (
            "self-test --level deep",
            "self-test: the option --level has the value \"deep\": expected one of quick, verbs.",
        ),
        (
            "self-test --only x",
            "self-test: the option --only has the value \"x\": expected a check that `rdma-init self-test --list` shows.",
        ),
        ("self-test --listen=a/b", "self-test: the option --listen has the value \"a/b\": "),
        (
            "self-test --listen --level quick",
            "self-test: the argument --listen [<ADDR:PORT>] cannot be used with --level <LEVEL>; see rdma-init self-test --help.",
        ),
        (
            "compare --expect 0 x",
            "compare: the option --expect has the value \"0\": expected a number of at least 1.",
        ),
        (
            "compare",
            "compare: the following required arguments were not provided: <FILE>...; see rdma-init compare --help.",
        ),
        (
            "env --format yaml",
            "env: the option --format has the value \"yaml\": expected one of sh, dotenv, nccl-conf, json, docker, mpirun.",
        ),
        ("plan --why", "plan: the option --why needs a value; see rdma-init plan --help."),
        ("completions csh", "completions: SHELL has the value \"csh\": expected one of bash, zsh, fish."),
        (
            "preflight --exclude-format slurm",
            "--exclude-format is for the list of faulty nodes; name its file with --exclude-file",
        ),
        (
            "preflight --nodes many",
            "the key preflight-nodes has the value \"many\" in the flag --nodes: expected a number",
        ),
    ] {
        let ran = run(rdma_init(line.split(' '))).expect_error(&[said]);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
    }
}

#[test]
fn exit_codes_are_passed_on() {
    for code in [0, 1, 2, 32, 64, 121, 125, 126, 127, 128, 143, 254, 255] {
        run(rdma_init(["--", "sh", "-c", &format!("exit {code}")])).expect_code(code);
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("PIPE", 13), ("USR1", 10)] {
        let ran = run(rdma_init(["--", "sh", "-c", &format!("kill -{name} $$")]));
        assert_eq!(ran.signal, Some(number), "{ran:#?}");
    }
}

#[test]
fn the_command_takes_the_place_of_the_program() {
    let command = rdma_init(["--", "sh", "-c", "echo $$ $PPID"]);
    // The shell prints its own process ID and then becomes the program.
    let mut shell = std::process::Command::new("/bin/sh");
    surroundings(&mut shell)
        .args(["-c", "echo $$ $PPID; exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    let ran = run(shell).expect_code(0);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines.len(), 2, "{ran:#?}");
    assert_eq!(lines[0], lines[1], "{ran:#?}");
}
