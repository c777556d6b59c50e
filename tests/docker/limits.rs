//! Tests pinned memory, and that a start is refused.

use std::process::Command;

use crate::support::docker::host::Host;
use crate::support::docker::{Ended, engine, file};
use crate::support::executable::copy_of_binary;
use crate::support::skip;

const LOW: [&str; 2] = ["--ulimit", "memlock=65536:65536"];

/// Runs a container with an HCA. Its command prints its limit of pinned memory, in KiB.
#[track_caller]
fn limit(options: &[&str]) -> Option<Ended> {
    let (engine, host) = Host::of_engine()?;
    Some(engine.script(host.options(options), "ulimit -l"))
}

/// Returns whether this machine's engine may start such a container at all. An engine in a virtual machine
/// without the capability SYS_RESOURCE may not, and no setup changes that.
fn could_start(ended: &Ended) -> bool {
    let could = !(ended.engine_failed() && ended.stderr.contains("operation not permitted"));
    if !could {
        println!("not tried: the engine of this machine may not raise this limit");
    }
    could
}

#[test]
fn a_low_limit_is_an_error_with_its_fix() {
    let Some(ended) = limit(&LOW) else { return };
    ended
        .expect_code(0)
        .expect_stdout("64\n")
        .expect_line(["limit", "memlock", "64 KiB"])
        .expect_line([
            "error:",
            "Only 64 KiB of memory can be pinned",
            "no CAP_IPC_LOCK",
            "Cannot allocate memory",
        ])
        .expect_line(["fix:", "--ulimit memlock=-1:-1", "--cap-add IPC_LOCK"]);
}

#[test]
fn the_capability_lifts_a_low_limit_for_root() {
    let Some(ended) = limit(&[LOW.as_slice(), &["--cap-add", "IPC_LOCK"]].concat()) else { return };
    ended
        .expect_code(0)
        .expect_stdout("64\n")
        .expect_line(["limit", "memlock", "64 KiB", "CAP_IPC_LOCK lifts it"])
        .expect_unsaid("error")
        .expect_unsaid("fix:");
}

#[test]
fn the_capability_that_does_not_reach_another_user_is_explained() {
    let options = [LOW.as_slice(), &["--cap-add", "IPC_LOCK", "--user", "1000"]].concat();
    let Some(ended) = limit(&options) else { return };
    ended
        .expect_code(0)
        .expect_line(["error:", "CAP_IPC_LOCK", "does not reach its user, uid 1000", "only root gets it"])
        .expect_line(["fix:", "setcap cap_ipc_lock+p"]);
}

/// Creates a copy of the program with the capability, which is the fix that the previous test's report
/// recommends. Returns the volume that mounts it as `/capable`.
fn capable(host: &Host) -> Option<String> {
    let program = copy_of_binary(&host.folder("capable"));
    let set = Command::new("setcap").arg("cap_ipc_lock+p").arg(&program).status();
    if !set.as_ref().is_ok_and(std::process::ExitStatus::success) {
        skip(&format!("setcap does not work here: {set:?}"));
        return None;
    }
    Some(format!("{}:/capable:ro", program.display()))
}

#[test]
fn a_file_capability_on_the_program_reaches_another_user_and_its_command() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let Some(mount) = capable(&host) else { return };
    let capable = ["--cap-add", "IPC_LOCK", "--user", "1000", "--volume", &mount, "--entrypoint", "/capable"];
    let options = [LOW.as_slice(), &capable].concat();
    let command = ["--memlock", "enforce", "--", "grep", "CapEff", "/proc/self/status"];

    let ended = engine.run(host.options(&options), &command).expect_code(0);
    assert_eq!(ended.stdout, "CapEff:\t0000000000004000\n", "{ended:#?}");
    ended.expect_said("CAP_IPC_LOCK lifts it").expect_unsaid("error");

    let options = [options.as_slice(), &["--security-opt", "no-new-privileges"]].concat();
    engine
        .run(host.options(&options), &command)
        .expect_code(121)
        .expect_stdout("")
        .expect_said("does not reach its user, uid 1000")
        .expect_said("allow privilege escalation");
}

/// If the program has a file capability, the C library removes variables from its environment.
#[test]
fn a_file_capability_on_the_program_takes_nothing_from_the_environment() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let Some(mount) = capable(&host) else { return };
    let variables = [
        "LD_LIBRARY_PATH=/opt/nccl/lib",
        "T_FIRST=1",
        "LD_PRELOAD=",
        "TMPDIR=/scratch",
        "GCONV_PATH=/g",
        "T_LAST=1",
    ];
    let environment = |entrypoint| {
        let options = ["--hostname", "node", "--cap-add", "IPC_LOCK", "--user", "1000", "--volume", &mount];
        let variables = variables.iter().flat_map(|variable| ["--env", variable]);
        let options: Vec<&str> =
            options.into_iter().chain(variables).chain(["--entrypoint", entrypoint]).collect();
        engine.run(host.options(&options), &["--", "cat", "/proc/self/environ"]).expect_code(0)
    };
    let ended = environment("/capable");
    for variable in variables {
        assert!(ended.stdout.split('\0').any(|entry| entry == variable), "{variable}: {ended:#?}");
    }
    // Docker passes its variables in any order. The suite `cli` proves that the order is preserved.
    let sorted = |ended: &Ended| {
        let mut entries: Vec<String> = ended.stdout.split('\0').map(str::to_owned).collect();
        entries.sort_unstable();
        entries
    };
    assert_eq!(sorted(&ended), sorted(&environment("/rdma-init")));
    ended.expect_unsaid("/proc/self/environ");
}

