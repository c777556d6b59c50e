//! Tests that processes that enter a running container get the same variables as its command.

use crate::support::docker::host::Host;
use crate::support::docker::{Container, Ended, Engine, engine, file};
use crate::support::poll_until;

const WANTED: [&str; 3] = ["NCCL_IB_GID_INDEX=5", "NCCL_IB_HCA==mlx5_0", "NCCL_SOCKET_IFNAME=eth0"];

const JOB: [&str; 3] = ["sh", "-c", "echo ready; exec sleep 1000"];

fn started<'a>(engine: &'a Engine, host: &Host, options: &[&str]) -> Container<'a> {
    let mut container = engine.start(host.options(options), &JOB);
    container.wait_for("ready");
    container
}

/// Returns the lines about NCCL's variables, sorted.
fn about_nccl(ended: &Ended) -> Vec<String> {
    let lines = ended.stdout.lines().filter(|line| line.starts_with("NCCL_"));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[track_caller]
fn shows(ended: &Ended, text: &str) {
    assert!(ended.stdout.contains(text), "no {text:?} in {ended:#?}");
}

#[test]
fn exec_gives_what_the_command_got() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let container = started(engine, &host, &["--env", "SECRET=hunter2"]);
    let env = container.exec(&["/rdma-init", "exec", "--", "env"]).expect_code(0);
    assert_eq!(about_nccl(&env), WANTED);
    assert_eq!(env.stderr, "");
    // Any user's process gets the same variables. A variable that the user sets for the process stays.
    let other =
        container.docker(["exec", "--user", "1234"], &["/rdma-init", "exec", "--", "env"]).expect_code(0);
    assert_eq!(about_nccl(&other), WANTED);
    let own = ["exec", "--env", "NCCL_IB_HCA=", "--env", "NCCL_SOCKET_IFNAME=lo"];
    let own = container.docker(own, &["/rdma-init", "exec", "--", "env"]).expect_code(0);
    assert_eq!(about_nccl(&own), ["NCCL_IB_GID_INDEX=5", "NCCL_IB_HCA=", "NCCL_SOCKET_IFNAME=lo"]);
    // A shell can read the variables without rdma-init.
    let sourced = container.exec(&["sh", "-c", ". /run/rdma-init/env.sh; env"]).expect_code(0);
    assert_eq!(about_nccl(&sourced), WANTED);
    // The exit code is the command's.
    container.exec(&["/rdma-init", "exec", "--", "sh", "-c", "exit 7"]).expect_code(7);
    container
        .exec(&["/rdma-init", "exec", "--", "/no/such"])
        .expect_code(127)
        .expect_said("cannot run /no/such");
    container.exec(&["/rdma-init", "exec"]).expect_code(125);

    let left = container.exec(&["sh", "-c", "ls -lan /run/rdma-init; cat /run/rdma-init/*"]).expect_code(0);
    for part in ["drwxr-xr-x", "-rw-r--r--", "env.sh", "nccl.conf", "plan.json", "facts.json"] {
        assert!(left.stdout.contains(part), "no {part} in {left:#?}");
    }
    assert!(!left.stdout.contains("hunter2"), "{left:#?}");
}

#[test]
fn a_shell_of_the_command_shows_what_rdma_init_filled_in() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let options = host.options(&["--env", "NCCL_IB_TIMEOUT=22"]);
    let shell = |script: &str| engine.script(options.clone(), script).expect_code(0);
    let plan = shell("/rdma-init plan");
    for line in [
        "  set    NCCL_IB_GID_INDEX   5         index 5 of every HCA is a RoCE v2 GID with an address of this container (facts), filled in when this container started",
        "  yours  NCCL_IB_TIMEOUT     22        environment",
    ] {
        shows(&plan, line);
    }
    let why = shell("/rdma-init plan --why NCCL_IB_HCA");
    shows(&why, "NCCL_IB_HCA==mlx5_0, filled in by rdma-init when this container started\n");
    shows(&why, "where it is set\n  rdma-init, when this container started: \"=mlx5_0\"\n");
    shows(&shell("/rdma-init plan --why NCCL_IB_TIMEOUT"), "NCCL_IB_TIMEOUT=22, set by you and unchanged\n");
    shows(&shell("NCCL_IB_HCA=mlx5_0 /rdma-init plan --why NCCL_IB_HCA"), "set by you and unchanged\n");
    // A second start inside the container fills in the same variables. With a flag, `env` makes its own
    // decision.
    assert_eq!(
        about_nccl(&shell("/rdma-init -- env")),
        [WANTED[0], WANTED[1], "NCCL_IB_TIMEOUT=22", WANTED[2]]
    );
    let env = shell("/rdma-init env --keep NCCL_IB_GID_INDEX --format docker");
    assert_eq!(about_nccl(&env), [WANTED[1], WANTED[2]]);
}

