//! Tests the watcher beside a job, on a made-up /sys whose files change while the job runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use nix::libc;
use tempfile::TempDir;

use crate::support::ras::server;
use crate::support::running::{Running, after, as_pid_1, children, from_scratch, rdma_init, send};
use crate::support::{binary, poll_until};

/// The name of the watcher's process.
const NAME: &str = "rdma-init-watch\n";

/// A machine with one HCA, mlx5_0: for RoCE, whose GID of its address is at index 1, or for InfiniBand.
pub struct Host {
    folder: TempDir,
    is_infiniband: bool,
}

const OWN: &str = "0000:0000:0000:0000:0000:ffff:0a09:0001";
const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

impl Host {
    pub fn new() -> Host {
        let host = Host { folder: tempfile::tempdir().unwrap(), is_infiniband: false };
        for folder in ["class/net", "fs/cgroup", "firmware"] {
            fs::create_dir_all(host.folder.path().join("sys").join(folder)).unwrap();
        }
        host.write("class/infiniband/mlx5_0/node_type", "1: CA");
        host.write("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "200 Gb/sec (4X HDR)"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("counters/port_xmit_data", "0"),
            ("counters/port_rcv_data", "0"),
            ("hw_counters/req_transport_retries_exceeded", "0"),
            ("gids/0", EMPTY),
            ("gids/1", OWN),
            ("gids/2", EMPTY),
            ("gid_attrs/types/1", "RoCE v2"),
            ("gid_attrs/ndevs/1", "lo"),
        ] {
            host.port(file, text);
        }
        host
    }

    fn with_infiniband() -> Host {
        let host = Host { is_infiniband: true, ..Host::new() };
        host.port("link_layer", "InfiniBand");
        host.port("lid", "0x1");
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // At once, as the kernel's files never are empty.
        let new = path.with_extension("new");
        fs::write(&new, format!("{text}\n")).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Changes a file of the port.
    pub fn port(&self, file: &str, text: &str) {
        self.write(&format!("class/infiniband/mlx5_0/ports/1/{file}"), text);
    }

    /// Makes a shell that shows this host to a start of the program with these arguments, by `how`.
    pub fn shows(&self, how: &str, arguments: &[&str]) -> Command {
        let mut ours = rdma_init(arguments);
        ours.env("RDMA_INIT_WATCH", "warn").env("RDMA_INIT_WATCH_INTERVAL", "100ms");
        let first = format!(
            "mount --rbind {}/sys /sys; mount -t tmpfs tmpfs /dev; mkdir /dev/infiniband /dev/shm; mknod -m 666 /dev/null c 1 3; \
             : >/dev/infiniband/uverbs0;",
            self.folder.path().display()
        );
        if self.is_infiniband {
            return after(&format!("{first} {how}"), ours);
        }
        // The loopback interface of a network namespace of its own has the address of the GID.
        let inner = after(&format!("{first} ip addr add 10.9.0.1/24 dev lo; ip link set lo up; {how}"), ours);
        let mut outer = Command::new("unshare");
        outer.arg("--net").arg(inner.get_program()).args(inner.get_args());
        outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        from_scratch(&mut outer);
        outer
    }

    /// Starts a job that waits to be stopped, with the program as PID 1.
    pub fn job(&self, options: &[&str]) -> Running {
        let command = ["--", "sh", "-c", "echo ready; exec sleep 1000"];
        let mut running = as_pid_1(self.shows("exec", &[options, &command].concat()));
        running.wait_for("ready");
        running
    }
}

/// Returns the watcher of this supervisor, and waits until it has its name.
fn watcher(supervisor: i32) -> i32 {
    poll_until("there is a watcher", || {
        let is_watcher =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == NAME);
        children(supervisor).into_iter().find(is_watcher)
    })
}

