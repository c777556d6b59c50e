//! Tests containers with few permissions and little visibility.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::docker::host::{Host, OWN_SLOT};
use crate::support::docker::{Ended, engine, file};
use crate::support::poll_until;

#[track_caller]
fn filled(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_0"), "{ended:#?}");
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT), "{ended:#?}");
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), Some("eth0"), "{ended:#?}");
    ended
}

#[test]
fn restricted_containers_are_filled_in_all_the_same() {
    let Some(engine) = engine() else { return };
    let all =
        ["--user", "1000:1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"];
    // This is a Pod with Kubernetes' profile `restricted`, whose root file system may be writable.
    let restricted = [&all[..2], &all[3..]].concat();
    let of_host = ["--userns", "host"];
    for options in [&[][..], &all[..2], &all[2..3], &all[3..5], &all[5..], &all, &restricted, &of_host] {
        let host = Host::with_one_hca(engine);
        filled(engine.run(host.options(options), &["env"])).expect_unsaid("warning");
    }
}

#[test]
fn without_capabilities_signals_still_reach_the_command() {
    let Some(engine) = engine() else { return };
    let options = ["--cap-drop", "ALL", "--user", "1000", "--read-only"];
    let mut container =
        engine.start(options, &["sh", "-c", "trap 'exit 8' TERM; echo ready; sleep 1000 & wait"]);
    container.wait_for("ready");
    container.signal("TERM");
    container.wait().expect_code(8);
}

#[test]
fn a_bare_image_works() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let ended = engine.run_bare(host.options(&[]), &["/rdma-init", "env", "--format", "docker"]);
    // The second start finds the variables that the first one filled in.
    ended.expect_code(0).expect_line(["set", "NCCL_IB_GID_INDEX", OWN_SLOT]).expect_unsaid("warning");
    engine.run_bare::<&str>([], &["/rdma-init", "--version"]).expect_code(0).expect_stdout(concat!(
        "rdma-init ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    ));
    engine.run_bare::<&str>([], &["sh"]).expect_code(127).expect_said("cannot run sh");
}

/// This command hides /proc in a container that may mount.
const HIDE_PROC: &str = "mount -t tmpfs none /proc";
const MAY_MOUNT: [&str; 4] = ["--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"];

#[test]
fn without_dev_null_the_command_starts() {
    let Some((engine, host)) = Host::of_engine() else { return };
    filled(engine.after("rm /dev/null", host.options(&[]), "/rdma-init -- env"));
}

#[test]
fn without_sys_the_command_starts() {
    let Some(engine) = engine() else { return };
    engine
        .run(["--tmpfs", "/sys"], &["sh", "-c", "echo started"])
        .expect_code(0)
        .expect_stdout("started\n")
        .expect_said("there is no RDMA device in this container");
}

/// A sandbox may hide /sys but still provide devices. NCCL then finds none of them, and the report must not
/// tell a user who looks for the cause that there are no devices.
#[test]
fn devices_without_sys_are_not_called_absent() {
    let Some(engine) = engine() else { return };
    engine
        .run(["--tmpfs", "/sys", "--device", "/dev/null:/dev/infiniband/uverbs0"], &["true"])
        .expect_code(0)
        .expect_line(["/dev/infiniband", "/sys/class/infiniband"]);
}

#[test]
fn a_sys_that_the_user_may_not_read_is_named() {
    let Some((engine, host)) = Host::of_engine() else { return };
    fs::set_permissions(host.sys().join("class/infiniband"), fs::Permissions::from_mode(0o700)).unwrap();
    engine
        .run(host.options(&["--user", "65534"]), &["sh", "-c", "echo started"])
        .expect_code(0)
        .expect_stdout("started\n")
        .expect_line(["/sys/class/infiniband", "EACCES"]);
}

/// No file below /sys can be read, including those of the interfaces, regardless of the number of interfaces.
#[test]
fn what_may_not_be_read_is_not_called_absent() {
    let Some((engine, host)) = Host::of_engine() else { return };
    fs::set_permissions(host.sys(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut container = engine.create(host.options(&["--user", "65534"]), &["true"]);
    for rail in engine.rails() {
        container.connect(rail, rail.address());
    }
    container.start();
    container
        .wait()
        .expect_code(0)
        .expect_said("/sys/class/infiniband")
        .expect_unsaid("there is no RDMA device in this container");
}

#[test]
fn without_proc_the_command_starts() {
    let Some((engine, host)) = Host::of_engine() else { return };
    filled(engine.after(HIDE_PROC, host.options(&MAY_MOUNT), "/rdma-init -- env"));
}

/// Without /proc, no file shows the capability. The program proves it by locking more memory than the limit.
#[test]
fn without_proc_the_capability_still_counts() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let options = [&MAY_MOUNT[..], &["--ulimit", "memlock=65536:65536", "--cap-add", "IPC_LOCK"]].concat();
    engine
        .after(HIDE_PROC, host.options(&options), "/rdma-init --memlock enforce -- true")
        .expect_code(0)
        .expect_unsaid("no CAP_IPC_LOCK");
}

/// Writes a seccomp profile that denies these system calls. Returns the option that names it.
fn denying(calls: &str) -> (tempfile::TempDir, String) {
    let (folder, path) = file(&format!(
        r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{{"names": [{calls}], "action": "SCMP_ACT_ERRNO"}}]}}"#
    ));
    (folder, format!("seccomp={path}"))
}

#[test]
fn a_filter_that_denies_what_can_be_missed_changes_nothing() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, filter) =
        denying(r#""close_range", "mlock2", "setpgid", "signalfd4", "statx", "timer_create""#);
    filled(engine.run(host.options(&["--security-opt", &filter]), &["env"])).expect_unsaid("warning");
}

/// If the addresses cannot be listed, the report says nothing about them.
#[test]
fn addresses_that_cannot_be_listed_are_not_called_missing() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, filter) = denying(r#""socket""#);
    engine
        .run(host.options(&["--security-opt", &filter]), &["true"])
        .expect_code(0)
        .expect_said("EPERM")
        .expect_unsaid("RoCE will not connect");
}

#[test]
fn two_processes_are_enough_and_with_one_the_command_takes_the_place() {
    let Some(engine) = engine() else { return };
    // PID 1 starts as a process of the engine. That process's threads count towards the limit until the
    // kernel has released them, so the first attempts may fail.
    poll_until("two are enough", || {
        let ended = engine.run(["--pids-limit", "2"], &["true"]);
        (ended.code == Some(0)).then_some(())
    });
    engine
        .run(["--pids-limit", "1"], &["sh", "-c", "exit 7"])
        .expect_code(7)
        .expect_said("limit of processes")
        .expect_said("takes the place of rdma-init");
}
