//! Tests whose state `exec` and `env` trust. A process of another container, which is root without any
//! capability and shares directories with this container, tries to decide what runs here.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::enter::is_us;
use super::pod::{PROGRAM, Pod, Victim, got};
use crate::support::hang::Hang;
use crate::support::poll_until;
use crate::support::running::{as_pid_1, descriptors, has_descriptors, in_place, rdma_init, shell};

const OWN: [&str; 2] = ["NCCL_IB_TC=106", "NCCL_TOPO_FILE=/topology.xml"];
const HARMLESS: [&str; 1] = ["NCCL_IB_TC=106"];
const EVERYWHERE: [&str; 3] = ["/dev/shm", "/run", "/tmp"];

#[test]
fn every_user_trusts_a_state_on_the_root_file_system() {
    for shared in [&["/dev/shm"][..], &["/dev/shm", "/tmp"], &["/dev/shm", "/run"]] {
        let pod = Pod::sharing(shared);
        // If others may write to /run, then /run/rdma-init is not trusted.
        if shared.contains(&"/run") {
            pod.make("/run", 0o777);
        }
        let victim = pod.start();
        for _ in 0..2 {
            for user in [0, 1234] {
                victim.exec(user).expect(&OWN);
                victim.env(user).expect(&OWN);
            }
            victim.plant(&victim.forged());
        }
    }
}

#[test]
fn pid_1_vouches_for_a_state_in_a_shared_directory() {
    for (shared, user) in
        [(&EVERYWHERE[..], 0), (&EVERYWHERE, 1234), (&["/dev/shm", "/run"], 0), (&["/dev/shm"], 1234)]
    {
        let pod = Pod::sharing(shared).read_only().user(user);
        let victim = pod.start();
        for _ in 0..2 {
            let got = victim.exec(user).expect(&OWN);
            assert_eq!(got.said, "", "{shared:?}, {user}");
            victim.env(user).expect(&OWN);
            victim.plant(&victim.forged());
        }
        let status = got_status(&victim, user);
        assert_eq!((status["ready"].as_bool(), status["trusted"].as_bool()), (Some(true), Some(true)));
        assert_ne!(status["decided"], "forged");
    }
}

