//! Tests the state that a start without an init saves for `exec`, `env` and `status`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rdma_init::state::mount::is_of_root;

use super::run::{Ran, has_own_mounts, program, rdma_init, run};
use crate::support::{binary, skip};

/// A directory for the state, below a directory that only the tests' user may write to.
struct StateDir {
    folder: tempfile::TempDir,
}

impl StateDir {
    fn new() -> StateDir {
        StateDir { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = rdma_init(arguments);
        command.env("RDMA_INIT_STATE_DIR", self.path());
        command
    }

    /// Runs a script as a start's command. The script finds the program's path in `$0`.
    fn script(&self, script: &str) -> Ran {
        let mut command =
            self.command(&["--set", "NCCL_IB_TC=106", "--", "sh", "-c", script, binary().to_str().unwrap()]);
        command.env("SECRET", "hunter2");
        run(command)
    }
}

#[test]
fn a_command_finds_what_it_was_started_with() {
    let place = StateDir::new();
    let ran = place.script("unset NCCL_IB_TC; $0 status && $0 env && $0 exec -- sh -c 'echo $NCCL_IB_TC'");
    let ran = ran.expect_code(0);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert!(lines[0].starts_with("prepared ") && lines[0].ends_with("; 1 variable filled in"), "{ran:#?}");
    assert_eq!(lines[1..], ["the command runs", "export NCCL_IB_TC=106", "106"]);
    // A process that enters may set another value, and flags request a new decision.
    let ran = place
        .script("NCCL_IB_TC=1 $0 exec -- sh -c 'echo $NCCL_IB_TC'; $0 env --set NCCL_IB_SL=3")
        .expect_code(0);
    assert!(ran.text().starts_with("1\n") && ran.text().contains("export NCCL_IB_SL=3"), "{ran:#?}");
}

#[test]
fn a_start_in_a_mount_namespace_of_its_own_leaves_the_state_as_it_is() {
    let place = StateDir::new();
    if !has_own_mounts() || !is_of_root(place.folder.path()) {
        return skip("no mount namespace can be made, or /tmp is a mount");
    }
    let plan = || fs::read_to_string(place.path().join("plan.json")).unwrap();
    let script = "unset NCCL_IB_TC; cat $RDMA_INIT_STATE_DIR/plan.json; for way in '--set NCCL_IB_TC=3 -- true' env status; do unshare --mount $0 $way || exit; done";
    let ran = place.script(script).expect_code(0);
    let after = plan();
    let (before, rest) = ran.text().split_at(after.len());
    assert_eq!(before, after);
    let lines: Vec<&str> = rest.lines().collect();
    assert_eq!((lines[0], lines[2]), ("export NCCL_IB_TC=106", "the command runs"), "{ran:#?}");
    // Its command has ended, so the next start uses the directory.
    let program_path = binary();
    let arguments = ["--mount", program_path.to_str().unwrap(), "--set", "NCCL_IB_TC=7", "--", "true"];
    let mut next = program("/usr/bin/unshare", arguments);
    next.env("RDMA_INIT_STATE_DIR", place.path());
    run(next).expect_code(0);
    assert!(plan() != after && plan().contains("\"NCCL_IB_TC\": \"7\""), "{}", plan());
}

#[test]
fn what_the_command_line_says_to_ray_is_a_fact() {
    let place = StateDir::new();
    let script = "exit 0; ray start --node-ip-address=10.0.0.5 --block";
    place.run(&["--", "sh", "-c", script]).expect_code(0);
    let facts = fs::read_to_string(place.path().join("facts.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["ray_start"], serde_json::json!({"node_ip_address": "10.0.0.5"}));
}

/// A profile that is selected by name fills in constants on any machine.
#[test]
fn what_was_filled_in_is_not_called_the_user_s() {
    let place = StateDir::new();
    let script = |flags: &[&str], profile: Option<&str>, script: &str| {
        let program = binary();
        let start = ["--", "sh", "-c", script, program.to_str().unwrap()];
        let mut command = place.command(&[flags, &start].concat());
        command.env("NCCL_DEBUG", "WARN").envs(profile.map(|name| ("RDMA_INIT_PROFILE", name)));
        run(command).expect_code(0)
    };
    // In the first case, the profile is a flag of the start, which is unknown later. In the second, it is a
    // variable, which is known.
    for (flags, variable) in [(&["--profile", "baidu-cce"][..], None), (&[], Some("baidu-cce"))] {
        let asked = |command: &str| script(flags, variable, &format!("exec $0 {command}"));
        let plan = asked("plan");
        let line =
            |name: &str| plan.text().lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(line("NCCL_IB_TIMEOUT").starts_with("  set "), "{plan:#?}");
        assert!(
            line("NCCL_IB_TIMEOUT")
                .ends_with("published (profile baidu-cce), filled in when this container started"),
            "{plan:#?}"
        );
        assert!(line("NCCL_DEBUG").starts_with("  yours "), "{plan:#?}");
        let why = asked("plan --why NCCL_IB_TIMEOUT");
        for part in [
            ", filled in by rdma-init when this container started\n",
            "where it is set\n  rdma-init, when this container started: ",
            "what decided\n  published (profile baidu-cce)\n",
        ] {
            assert!(why.text().contains(part), "no {part:?} in {why:#?}");
        }
        // If a user requests another profile, `env` prints its variables, and the command gets them.
        let other = asked("env --profile none --all");
        assert!(!other.text().contains("NCCL_IB_TIMEOUT"), "{other:#?}");
        let command = asked("--profile none -- env");
        assert!(!command.text().contains("NCCL_IB_TIMEOUT="), "{command:#?}");
        // Without such a request, the start's decision stays.
        assert!(asked("-- env").text().contains("\nNCCL_IB_TIMEOUT="));
        let captured = asked("plan --facts demo:infiniband");
        let of_here = ["yours  NCCL_IB_", "when this container started"];
        assert!(!of_here.iter().any(|text| captured.text().contains(text)), "{captured:#?}");
    }
    // Another value counts as set by the user.
    let why =
        script(&["--profile", "baidu-cce"], None, "NCCL_IB_TIMEOUT=7 exec $0 plan --why NCCL_IB_TIMEOUT");
    assert!(why.text().starts_with("NCCL_IB_TIMEOUT=7, set by you and unchanged\n"), "{why:#?}");
    // A value from the configuration also counts as set by the user.
    let why = script(&["--set", "NCCL_IB_TIMEOUT=9"], None, "exec $0 plan --why NCCL_IB_TIMEOUT");
    assert!(why.text().starts_with("NCCL_IB_TIMEOUT=9, set by you and unchanged\n"), "{why:#?}");
}

#[test]
fn nothing_of_the_rest_of_the_environment_is_kept() {
    let place = StateDir::new();
    place.script("true").expect_code(0);
    let mut names = Vec::new();
    for entry in fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("hunter2"), "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        names.push(path.file_name().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["env.sh", "facts.json", "nccl.conf", "plan.json"]);
    assert_eq!(fs::read_to_string(place.path().join("env.sh")).unwrap(), "export NCCL_IB_TC=106\n");
    let facts = place.path().join("facts.json");
    place.run(&["plan", "--facts", facts.to_str().unwrap()]).expect_code(0);
}

#[test]
fn without_a_start_it_is_decided_anew() {
    let place = StateDir::new();
    let ran = place.run(&["status"]).expect_code(1);
    assert!(ran.text().starts_with("not ready: nothing was prepared"), "{ran:#?}");
    let ran = place.run(&["exec", "--", "sh", "-c", "exit 7"]).expect_code(7);
    assert!(ran.stderr.contains("the variables are decided anew"), "{ran:#?}");
    place.script("true").expect_code(0);
    let plan = place.path().join("plan.json");
    let text = fs::read_to_string(&plan).unwrap();
    for (spoilt, why) in [
        ("{".to_owned(), "it is not a plan"),
        (text.replace("plan/1", "plan/9"), "its schema is"),
        (text.replace("\"boot\": \"", "\"boot\": \"x"), "it belongs to an earlier start"),
    ] {
        fs::write(&plan, spoilt).unwrap();
        let ran = place.run(&["exec", "--", "true"]).expect_code(0);
        assert!(ran.stderr.contains(why), "no {why:?} in {ran:#?}");
    }
    fs::remove_file(&plan).unwrap();
    nix::unistd::mkfifo(&plan, nix::sys::stat::Mode::S_IRWXU).unwrap();
    place.run(&["status"]).expect_code(1);
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can give a folder away");
    }
    let place = StateDir::new();
    fs::create_dir(place.path()).unwrap();
    std::os::unix::fs::chown(place.path(), Some(12345), None).unwrap();
    let ran = place.script("echo started").expect_code(0);
    assert_eq!(ran.text(), "started\n");
    assert!(ran.stderr.contains("it belongs to another user (uid 12345)"), "{ran:#?}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn the_state_directory_must_be_an_absolute_path() {
    for wrong in ["state", "/run/../etc"] {
        let mut command = rdma_init(["--", "true"]);
        command.env("RDMA_INIT_STATE_DIR", wrong);
        run(command).expect_error(&["state-dir", wrong, "expected an absolute path without \"..\""]);
    }
    run(rdma_init(["exec"])).expect_error(&["COMMAND"]);
    run(rdma_init(["exec", "true"])).expect_error(&["rdma-init"]);
}