#[test]
fn nccl_finds_the_variables_in_every_process() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, conf) = file("NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=eth9");
    // The container has its own copy of the file, as if the image contained it.
    let copy = format!("cp {conf}.in /etc/nccl.conf");
    let volume = format!("{conf}:{conf}.in:ro");
    let options = host.options(&["--volume", &volume, "--entrypoint", "/bin/sh"]);
    let script = format!("{copy}; exec /rdma-init -- sh -c 'echo ready; exec sleep 1000'");
    let mut container = engine.start(options, &["-c", &script]);
    container.wait_for("ready");
    let conf = container.exec(&["cat", "/etc/nccl.conf"]).expect_code(0).stdout;
    assert!(conf.starts_with("NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=eth9\n# rdma-init: begin"), "{conf}");
    for line in [WANTED[0], WANTED[1]] {
        assert!(conf.lines().any(|found| found == line), "{conf}");
    }
    // The user's own line was there before, and stays.
    assert!(!conf.contains(WANTED[2]), "{conf}");
    // An earlier start's lines do not count as a user setting at the next start.
    container.docker(["restart", "--time", "1"], &[]).expect_code(0);
    let has_started_again =
        || (container.docker(["logs"], &[]).stdout.matches("ready").count() == 2).then_some(());
    poll_until("the command runs again", has_started_again);
    let again = container.exec(&["cat", "/etc/nccl.conf"]).expect_code(0).stdout;
    assert_eq!(again.matches("# rdma-init: begin").count(), 1, "{again}");
    let plan = container.exec(&["/rdma-init", "plan"]).expect_code(0);
    shows(&plan, "set    NCCL_IB_HCA");
}

#[test]
fn the_state_is_found_even_if_little_is_writable() {
    let Some((engine, host)) = Host::of_engine() else { return };
    for options in [&["--read-only"][..], &["--user", "1234"], &["--read-only", "--user", "1234"]] {
        let container = started(engine, &host, options);
        let env = container.exec(&["/rdma-init", "exec", "--", "env"]).expect_code(0);
        assert_eq!(about_nccl(&env), WANTED, "{options:?}");
        assert_eq!(env.stderr, "", "{options:?}");
        let root =
            container.docker(["exec", "--user", "0"], &["/rdma-init", "exec", "--", "env"]).expect_code(0);
        assert_eq!(about_nccl(&root), WANTED, "{options:?}");
        shows(&container.exec(&["/rdma-init", "status"]).expect_code(0), "the command runs");
        container.signal("KILL");
        // The start reported what could not be done, and the fix. It did not advise the user to read files
        // that others may write.
        container
            .wait()
            .expect_line(["note:", "cannot be written to /etc/nccl.conf"])
            .expect_line(["fix:", "Start them with /rdma-init exec"])
            .expect_unsaid("NCCL_CONF_FILE");
    }
}