/// Makes a program of these lines for the shell, for the key `on-finding`.
fn script(place: &TempDir, lines: &str) -> String {
    let script = place.path().join("tell");
    fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

fn stop(running: Running) -> String {
    running.kill(libc::SIGTERM);
    running.end().expect_code(143).stderr
}

#[test]
fn it_tells_what_changes_on_a_port() {
    let host = Host::new();
    let mut running = host.job(&[]);
    host.port("state", "1: DOWN");
    running.wait_for_error("mlx5_0 is no longer active.");
    host.port("state", "4: ACTIVE");
    running.wait_for_error("mlx5_0 is active again");
    host.port("rate", "50 Gb/sec (1X HDR)");
    running.wait_for_error(
        "mlx5_0 runs at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR), the rate at the start.",
    );
    host.port("rate", "200 Gb/sec (4X HDR)");
    running.wait_for_error("mlx5_0 runs at 200 Gb/sec (4X HDR) again");
    host.port("hw_counters/req_transport_retries_exceeded", "2");
    running.wait_for_error("2 with no answer from the peer (error 12 in NCCL's log)");
    host.port("gid_attrs/types/2", "RoCE v2");
    host.port("gids/2", OWN);
    host.port("gids/1", EMPTY);
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) has moved from index 1, which the job uses, to 2: ");
    host.port("gids/2", EMPTY);
    running.wait_for_error(", is gone from index 1: it is at no index of the table.");
    host.port("gids/1", OWN);
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) is at index 1 again");
    let said = stop(running);
    for once in ["no longer active", "is active again", "(1X HDR)", "has moved from", "is gone"] {
        assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
    }
}

#[test]
fn it_tells_that_nothing_moves_and_that_ras_does_not_answer_is_no_news() {
    let host = Host::new();
    let mut running = host.job(&["--watch-after", "300ms"]);
    running.wait_for_error("no data has moved over mlx5_0 in the first ");
    host.port("counters/port_xmit_data", "1000");
    running.wait_for_error("Data moves over mlx5_0, after ");
    running.wait_for_error("after earlier traffic: the job may have stalled.");
    let said = stop(running);
    assert!(!said.contains("RAS"), "{said}");
}

#[test]
fn it_asks_ras_when_nothing_moves() {
    let (address, served) = server(&["2.28.9-dead"]);
    let host = Host::with_infiniband();
    let options = ["--watch-after", "300ms", "--set", &format!("NCCL_RAS_ADDR={address}")];
    let mut running = host.job(&options);
    running.wait_for_error("no data has moved over mlx5_0 in the first ");
    running.wait_for_error("warning: NCCL's RAS (2.28.9): rank 1 of 3 on ");
    served.join().unwrap();
    let said = stop(running);
    assert_eq!(said.matches("NCCL's RAS (").count(), 1, "it is asked again after a minute: {said}");
}

#[test]
fn a_command_gets_each_warning() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    // The second word on standard output is not the job's.
    let script = script(&place, "echo \"$1 $(cat)\"");
    let mut running = host.job(&["--on-finding", &format!("{script} told:")]);
    host.port("state", "1: DOWN");
    let json = r#"told: {"id":"link-down","severity":"warning","message":"mlx5_0 is no longer active.","about":{"ports":["mlx5_0:1"]}}"#;
    running.wait_for_error(json);
    host.port("state", "4: ACTIVE");
    running.wait_for_error("mlx5_0 is active again");
    // Nothing of it is left.
    let watcher = watcher(running.pid);
    poll_until("the command is reaped", || children(watcher).is_empty().then_some(()));
    let said = stop(running);
    assert_eq!(said.matches("told:").count(), 1, "a note starts nothing: {said}");
}

#[test]
fn the_failure_of_that_command_is_told_once() {
    let host = Host::new();
    let mut running = host.job(&["--on-finding", "/no/such/command"]);
    for _ in 0..2 {
        host.port("state", "1: DOWN");
        running.wait_for_error("mlx5_0 is no longer active.");
        host.port("state", "4: ACTIVE");
        running.wait_for_error("mlx5_0 is active again");
    }
    running.wait_for_error("the command of the key on-finding exited with code 127.");
    let said = stop(running);
    assert_eq!(said.matches("on-finding").count(), 1, "{said}");
}