fn got_status(victim: &Victim, user: u32) -> serde_json::Value {
    let output = victim.enter(user, &["status", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn pid_1_holds_the_state_if_nothing_is_writable() {
    let pod = Pod::sharing(&[]).read_only();
    let mut victim = pod.start();
    victim.init.wait_for_error("the decision cannot be written to any directory, and only PID 1 holds it");
    victim.exec(0).expect(&OWN);
    assert_eq!(got_status(&victim, 0)["ready"], true);
    victim.exec(1234).expect(&[]).expect_said(&["decided anew"]);
}

/// A user who may not examine PID 1 has only the state in the directory.
#[test]
fn others_get_only_what_is_harmless_and_are_told() {
    let pod = Pod::sharing(&EVERYWHERE).read_only();
    let victim = pod.start();
    let said = ["are omitted", "NCCL_TOPO_FILE", "/run/rdma-init", "enter as the user and group of PID 1"];
    victim.exec(1234).expect(&HARMLESS).expect_said(&said);
    victim.env(1234).expect(&HARMLESS).expect_said(&said);
    // A user who can write to that directory decides only harmless values.
    victim.plant(&victim.forged());
    let left_out = ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "NCCL_NET_PLUGIN", "NCCL_CONF_FILE"];
    victim.exec(1234).expect(&["NCCL_IB_TC=66"]).expect_said(&left_out);
    victim.env(1234).expect(&["NCCL_IB_TC=66"]).expect_said(&left_out);
    victim.exec(0).expect(&OWN);
}

/// Root must not run code that another user of the same container has specified.
#[test]
fn root_takes_no_code_of_another_user() {
    for pod in [Pod::sharing(&["/dev/shm"]), Pod::sharing(&EVERYWHERE).read_only()] {
        let pod = pod.user(1234);
        let victim = pod.start();
        victim.exec(1234).expect(&OWN);
        victim.exec(0).expect(&HARMLESS).expect_said(&["another user (uid 1234)", "Enter as uid 1234"]);
        victim.exec(1235).expect(&HARMLESS).expect_said(&["NCCL_TOPO_FILE"]);
    }
}

/// A user who can write to a directory above the state decides which state is found, whoever owns the
/// state.
#[test]
fn a_folder_below_one_of_another_user_counts_as_that_users() {
    let pod = Pod::sharing(&[]).user(1234);
    let victim = pod.start();
    let run = victim.file("/run");
    let folder = run.join("rdma-init");
    // The state belongs to root, but another user, who owns the directory above it, may have moved it here.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plan.json"), victim.forged().to_string()).unwrap();
    chown(&run, Some(1234), None).unwrap();
    victim.exec(0).expect(&HARMLESS).expect_said(&["Enter as uid 1234"]);
    let stranger = victim.exec(1235);
    assert!(stranger.variables.iter().all(|variable| variable.starts_with("NCCL_IB_TC=")), "{stranger:?}");
}

#[test]
fn the_start_reports_what_entering_processes_will_not_get() {
    let pod = Pod::sharing(&EVERYWHERE).read_only();
    let mut victim = pod.start();
    victim.init.wait_for_error(
        "processes of any user but uid 0 that enter the container later will not get NCCL_TOPO_FILE",
    );
    victim.init.wait_for_error("Give the container a root file system that it may write to");
    // The advice must not suggest reading files that others may write.
    victim.init.wait_for_error("cannot be written to /etc/nccl.conf");
    victim.init.kill(nix::libc::SIGKILL);
    let said = victim.init.end().stderr;
    assert!(said.contains("/rdma-init exec.") && !said.contains("NCCL_CONF_FILE"), "{said}");
}

/// Root must not read what the user of PID 1 can write, and another user can make such a directory first.
#[test]
fn no_advice_names_a_file_that_is_not_root_s() {
    let pod = Pod::sharing(&["/dev/shm"]).user(1234);
    let mut victim = pod.start();
    victim.init.wait_for_error("cannot be written to /etc/nccl.conf");
    victim.init.kill(nix::libc::SIGKILL);
    let said = victim.init.end().stderr;
    assert!(said.contains("/rdma-init exec.") && !said.contains("NCCL_CONF_FILE"), "{said}");
}

#[test]
fn what_is_planted_before_ours_is_written_is_not_believed() {
    for (shared, read_only) in [(&["/dev/shm"][..], false), (&EVERYWHERE, true)] {
        let pod = Pod::sharing(shared);
        let pod = if read_only { pod.read_only() } else { pod };
        let hang = Hang::interruptible("/sys/class/infiniband");
        let mut victim = pod.preparing(&hang);
        victim.plant(&victim.forged());
        for user in [0, 1234] {
            victim.env(user).expect(&[]);
        }
        let arguments = ["exec", "--", "/bin/busybox", "env"];
        let enters = [0, 1234].map(|user| victim.enter(user, &arguments).spawn().unwrap());
        for enter in &enters {
            poll_until("it looks for the state", || {
                is_us(enter.id(), Path::new(PROGRAM), &arguments).then_some(())
            });
        }
        hang.release();
        victim.init.wait_for("ready");
        let [root, other] = enters.map(|enter| {
            let output = enter.wait_with_output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        assert!(OWN.iter().all(|wanted| root.lines().any(|line| line == *wanted)), "{root}");
        assert!(!root.contains("evil") && !other.contains("evil"), "{root}\n{other}");
        assert!(!root.contains("NCCL_IB_TC=66"), "{root}");
    }
}

/// Several containers share a PID namespace, so PID 1 belongs to another container. That PID 1 even runs
/// the same program and holds its own state, and its container forges a state of this one.
#[test]
fn another_containers_pid_1_does_not_vouch_for_a_state() {
    let pod = Pod::sharing(&EVERYWHERE).read_only();
    let other = pod.start();
    // The container that shares the processes has its own mounts.
    let mut command = entered(other.pid, &["/bin/busybox", "unshare", "-m"]);
    command.args(["/bin/busybox", "sh", "-c", "echo ready; exec sleep 1000"]);
    let mut own = in_place(command);
    own.wait_for("ready");
    let own = own.child();
    let exec = || got(entered(own, &[PROGRAM, "exec", "--", "/bin/busybox", "env"]));
    exec().expect(&[]).expect_said(&["decided anew"]);
    let mut forged = other.forged();
    forged["run"]["identity"]["mounts"] =
        json!(fs::read_link(format!("/proc/{own}/ns/mnt")).unwrap().to_str().unwrap());
    other.plant(&forged);
    exec().expect(&["NCCL_IB_TC=66"]).expect_said(&["LD_PRELOAD", "/run/rdma-init"]);
}

/// Makes a command that runs as root in the container of this process.
fn entered(pid: i32, arguments: &[&str]) -> Command {
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &pid.to_string(), "--pid", "--mount", "--root", "--wd=/"]).args(arguments);
    enter.env_clear().env("PATH", "/bin").env("RDMA_INIT_PREPARE_TIMEOUT", "30s");
    enter.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    enter
}

#[test]
fn a_state_of_another_start_is_ignored() {
    let pod = Pod::sharing(&EVERYWHERE).read_only();
    let victim = pod.start();
    let forged = victim.forged();
    for (part, value) in [
        ("init_started", json!(null)),
        ("init_started", json!(1)),
        ("boot", json!("")),
        ("namespace", json!("")),
        ("mounts", json!("")),
        ("mounts", json!("mnt:[1]")),
    ] {
        let mut state = forged.clone();
        state["run"]["identity"][part] = value.clone();
        victim.plant(&state);
        victim.env(1234).expect(&[]);
        state["run"]["identity"].as_object_mut().unwrap().remove(part);
        victim.plant(&state);
        victim.env(1234).expect(&[]);
    }
    // Now the directory contains the state of the previous start.
    drop(victim);
    let again = pod.start();
    again.exec(0).expect(&OWN);
}

#[test]
fn a_rootless_container_trusts_only_its_own_state() {
    for pod in [Pod::sharing(&["/dev/shm"]), Pod::sharing(&EVERYWHERE).read_only()] {
        let pod = pod.rootless();
        let victim = pod.start();
        for _ in 0..2 {
            victim.exec(0).expect(&OWN);
            victim.env(0).expect(&OWN);
            victim.plant(&victim.forged());
        }
    }
}

#[test]
fn what_pid_1_holds_is_sealed_and_the_command_does_not_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shell("echo ready; exec sleep 1000");
    command.env("RDMA_INIT_STATE_DIR", folder.path().join("state")).env("RDMA_INIT_SET", "NCCL_IB_TC=106");
    let mut init = as_pid_1(command);
    init.wait_for("ready");
    let held = poll_until("PID 1 lets go of the rest", || {
        let held = descriptors(init.pid);
        (held.len() == 4).then_some(held)
    });
    let (number, what) = held.last().unwrap();
    assert_eq!(what, "/memfd:rdma-init-state (deleted)");
    let path = format!("/proc/{}/fd/{number}", init.pid);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"filled\":{\"NCCL_IB_TC\":\"106\"}"), "{text}");
    let write = fs::OpenOptions::new().write(true).open(&path);
    assert!(write.and_then(|mut file| std::io::Write::write_all(&mut file, b"x")).is_err());
    assert!(fs::OpenOptions::new().write(true).truncate(true).open(&path).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    has_descriptors(init.command(), &[0, 1, 2]).unwrap();
}

#[test]
fn a_subreaper_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = rdma_init(["--supervise", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    command.env("RDMA_INIT_STATE_DIR", folder.path().join("state"));
    let mut init = in_place(command);
    init.wait_for("ready");
    has_descriptors(init.pid, &[0, 1, 2]).unwrap();
}