#[test]
fn status_is_for_probes() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let container = started(engine, &host, &["--env", "RDMA_INIT_SELF_TEST=warn"]);
    let status = container.exec(&["/rdma-init", "status"]).expect_code(0);
    shows(&status, "RoCE, 1 port");
    shows(&status, "3 variables filled in, self-test ");
    let json = container.exec(&["/rdma-init", "status", "--json"]).expect_code(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["ready"].as_bool(), json["filled"].as_u64()), (Some(true), Some(3)), "{json}");
    // Another start in the same container does not replace the first one's state.
    container.exec(&["/rdma-init", "--", "true"]).expect_code(0);
    container.exec(&["/rdma-init", "status"]).expect_code(0);
    drop(container);
    // A container whose start prepared nothing is not ready.
    let mut container =
        engine.start(host.options(&["--entrypoint", "/bin/sh"]), &["-c", "echo ready; sleep 1000"]);
    container.wait_for("ready");
    let status = container.exec(&["/rdma-init", "status"]).expect_code(1);
    shows(&status, "not ready: nothing was prepared yet");
    let afresh = container.exec(&["/rdma-init", "exec", "--", "env"]).expect_code(0);
    assert_eq!(about_nccl(&afresh), WANTED);
    afresh.expect_said("the variables are decided anew");
}

#[test]
fn nccl_variables_of_pid_1_reach_entering_processes() {
    let Some((engine, host)) = Host::of_engine() else { return };
    // A platform sets these variables without telling the engine, so an entering process does not have them.
    let script = "NCCL_IB_TIMEOUT=22 NCCL_SOCKET_IFNAME=eth0 TOKEN=hunter2 exec /rdma-init -- sh -c 'echo ready; exec sleep 1000'";
    let mut container = engine.start(host.options(&["--entrypoint", "/bin/sh"]), &["-c", script]);
    container.wait_for("ready");
    let all = [WANTED[0], WANTED[1], "NCCL_IB_TIMEOUT=22", WANTED[2]];
    assert_eq!(about_nccl(&container.exec(&["/rdma-init", "exec", "--", "env"]).expect_code(0)), all);
    assert_eq!(about_nccl(&container.exec(&["cat", "/etc/nccl.conf"]).expect_code(0)), all);
    let env = |more: &[&str]| {
        let command = [&["/rdma-init", "env", "--format", "docker"], more].concat();
        about_nccl(&container.docker(["exec", "--env", WANTED[1]], &command).expect_code(0))
    };
    assert_eq!(env(&[]), [WANTED[0], WANTED[1]]);
    assert_eq!(env(&["--all"]), all);
    assert_eq!(env(&["--changed-only"]), [WANTED[0]]);
    assert_eq!(env(&["--all", "--changed-only"]), [WANTED[0], "NCCL_IB_TIMEOUT=22", WANTED[2]]);
    // This file contains only the filled variables.
    assert_eq!(
        about_nccl(&container.exec(&["cat", "/run/rdma-init/nccl.conf"]).expect_code(0)),
        [WANTED[0], WANTED[1]]
    );
    let kept = container.exec(&["grep", "-rl", "hunter2", "/run", "/etc"]);
    assert_eq!((kept.code, kept.stdout.as_str()), (Some(1), ""), "{kept:#?}");
}

#[test]
fn containers_that_share_a_folder_keep_each_their_own() {
    let Some(engine) = engine() else { return };
    let name = engine.named();
    let places = ["shareable".to_owned(), format!("container:{}", name.name)];
    // The containers share /dev/shm, as in a Pod, and there is no other place that they can write to.
    let start = |place: &str, value: &str| {
        let setting = format!("RDMA_INIT_SET=NCCL_IB_TC={value}");
        let options = ["--user", "1234", "--ipc", place, "--env", &setting, "--entrypoint", "/rdma-init"];
        let mut container = match place {
            "shareable" => engine.start_as(&name.name, options, &["--", "sh", "-c", JOB[2]]),
            _ => engine.start(options, &["--", "sh", "-c", JOB[2]]),
        };
        container.wait_for("ready");
        container
    };
    let containers = [start(&places[0], "1"), start(&places[1], "2")];
    for (container, value) in containers.iter().zip(["1", "2"]) {
        shows(&container.exec(&["/rdma-init", "status"]).expect_code(0), "the command runs");
        let env = container.exec(&["/rdma-init", "exec", "--", "env"]).expect_code(0);
        assert_eq!(about_nccl(&env), [format!("NCCL_IB_TC={value}")]);
    }
}

