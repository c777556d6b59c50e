//! Tests the configuration: each error names the key, the value and the source, and a later layer takes
//! precedence.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::stat::Mode;

use super::run::{Ran, rdma_init, run};
use crate::support::{golden, skip};

fn with_file(path: &Path) -> Ran {
    let mut command = rdma_init(["--", "true"]);
    // The variable would win.
    command.env("RDMA_INIT_CONFIG", path).env_remove("RDMA_INIT_PREPARE_TIMEOUT");
    run(command)
}

fn with_text(text: impl AsRef<[u8]>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    fs::write(&path, text).unwrap();
    with_file(&path)
}

fn with_variable(name: &str, value: impl AsRef<OsStr>) -> Ran {
    let mut command = rdma_init(["--", "true"]);
    command.env(name, value);
    run(command)
}

fn with_flags(flags: &[&str]) -> Ran {
    run(rdma_init([flags, &["--", "true"]].concat()))
}

#[test]
fn an_error_in_the_file_names_key_value_and_file() {
    with_text("memlok = \"off\"").expect_error(&["memlok", "site.toml", "did you mean memlock?"]);
    with_text("memlock = \"on\"").expect_error(&["memlock", "\"on\"", "site.toml", "off, warn, enforce"]);
    with_text("memlock = 3").expect_error(&["memlock", "3", "site.toml"]);
    // A very short word is close to any other short word, so no key is suggested.
    with_text("[x]\na = 1").expect_error(&["unknown key x", "site.toml", "; the keys are "]);
    with_text("set = 3").expect_error(&["the key set", "site.toml", "expected a table of variables"]);
    with_text(b"a = \"\xff\"").expect_error(&["cannot read the file", "site.toml", "it is not UTF-8 text"]);
    with_text("refuse-exit-code = 0").expect_error(&["refuse-exit-code", "0", "site.toml", "1 to 255"]);
    with_text("prepare-timeout = 10").expect_error(&["prepare-timeout", "10", "site.toml", "500ms"]);
    with_text("prepare-timeout = \"0s\"").expect_error(&["prepare-timeout", "0s", "site.toml"]);
    with_text("require-rdma = []").expect_error(&["require-rdma", "[]", "site.toml"]);
    with_text("keep = { a = 1 }").expect_error(&["keep", "site.toml", "names of variables"]);
    with_text("profile = \"\"").expect_error(&["profile", "\"\"", "site.toml"]);
    with_text("[set]\n\"A=B\" = \"1\"").expect_error(&["set", "A=B", "site.toml"]);
    with_text("[set]\nA = [1]").expect_error(&["set", "value of A", "site.toml"]);
    with_text("[set]\nA = \"x\\u0000y\"").expect_error(&["set", "site.toml"]);
    with_text("[table]\nx = 1").expect_error(&["table", "site.toml"]);
}

#[test]
fn a_file_that_is_no_configuration_is_named() {
    with_text("a = 1\n\nb").expect_error(&["site.toml", "line 3"]);
    with_text(b"memlock = \"\xff\"").expect_error(&["site.toml", "UTF-8"]);
    with_text("\0").expect_error(&["site.toml", "line 1"]);
    with_text("#".repeat(2 << 20)).expect_error(&["site.toml", "262144 bytes"]);
    let deep = format!("a = {}{}", "[".repeat(50_000), "]".repeat(50_000));
    with_text(deep).expect_error(&["site.toml"]);

    with_file(Path::new("/no/such/file")).expect_error(&[
        "/no/such/file",
        "No such file",
        "RDMA_INIT_CONFIG",
    ]);
    let folder = tempfile::tempdir().unwrap();
    with_file(folder.path()).expect_error(&[folder.path().to_str().unwrap(), "not a regular file"]);
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    with_file(&fifo).expect_error(&["fifo", "not a regular file"]);
    with_file(Path::new("/dev/zero")).expect_error(&["/dev/zero"]);
}