/// Below another PID 1, a process that enters looks for starts by the name of their program.
#[test]
fn a_process_that_enters_does_not_take_it_for_a_start() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    let arguments = ["--supervise", "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = as_pid_1(host.shows("run() { \"$@\"; true; }; run", &arguments));
    running.wait_for("ready");
    watcher(running.child());
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &running.pid.to_string(), "--pid", "--mount"]).arg(binary());
    enter.args(["exec", "--wait", "1s", "--", "true"]).env_clear().env("PATH", "/usr/bin:/bin");
    enter.env("RDMA_INIT_CONFIG", "/dev/null").env("RDMA_INIT_STATE_DIR", place.path().join("state"));
    let entered = enter.output().unwrap();
    let said = String::from_utf8_lossy(&entered.stderr);
    assert!(entered.status.success() && said.contains("saved no state"), "{said}");
    assert!(!said.contains("under way") && !said.contains("is waiting"), "{said}");
    running.kill(libc::SIGKILL);
    running.end();
}

/// The watcher has no exit signal, so it is reaped when another child ends, and at the latest at the end. PID 1
/// reaps nothing here.
#[test]
fn a_supervisor_leaves_no_zombie_of_it() {
    let host = Host::new();
    let script = "(sleep 1000 &); echo ready; exec sleep 1000";
    for dies_before in [true, false] {
        let arguments = ["--supervise", "--", "sh", "-c", script];
        let mut running = as_pid_1(host.shows("\"$@\" & exec sleep 1000;", &arguments));
        running.wait_for("ready");
        let supervisor = running.child();
        let watcher = watcher(supervisor);
        let is_there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap();
        let is_zombie = |pid: i32| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat"));
            state.is_ok_and(|state| state.contains(") Z ")).then_some(())
        };
        let of_name = |name: &str| {
            let named = |pid: &i32| {
                fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(name))
            };
            children(supervisor).into_iter().filter(named).collect::<Vec<i32>>()
        };
        let sleepers =
            poll_until("the command and an orphan", || Some(of_name("sleep\0")).filter(|all| all.len() == 2));
        let (command, orphan) = (sleepers[0], sleepers[1]);
        if dies_before {
            send(watcher, libc::SIGKILL);
            poll_until("it has ended", || is_zombie(watcher));
            send(orphan, libc::SIGKILL);
            poll_until("it is reaped while the command runs", || (!is_there(watcher)).then_some(()));
        }
        send(command, libc::SIGTERM);
        poll_until("the supervisor has ended", || is_zombie(supervisor));
        assert!(!is_there(watcher), "{dies_before}");
        running.kill(libc::SIGKILL);
        running.end();
    }
}

/// Root gets its capabilities again with each program that it executes, and the kernel then forgets that the program
/// was to end with the watcher.
#[test]
fn the_command_of_a_finding_ends_with_the_job() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    let script = script(&place, "sleep 1000\n:");
    let arguments = ["--supervise", "--on-finding", &script, "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = as_pid_1(host.shows("\"$@\" & exec sleep 1000;", &arguments));
    running.wait_for("ready");
    let supervisor = running.child();
    let watcher = watcher(supervisor);
    host.port("state", "1: DOWN");
    let hook = poll_until("the command runs", || children(watcher).first().copied());
    let sleeper = poll_until("it has a child", || children(hook).first().copied());
    let command = children(supervisor).into_iter().find(|pid| *pid != watcher).unwrap();
    send(command, libc::SIGKILL);
    let has_ended = |pid: i32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    };
    poll_until("the supervisor has ended", || has_ended(supervisor));
    for pid in [hook, sleeper] {
        poll_until("nothing of the command is left", || has_ended(pid));
    }
    running.kill(libc::SIGKILL);
    running.end();
}