#[test]
fn a_start_by_hand_leaves_that_of_the_container_alone() {
    let Some(engine) = engine() else { return };
    // PID 1 is the engine's own init here.
    let options = ["--init", "--env", "RDMA_INIT_SET=NCCL_IB_TC=1"];
    let mut container = engine.start(options, &JOB);
    container.wait_for("ready");
    container
        .docker(["exec", "--env", "RDMA_INIT_SET=NCCL_IB_TC=2"], &["/rdma-init", "--", "true"])
        .expect_code(0);
    container.exec(&["/rdma-init", "status"]).expect_code(0);
    let conf = container.exec(&["cat", "/etc/nccl.conf"]).expect_code(0);
    assert_eq!(about_nccl(&conf), ["NCCL_IB_TC=1"]);
}

#[test]
fn a_file_that_others_may_share_is_changed_only_when_told_to() {
    let Some(engine) = engine() else { return };
    let (_folder, conf) = file("NCCL_DEBUG=WARN\n");
    let volume = format!("{conf}:/etc/nccl.conf");
    let options = ["--volume", &volume, "--env", "RDMA_INIT_SET=NCCL_IB_TC=1"];
    let ended = engine.run(options, &["true"]).expect_code(0);
    ended
        .expect_line([
            "cannot be written to /etc/nccl.conf",
            "it is a mount, which other containers may share",
        ])
        .expect_line(["fix:", "NCCL_CONF_FILE=/run/"]);
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), "NCCL_DEBUG=WARN\n");
    // Now the file belongs to the container's user, who could write to it but not to its directory.
    std::os::unix::fs::chown(&conf, Some(1234), None).unwrap();
    let own = [&options[..], &["--user", "1234"]].concat();
    engine
        .run(own, &["true"])
        .expect_code(0)
        .expect_line(["it is a mount, which other containers may share"]);
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), "NCCL_DEBUG=WARN\n");
    let told = [&options[..], &["--env", "RDMA_INIT_WRITE_NCCL_CONF=true"]].concat();
    engine.run(told, &["true"]).expect_code(0).expect_unsaid("cannot be written");
    assert!(std::fs::read_to_string(&conf).unwrap().contains("\nNCCL_IB_TC=1\n"));
    // At a later start, the file's directory is read-only, but the file still has the earlier lines, and NCCL
    // reads them.
    let later = ["--volume", &volume, "--env", "RDMA_INIT_SET=NCCL_IB_TC=2"];
    engine
        .run(later, &["true"])
        .expect_code(0)
        .expect_line(["has lines of an earlier start", "NCCL_IB_TC=1"]);
}

#[test]
fn the_advice_is_not_repeated_where_it_is_followed() {
    let Some(engine) = engine() else { return };
    let (_folder, conf) = file("");
    let volume = format!("{conf}:/etc/nccl.conf");
    let image = ["--volume", &volume, "--env", "RDMA_INIT_SET=NCCL_IB_TC=1"];
    let ended = engine.run(image, &["true"]).expect_code(0);
    ended.expect_said("ENV NCCL_CONF_FILE=/run/rdma-init/nccl.conf");
    let follows = [&image[..], &["--env", "NCCL_CONF_FILE=/run/rdma-init/nccl.conf"]].concat();
    engine
        .run(follows, &["cat", "/run/rdma-init/nccl.conf"])
        .expect_code(0)
        .expect_unsaid("ENV NCCL_CONF_FILE")
        .expect_unsaid("cannot read this file")
        .expect_unsaid("Make sure that no other container");
}

#[test]
fn no_advice_suggests_reading_files_that_others_may_write() {
    let Some(engine) = engine() else { return };
    let mount = "/run/rdma-init:uid=1234,mode=0755";
    let image = ["--user", "1234", "--tmpfs", mount, "--env", "RDMA_INIT_SET=NCCL_IB_TC=1"];
    engine.run(image, &["true"]).expect_code(0).expect_unsaid("NCCL_CONF_FILE");
    let reads = [&image[..], &["--env", "NCCL_CONF_FILE=/run/rdma-init/nccl.conf"]].concat();
    engine
        .run(reads, &["true"])
        .expect_code(0)
        .expect_line(["Make sure that no other container can write to /run/rdma-init"]);
}