#[test]
fn an_error_in_a_variable_names_the_variable() {
    with_variable("RDMA_INIT_MEMLOCK", "on").expect_error(&["memlock", "\"on\"", "RDMA_INIT_MEMLOCK"]);
    with_variable("RDMA_INIT_SET", "A").expect_error(&["set", "line 1", "RDMA_INIT_SET", "VARIABLE=VALUE"]);
    with_variable("RDMA_INIT_PREPARE_TIMEOUT", "soon").expect_error(&["soon", "RDMA_INIT_PREPARE_TIMEOUT"]);
    with_variable("RDMA_INIT_REFUSE_EXIT_CODE", "256").expect_error(&["256", "RDMA_INIT_REFUSE_EXIT_CODE"]);
    with_variable("RDMA_INIT_REQUIRE_RDMA", "maybe").expect_error(&["maybe", "RDMA_INIT_REQUIRE_RDMA"]);
    with_variable("RDMA_INIT_LOG_FORMAT", "xml").expect_error(&[
        "\"xml\"",
        "RDMA_INIT_LOG_FORMAT",
        "text, json",
    ]);
    with_variable("RDMA_INIT_MEMLOCK", OsStr::from_bytes(b"o\xffn")).expect_error(&["RDMA_INIT_MEMLOCK"]);
}

/// An empty variable is not an error, because templates leave variables empty. Neither is a
/// variable that Kubernetes sets for a Service.
#[test]
fn a_variable_that_says_nothing_is_no_error() {
    for name in ["RDMA_INIT_PROFILE", "RDMA_INIT_MEMLOCK", "RDMA_INIT_PREPARE_TIMEOUT", "RDMA_INIT_SET"] {
        with_variable(name, "").expect_code(0);
    }
    let mut command = rdma_init(["--", "true"]);
    for (name, value) in [
        ("RDMA_INIT_TEST_SERVICE_HOST", "10.96.0.7"),
        ("RDMA_INIT_TEST_SERVICE_PORT", "80"),
        ("RDMA_INIT_TEST_SERVICE_PORT_HTTP", "80"),
        ("RDMA_INIT_TEST_PORT", "tcp://10.96.0.7:80"),
        ("RDMA_INIT_TEST_PORT_80_TCP", "tcp://10.96.0.7:80"),
        ("RDMA_INIT_TEST_PORT_80_TCP_PROTO", "tcp"),
        ("RDMA_INIT_TEST_PORT_80_TCP_PORT", "80"),
        ("RDMA_INIT_TEST_PORT_80_TCP_ADDR", "10.96.0.7"),
    ] {
        command.env(name, value);
    }
    run(command).expect_code(0);
}