/// The container has no room for a second process.
#[test]
fn a_limit_of_one_process_does_not_keep_the_command_from_its_start() {
    let Some(engine) = engine() else { return };
    let one = ["--pids-limit", "1"];
    let ended = engine.script(one, "echo ran $$").expect_code(0).expect_stdout("ran 1\n");
    ended.expect_said("cannot create the process").expect_said("takes the place of rdma-init");
    let options = [&one[..], &["--env", "RDMA_INIT_REQUIRE_RDMA=true"]].concat();
    engine
        .script(options, "echo ran")
        .expect_code(121)
        .expect_stdout("")
        .expect_said("and require-rdma does");
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let Some(ended) = limit(&["--ulimit", "memlock=65536:1048576"]) else { return };
    ended.expect_code(0).expect_stdout("1024\n").expect_line([
        "limit",
        "memlock",
        "1 MiB, raised from 64 KiB",
    ]);
}

#[test]
fn the_limit_is_left_alone_where_asked_and_raised_in_silence_without_rdma() {
    let Some(engine) = engine() else { return };
    let options = ["--ulimit", "memlock=65536:1048576"];
    engine.script(options, "ulimit -l").expect_code(0).expect_stdout("1024\n").expect_unsaid("memlock");
    let options = [options.as_slice(), &["--env", "RDMA_INIT_MEMLOCK=off"]].concat();
    let Some(ended) = limit(&options) else { return };
    ended.expect_code(0).expect_stdout("64\n").expect_unsaid("memlock");
}

#[test]
fn without_a_limit_there_is_nothing_to_say() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let ended = engine.try_run(host.options(&["--ulimit", "memlock=-1:-1"]), &["sh", "-c", "ulimit -l"]);
    if could_start(&ended) {
        ended
            .expect_code(0)
            .expect_stdout("unlimited\n")
            .expect_line(["limit", "memlock", "unlimited"])
            .expect_unsaid("error")
            .expect_unsaid("raised");
    }
}

#[test]
fn the_hard_limit_is_raised_where_the_container_may() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let options = [LOW.as_slice(), &["--cap-add", "SYS_RESOURCE"]].concat();
    let ended = engine.try_run(host.options(&options), &["sh", "-c", "ulimit -l"]);
    if could_start(&ended) {
        ended
            .expect_code(0)
            .expect_stdout("unlimited\n")
            .expect_said("unlimited, raised from 64 KiB")
            .expect_unsaid("error");
    }
}

#[test]
fn enforce_refuses_where_next_to_nothing_can_be_pinned() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, log) = file("");
    let mount = format!("{log}:/dev/termination-log");
    let options = [LOW.as_slice(), &["--volume", &mount, "--entrypoint", "/rdma-init"]].concat();
    engine
        .run(host.options(&options), &["--memlock", "enforce", "--", "sh", "-c", "echo started"])
        .expect_code(121)
        .expect_stdout("")
        .expect_said("refusing to start the command (exit code 121): memlock = \"enforce\": Only 64 KiB of memory can be pinned");
    let reason = std::fs::read_to_string(&log).unwrap();
    let wanted = "rdma-init: memlock = \"enforce\": Only 64 KiB of memory can be pinned";
    assert!(reason.starts_with(wanted), "{reason}");
}

#[test]
fn enforce_is_content_with_the_capability() {
    let options = [LOW.as_slice(), &["--cap-add", "IPC_LOCK", "--env", "RDMA_INIT_MEMLOCK=enforce"]].concat();
    let Some(ended) = limit(&options) else { return };
    ended.expect_code(0).expect_stdout("64\n").expect_unsaid("refusing");
}

/// The kernel kills a worker, and the command fails because of that.
#[test]
fn memory_that_runs_out_is_named_in_the_log_and_for_kubernetes() {
    let Some(engine) = engine() else { return };
    let (_folder, log) = file("");
    let mount = format!("{log}:/dev/termination-log");
    let script = "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null; exit 3";
    let ended =
        engine.script(["--memory", "64m", "--memory-swap", "64m", "--volume", &mount], script).expect_code(3);
    if ended.stderr.contains("does not support memory limit") {
        return skip("the kernel of this machine's engine has no memory cgroup");
    }
    let line = ["sh ended with exit code 3", "Memory ran out meanwhile: the kernel killed 1 process of"];
    ended.expect_line(line);
    let reason = std::fs::read_to_string(&log).unwrap();
    assert!(
        reason.starts_with("rdma-init: sh ended with exit code 3 ") && reason.contains(line[1]),
        "{reason}"
    );
    // The kernel's earlier kills are no news.
    let ended = engine.script(["--memory", "64m", "--volume", &mount], "exit 3").expect_code(3);
    ended.expect_unsaid("Memory ran out");
}