/// Images and shared ConfigMaps have names with rdma-init's prefix that no version reads, or only a newer
/// one.
#[test]
fn an_unknown_variable_is_a_warning_and_the_command_starts() {
    let warned = |name: &str, value: &[u8]| {
        let mut command = rdma_init(["--", "echo", "started"]);
        command.env(name, OsStr::from_bytes(value));
        let ran = run(command).expect_code(0);
        assert_eq!(ran.text(), "started\n", "{ran:#?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:#?}");
        ran.stderr
    };
    for (name, value, warning) in [
        ("RDMA_INIT_VERSION", &b"0.1.0"[..], "variable RDMA_INIT_VERSION is not known and is ignored.\n"),
        (
            "RDMA_INIT_REQUIRE_RMDA",
            b"true",
            "RDMA_INIT_REQUIRE_RMDA is not known and is ignored; did you mean RDMA_INIT_REQUIRE_RDMA?\n",
        ),
        (
            "RDMA_INIT_TOKEM",
            b"hunter2",
            "RDMA_INIT_TOKEM is not known and is ignored; did you mean RDMA_INIT_TOKEN?\n",
        ),
        ("RDMA_INIT_COLOUR", b"", "RDMA_INIT_COLOUR is not known"),
        ("RDMA_INIT_", b"x", "variable RDMA_INIT_ is not known"),
        ("RDMA_INIT_BYTES", b"\xff", "variable RDMA_INIT_BYTES is not known"),
    ] {
        let said = warned(name, value);
        assert!(said.contains(warning), "{said}");
    }
    let mut quiet = rdma_init(["--log-level", "error", "--", "true"]);
    quiet.env("RDMA_INIT_VERSION", "0.1.0");
    assert_eq!(run(quiet).expect_code(0).stderr, "");
    let mut json = rdma_init(["--log-format", "json", "--", "true"]);
    json.env("RDMA_INIT_VERSION", "0.1.0");
    let said = run(json).expect_code(0).stderr;
    assert!(said.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{said}");
    assert!(said.contains("RDMA_INIT_VERSION is not known"), "{said}");
    // A probe runs repeatedly.
    let mut probe = rdma_init(["status"]);
    probe.env("RDMA_INIT_VERSION", "0.1.0");
    assert!(!run(probe).stderr.contains("RDMA_INIT_VERSION"));
}

#[test]
fn a_profile_that_is_not_there_is_named_with_its_source_and_the_nearest() {
    let advice =
        "there is no such profile; did you mean acs-type1? There are ack-erdma, acs-type1, acs-type2";
    let value = "the key profile has the value \"acs-typ1\" in";
    with_variable("RDMA_INIT_PROFILE", "acs-typ1").expect_error(&[
        value,
        "in the variable RDMA_INIT_PROFILE:",
        advice,
    ]);
    with_text("profile = \"acs-typ1\"").expect_error(&[value, "in the file /", "site.toml:", advice]);
    with_flags(&["--profile", "acs-typ1"]).expect_error(&[value, "in the flag --profile:", advice]);
    with_flags(&["--profile", "Auto"]).expect_error(&["did you mean auto?"]);
    with_flags(&["--profile", "x"]).expect_error(&["no such profile; there are ack-erdma"]);
    run(rdma_init(["profiles", "erdm"])).expect_error(&["no profile \"erdm\"; did you mean erdma?"]);
}

/// If a user mistypes a name, the value may be a secret, and others can read both the log and the termination
/// log.
#[test]
fn an_error_quotes_nothing_that_may_be_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("termination");
    let file = folder.path().join("site.toml");
    let secret = "hunter2";
    let check = |what: &str, mut command: std::process::Command, parts: &[&str]| {
        command.env("RDMA_INIT_TERMINATION_LOG", &log).args(["--", "true"]);
        let ran = run(command).expect_error(parts);
        let reason = fs::read_to_string(&log).unwrap();
        assert!(!ran.stderr.contains(secret) && !reason.contains(secret), "{what}: {ran:#?} {reason}");
        assert!(parts.iter().all(|part| reason.contains(part)), "{what}: {reason}");
    };
    for (name, value, part) in [
        ("RDMA_INIT_SET", "A=1\nB hunter2\n", "line 2"),
        ("RDMA_INIT_SET", "A=1\nnot a name hunter2=\n", "line 2"),
        ("RDMA_INIT_SET", secret, "line 1"),
        ("RDMA_INIT_KEEP", "NCCL_DEBUG,T_TOKEN=hunter2", "number 2"),
    ] {
        let mut command = rdma_init::<&str>([]);
        command.env(name, value);
        check(name, command, &[name, part]);
    }
    for (text, parts) in [
        ("api-key = \"hunter2\"", &["api-key"][..]),
        ("[set]\nT_KEY = [\"hunter2\"]", &["set", "T_KEY"]),
        ("[set]\n\"A.B\" = \"hunter2\"", &["set", "\"A.B\""]),
        ("set = \"A=1\\nhunter2\"", &["set", "line 2"]),
        ("set = [\"A=1\", \"hunter2\"]", &["set", "number 2"]),
        ("[set]\nT_KEY = hunter2", &["line 2"]),
        ("[set]\nT_KEY = \"hunter2", &["line 2"]),
        ("[set]\nT_KEY = \"a\" hunter2", &["line 2"]),
        ("[set]\nhunter2\n", &["line 2"]),
    ] {
        fs::write(&file, text).unwrap();
        let mut command = rdma_init::<&str>([]);
        command.env("RDMA_INIT_CONFIG", &file);
        check(text, command, &[&["site.toml"], parts].concat());
    }
    for value in [secret, "a b hunter2=", "=hunter2"] {
        check(value, rdma_init(["--set", "A=1", "--set", value]), &["--set", "number 2"]);
    }
}

#[test]
fn of_several_layers_the_one_that_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    fs::write(&path, "[set]\n\"T.X\" = \"1\"\n").unwrap();
    let mut command = rdma_init(["--set", "T_B=1", "--", "true"]);
    command.env("RDMA_INIT_CONFIG", &path).env("RDMA_INIT_SET", "T_A=1");
    run(command).expect_error(&["key set in the file", "site.toml", "\"T.X\" is not the name"]);
}

/// A value must never be changed silently.
#[test]
fn a_variable_that_is_not_utf8_is_an_error() {
    for name in ["RDMA_INIT_SET", "RDMA_INIT_KEEP", "RDMA_INIT_PROFILE_DIR"] {
        with_variable(name, OsStr::from_bytes(b"NCCL_DEBUG=\xff")).expect_error(&[name]);
    }
}

#[test]
fn an_error_in_a_flag_names_the_flag() {
    with_flags(&["--memlock", "on"]).expect_error(&["memlock", "\"on\"", "--memlock"]);
    with_flags(&["--memlock="]).expect_error(&["memlock", "--memlock"]);
    with_flags(&["--set", "A"]).expect_error(&["set", "number 1", "--set", "VARIABLE=VALUE"]);
    with_flags(&["--set", "A=1", "--set", "=x"]).expect_error(&["number 2", "--set", "VARIABLE=VALUE"]);
    with_flags(&["--prepare-timeout", "-1s"]).expect_error(&["-1"]);
    with_flags(&["--prepare-timeout", "10"]).expect_error(&["\"10\"", "--prepare-timeout"]);
    with_flags(&["--prepare-timeout", "99999999999999999999y"]).expect_error(&["--prepare-timeout"]);
    with_flags(&["--refuse-exit-code", "1.5"]).expect_error(&["\"1.5\"", "--refuse-exit-code"]);
    with_flags(&["--log-level", "loud"]).expect_error(&["\"loud\"", "--log-level"]);
    with_flags(&["--profile", "nosuch"]).expect_error(&["\"nosuch\"", "generic-roce"]);
    with_flags(&["--profile-dir", "/no/such"]).expect_error(&["/no/such", "profile-dir"]);
    with_flags(&["--profile-dir", ""]).expect_error(&["--profile-dir"]);
}

#[test]
fn a_flag_that_is_not_utf8_is_an_error() {
    let flag = OsStr::from_bytes(b"NCCL_DEBUG=\xff");
    let ran = run(rdma_init(["--set".as_ref(), flag, "--".as_ref(), "true".as_ref()]));
    ran.expect_error(&["UTF-8"]);
}

#[test]
fn the_longest_timeout_is_no_crash() {
    with_flags(&["--prepare-timeout", "500000000000y"]).expect_code(0);
    with_flags(&["--prepare-timeout", "1000y"]).expect_code(0);
}

#[test]
fn a_later_layer_wins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, "profile = \"nosuch-file\"\n").unwrap();
    let profile_of = |variable: Option<&str>, flag: Option<&str>| {
        let mut command = rdma_init(["plan", "--facts", "demo:infiniband"]);
        command.env("RDMA_INIT_CONFIG", &file);
        command.envs(variable.map(|value| ("RDMA_INIT_PROFILE", value)));
        command.args(flag.map(|value| ["--profile", value]).into_iter().flatten());
        run(command)
    };
    profile_of(None, None).expect_error(&["nosuch-file"]);
    profile_of(Some("nosuch-variable"), None).expect_error(&["nosuch-variable"]);
    profile_of(Some("nosuch-variable"), Some("nosuch-flag")).expect_error(&["nosuch-flag"]);
    profile_of(Some("nosuch-variable"), Some("none")).expect_code(0);
    // An empty name means no file, so the default file applies if it exists.
    let mut command = rdma_init(["profiles"]);
    command.env("RDMA_INIT_CONFIG", "");
    run(command).expect_code(0);
}

/// Returns the variables that `env` prints for a host on which rdma-init itself fills in none.
fn set_by(file: &str, variable: Option<&str>, flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    fs::write(&path, file).unwrap();
    let mut command = rdma_init(["env", "--facts", "demo:infiniband", "--format", "docker"]);
    command.env("RDMA_INIT_CONFIG", &path).envs(variable.map(|value| ("RDMA_INIT_SET", value))).args(flags);
    let ran = run(command).expect_code(0);
    ran.text().lines().filter(|line| line.starts_with("T_")).map(str::to_owned).collect()
}