#[test]
fn required_rdma_that_is_not_there_refuses_and_leaves_the_reason() {
    let Some(engine) = engine() else { return };
    let (_folder, log) = file("what was there before, and longer than the reason: ".repeat(20).as_str());
    let mount = format!("{log}:/dev/termination-log");
    engine
        .run(
            ["--volume", &mount, "--entrypoint", "/rdma-init"],
            &["--require-rdma", "--", "sh", "-c", "echo started"],
        )
        .expect_code(121)
        .expect_stdout("")
        .expect_said("refusing to start the command (exit code 121): RDMA is required (require-rdma)");
    assert_eq!(
        std::fs::read_to_string(&log).unwrap(),
        "rdma-init: RDMA is required (require-rdma). The job has no RDMA: there is no RDMA device in this container.\n"
    );
}

/// rdma-init predicts that RoCE will not connect.
#[test]
fn required_rdma_that_will_not_connect_refuses() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let empty_entry = ["--env", "NCCL_IB_GID_INDEX=9", "--env", "RDMA_INIT_REQUIRE_RDMA=true"];
    engine
        .run(host.options(&empty_entry), &["sh", "-c", "echo started"])
        .expect_said("RoCE will not connect")
        .expect_code(121)
        .expect_stdout("");
}

/// rdma-init predicts that NCCL will fail.
#[test]
fn required_rdma_refuses_where_nccl_would_end() {
    let Some((engine, host)) = Host::of_engine() else { return };
    // A prediction needs a known release, so the test sets one. A release from 2.29 on uses another interface
    // instead.
    let known = ["--env", "NCCL_VERSION=2.27.7", "--env", "NCCL_COMM_ID=192.0.2.1:4000"];
    let environment = [&known[..], &["--env", "RDMA_INIT_REQUIRE_RDMA=true"]].concat();
    engine
        .run(host.options(&environment), &["sh", "-c", "echo started"])
        .expect_said("NCCL will fail with \"NET/Socket : No usable listening interface found\"")
        .expect_code(121)
        .expect_stdout("");
}

/// If the kernel has no room for the variables, the command would not get the decided values.
#[test]
fn required_rdma_refuses_where_the_variables_have_no_room() {
    let Some((engine, host)) = Host::of_engine() else { return };
    // In bytes: the value is longer than the kernel accepts for one variable (MAX_ARG_STRLEN).
    let (_folder, config) = file(&format!("[set]\nT_FILLED = \"{}\"\n", "y".repeat(200_000)));
    let (_folder, log) = file("");
    let mounts = [format!("{config}:/etc/rdma-init.toml"), format!("{log}:/dev/termination-log")];
    let options = ["--volume", &mounts[0], "--volume", &mounts[1], "--env", "RDMA_INIT_REQUIRE_RDMA=true"];
    engine.run(host.options(&options), &["sh", "-c", "echo started"]).expect_code(121).expect_stdout("");
    let reason = std::fs::read_to_string(&log).unwrap();
    assert!(
        reason.contains("no room for the variables") && reason.contains("and require-rdma does"),
        "{reason}"
    );
}

#[test]
fn the_reason_goes_where_the_user_says_and_the_code_is_the_user_s() {
    let Some(engine) = engine() else { return };
    let (_folder, log) = file("");
    let mount = format!("{log}:/reason");
    let options = [
        ["--volume", &mount],
        ["--env", "RDMA_INIT_TERMINATION_LOG=/reason"],
        ["--env", "RDMA_INIT_REQUIRE_RDMA=true"],
        ["--env", "RDMA_INIT_REFUSE_EXIT_CODE=42"],
    ];
    engine.run(options.concat(), &["true"]).expect_code(42).expect_said("(exit code 42)");
    assert!(std::fs::read_to_string(&log).unwrap().contains("there is no RDMA device"));
}

#[test]
fn a_termination_log_that_cannot_be_written_does_not_hide_the_reason() {
    let Some(engine) = engine() else { return };
    let (_folder, log) = file("");
    let mount = format!("{log}:/dev/termination-log:ro");
    engine
        .run(["--volume", &mount, "--env", "RDMA_INIT_REQUIRE_RDMA=true"], &["true"])
        .expect_code(121)
        .expect_said("RDMA is required")
        .expect_said("/dev/termination-log");
}

#[test]
fn required_rdma_that_is_present_changes_nothing() {
    let Some(ended) = limit(&["--env", "RDMA_INIT_REQUIRE_RDMA=true"]) else { return };
    ended.expect_code(0).expect_unsaid("refusing");
}