#[test]
fn variables_to_set_add_up_and_a_later_layer_wins_for_each() {
    let file = "[set]\nT_A = \"file\"\nT_B = \"file\"\nT_F = 1\n";
    assert_eq!(set_by(file, None, &[]), ["T_A=file", "T_B=file", "T_F=1"]);
    let flags = ["--set", "T_A=flag", "--set", "T_C=x=y"];
    assert_eq!(set_by(file, None, &flags), ["T_A=flag", "T_B=file", "T_C=x=y", "T_F=1"]);
    let all = ["T_A=flag", "T_B=variable", "T_C=x=y", "T_D=variable", "T_F=1"];
    assert_eq!(set_by(file, Some("T_B=variable\nT_D=variable"), &flags), all);
}

#[test]
fn a_refusal_has_its_code_and_leaves_the_reason_behind() {
    if fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()) {
        return skip("this machine has RDMA devices, so require-rdma does not refuse");
    }
    let folder = tempfile::tempdir().unwrap();
    let refuse = |log: &Path, flags: &[&str]| {
        let mut command = rdma_init(["--require-rdma"].iter().chain(flags).chain(&["--", "echo", "started"]));
        command.env("RDMA_INIT_TERMINATION_LOG", log);
        run(command)
    };
    let log = folder.path().join("log");
    let ran = refuse(&log, &[]).expect_code(121);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("refusing to start"), "{ran:#?}");
    let reason = fs::read_to_string(&log).unwrap();
    assert!(reason.starts_with("rdma-init: RDMA is required"), "{reason}");
    refuse(&log, &["--refuse-exit-code", "77"]).expect_code(77);

    // The log is optional: whatever exists in its place must not make the program hang or change the exit
    // code.
    let ran = refuse(folder.path(), &[]).expect_code(121);
    assert!(ran.stderr.contains("cannot write the reason"), "{ran:#?}");
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    refuse(&fifo, &[]).expect_code(121);
    refuse(Path::new("/dev/full"), &[]).expect_code(121);

    // Another user's file keeps its content, too.
    let (other, link) = (folder.path().join("other"), folder.path().join("link"));
    fs::write(&other, "of another user\n").unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    for path in [&other, &link] {
        let ran = refuse(path, &[]).expect_code(121);
        assert!(ran.stderr.contains("cannot write the reason"), "{ran:#?}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of another user\n");
    }
}

#[test]
fn an_error_that_ends_with_a_question_has_no_full_stop_behind_it() {
    let ran = with_text("reqire-rdma = true").expect_code(125);
    assert!(ran.stderr.trim_end().ends_with("did you mean require-rdma?"), "{ran:#?}");
}

#[test]
fn what_does_nothing_without_an_init_is_named() {
    let ran = run(rdma_init(["--stop-timeout", "1s", "--kill-group", "--", "true"])).expect_code(0);
    assert!(ran.stderr.contains("have no effect: kill-group, stop-timeout. Add --supervise"), "{ran:#?}");
    let ran = run(rdma_init(["--parent-death-signal", "TERM", "--", "true"])).expect_code(0);
    assert!(!ran.stderr.contains("no effect"), "{ran:#?}");
}

#[test]
fn the_hca_of_the_default_route_is_decided_by_file_variable_and_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, "default-route-hca = \"skip\"\n").unwrap();
    let facts = golden::facts("default-route-on-one-of-four-rails");
    let hcas = |file: Option<&Path>, variable: Option<&str>, flags: &[&str]| {
        let mut command = rdma_init(["env", "--format", "docker", "--facts"]);
        command.arg(&facts).args(flags);
        command.envs(file.map(|file| ("RDMA_INIT_CONFIG", file)));
        command.envs(variable.map(|value| ("RDMA_INIT_DEFAULT_ROUTE_HCA", value)));
        let ran = run(command).expect_code(0);
        ran.text().lines().find_map(|line| line.strip_prefix("NCCL_IB_HCA==")).unwrap().to_owned()
    };
    let (all, without) = ("mlx5_0,mlx5_1,mlx5_2,mlx5_3", "mlx5_1,mlx5_2,mlx5_3");
    assert_eq!(hcas(None, None, &[]), all);
    assert_eq!(hcas(Some(&file), None, &[]), without);
    assert_eq!(hcas(Some(&file), Some("auto"), &[]), all);
    assert_eq!(hcas(Some(&file), Some("use"), &["--default-route-hca", "skip"]), without);
    with_variable("RDMA_INIT_DEFAULT_ROUTE_HCA", "avoid").expect_error(&[
        "default-route-hca",
        "avoid",
        "auto, use, skip",
    ]);
}
