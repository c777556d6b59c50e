//! Tests the watcher beside a job, on a made-up /sys whose files change while the job runs.

mod events;
pub mod memory;
mod on_finding;
mod series;

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use nix::libc;
use serde_json::Value;

use crate::support::clock::{Clock, SECOND};
use crate::support::hang::Hang;
use crate::support::one_hca::{EMPTY, Host, OWN, WAITS, stop};
use crate::support::ras::server;
use crate::support::running::{Running, as_pid_1, children, send, shell};
use crate::support::{binary, poll_until};

/// The name of the watcher's process.
const NAME: &str = "rdma-init-watch\n";

/// Returns the watcher of this supervisor, and waits until it has its name.
pub fn watcher(supervisor: i32) -> i32 {
    poll_until("there is a watcher", || {
        let is_watcher =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == NAME);
        children(supervisor).into_iter().find(is_watcher)
    })
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
    running.wait_for_error("2 without an answer from the peer (error 12 in NCCL's log)");
    host.port("gid_attrs/types/2", "RoCE v2");
    host.port("gids/2", OWN);
    host.port("gids/1", EMPTY);
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) has moved from index 1, which the job uses, to 2: ");
    host.port("gids/2", EMPTY);
    running.wait_for_error(", is gone from index 1: it is at no index of the table.");
    host.port("gids/1", OWN);
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) is at index 1 again");
    let said = stop(running);
    let (said, account) = said.split_once("rdma-init: mlx5_0 sent ").unwrap();
    for once in ["no longer active", "is active again", "(1X HDR)", "has moved from", "is gone"] {
        assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
    }
    for over in ["it ran at 50 Gb/sec (1X HDR) instead of ", "its GID was not at index 1 for "] {
        assert!(account.contains(over), "{account}");
    }
}

#[test]
fn a_gid_whose_index_becomes_roce_v1_has_moved() {
    let host = Host::new();
    host.port("gids/2", OWN);
    host.port("gid_attrs/types/2", "IB/RoCE v1");
    let mut running = host.job(&[]);
    // Both indexes have the same GID all the time.
    host.port("gid_attrs/types/2", "RoCE v2");
    host.port("gid_attrs/types/1", "IB/RoCE v1");
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) has moved from index 1, which the job uses, to 2: ");
    host.port("gid_attrs/types/2", "IB/RoCE v1");
    running.wait_for_error(
        ", which the job uses, is no longer RoCE v2 at index 1, and is so at no other index.",
    );
    host.port("gid_attrs/types/1", "RoCE v2");
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) is at index 1 again");
    let said = stop(running);
    assert_eq!(said.matches("The GID of").count(), 3, "{said}");
}

/// Runs `status` in the container of this PID 1.
fn status(pid: i32, json: bool) -> String {
    status_as(&[], pid, json)
}

/// Does the same with a program before it, which changes the user.
fn status_as(user: &[&str], pid: i32, json: bool) -> String {
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &pid.to_string(), "--pid", "--mount", "--net"]).args(user);
    enter.arg(binary()).arg("status");
    enter.args(json.then_some("--json")).env_clear().env("PATH", "/usr/bin:/bin");
    enter.env("RDMA_INIT_CONFIG", "/dev/null").env("RDMA_INIT_STATE_DIR", "/dev/shm/state");
    let entered = enter.output().unwrap();
    assert!(entered.status.success(), "{entered:?}");
    String::from_utf8(entered.stdout).unwrap()
}

#[test]
fn status_says_whether_it_runs_and_why_not() {
    let host = Host::new();
    let shown = |options: &[&str]| {
        let mut command = host.shows("exec", &[options, &WAITS].concat());
        command.env("RDMA_INIT_STATE_DIR", "/dev/shm/state");
        let mut running = as_pid_1(command);
        running.wait_for("ready");
        running
    };
    let running = shown(&[]);
    let outside = watcher(running.pid);
    let document: Value = serde_json::from_str(&status(running.pid, true)).unwrap();
    assert!(document["watcher"].is_number() && document["no_watcher"].is_null(), "{document}");
    assert!(!status(running.pid, false).contains("no watcher"));
    // Another user may not look into the init.
    let other = ["setpriv", "--reuid", "65533", "--clear-groups"];
    let said = status_as(&other, running.pid, false);
    let no_account = "\nno account: this user cannot look into the container's init, ";
    assert!(said.contains(no_account) && !said.contains("watcher"), "{said}");
    send(outside, libc::SIGKILL);
    poll_until("it is gone", || has_ended(&running, outside).then_some(()));
    let ended = "it has ended, and rdma-init does not start it again. The job runs on without it";
    assert!(status(running.pid, false).contains(&format!("\nno watcher: {ended}\n")));
    let said = status_as(&other, running.pid, false);
    assert!(said.contains("\nrdma-init cannot see the watcher as this user\n"), "{said}");
    assert!(said.contains(no_account) && !said.contains("no watcher"), "{said}");
    stop(running);
    let why = "watch is \"off\"";
    let running = shown(&["--watch", "off"]);
    assert!(status(running.pid, false).contains(&format!("\nno watcher: {why}\n")));
    let document: Value = serde_json::from_str(&status(running.pid, true)).unwrap();
    assert_eq!((&document["no_watcher"], &document["watcher"]), (&why.into(), &Value::Null));
    assert_eq!(children(running.pid).len(), 1);
    stop(running);
}

/// Whether this child of PID 1 has ended.
pub fn has_ended(running: &Running, child: i32) -> bool {
    !children(running.pid).contains(&child) || is_zombie(child)
}

fn is_zombie(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|state| state.contains(") Z "))
}

/// A machine without RDMA has no port to watch.
#[test]
fn a_start_without_rdma_has_none() {
    let mut running = as_pid_1(shell("echo ready; exec sleep 1000"));
    running.wait_for("ready");
    running.rests();
    assert_eq!(children(running.pid).len(), 1);
    stop(running);
}

/// A driver whose firmware does not answer.
#[test]
fn a_read_that_hangs_says_nothing_and_does_not_delay_the_end() {
    let host = Host::with_infiniband();
    let hang = Hang::killable("/sys/class/infiniband/mlx5_0/ports/1/state").once_armed();
    let command = host.shows("exec", &[&["--watch-after", "300ms"][..], &WAITS].concat());
    let mut running = Clock::advancing().hanging(command, true, &hang);
    running.wait_for("ready");
    let watcher = watcher(running.pid);
    hang.arm();
    assert_eq!(hang.wait(), watcher);
    // It would be said at the next look.
    host.port("state", "1: DOWN");
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(143);
    assert!(ended.waited < 10 * SECOND, "{ended:#?}");
    assert!(!ended.stderr.contains("no longer active"), "{ended:#?}");
}

/// Counters that come and go, hold something else, or begin anew are no trouble of the job.
#[test]
fn counters_that_cannot_be_believed_give_no_line() {
    let host = Host::with_infiniband();
    host.port("counters/link_downed", "7");
    host.port("hw_counters/local_ack_timeout_err", "4294967290");
    let mut running = host.job(&[]);
    let port = host.folder.path().join("sys/class/infiniband/mlx5_0/ports/1");
    // A file that is open stays open for some looks.
    let (two, all_anew) = (2, 32);
    let is_seen = |looks: u64| {
        // A look after this moment has seen what is there now.
        let watcher = watcher(running.pid);
        let switches = || fs::read_to_string(format!("/proc/{watcher}/status")).unwrap_or_default();
        let count = || {
            let status = switches();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = count();
        poll_until("some looks", || (count() >= before + looks).then_some(()));
    };
    for (file, text) in [
        ("counters/link_downed", "0"),
        ("counters/link_downed", "N/A (no PMA)"),
        ("counters/link_downed", ""),
        ("counters/link_downed", "-1"),
        ("counters/link_downed", "99999999999999999999999999"),
        ("counters/link_downed", "0"),
        ("hw_counters/local_ack_timeout_err", "3"),
        ("hw_counters/req_transport_retries_exceeded", "nonsense"),
        ("hw_counters/req_transport_retries_exceeded", "0"),
        ("rate", ""),
        ("rate", "200 Gb/sec (4X HDR)"),
    ] {
        host.port(file, text);
        is_seen(two);
    }
    for folder in ["counters", "hw_counters"] {
        fs::rename(port.join(folder), port.join("away")).unwrap();
        is_seen(all_anew);
        fs::rename(port.join("away"), port.join(folder)).unwrap();
        is_seen(all_anew);
    }
    // Full from now on, which is said as that.
    host.port("counters/link_downed", "255");
    running.wait_for_error("Counters of mlx5_0 have reached their maximum and no longer count: link_downed.");
    let said = stop(running);
    let (before, _) = said.split_once(" UTC: The link went down within").unwrap();
    let before = before.rsplit_once("rdma-init: warning: ").unwrap().0;
    assert!(!before.contains("rdma-init: warning: "), "{said}");
}

#[test]
fn the_watcher_reports_a_stall_but_not_that_ras_does_not_answer() {
    let host = Host::new();
    let mut running = host.job(&["--watch-after", "300ms"]);
    running.wait_for_error("no data has moved over mlx5_0 in the first ");
    host.port("counters/port_xmit_data", "1000");
    running.wait_for_error("Data moves over mlx5_0, after ");
    running.wait_for_error("after earlier traffic: the job may have stalled.");
    let said = stop(running);
    assert!(!said.contains("NCCL's RAS"), "{said}");
}

/// Where mlx5 shows only what peers have asked for, as in most Pods.
#[test]
fn requests_that_stand_still_are_a_stall_and_ras_is_asked() {
    let (address, served) = server(&["2.28.9-dead"]);
    let host = Host::with_infiniband();
    let port = host.folder.path().join("sys/class/infiniband/mlx5_0/ports/1");
    fs::remove_dir_all(port.join("counters")).unwrap();
    host.port("hw_counters/rx_write_requests", "1000");
    let options = ["--watch-after", "500ms", "--set", &format!("NCCL_RAS_ADDR={address}")];
    let mut running = host.job(&options);
    host.port("hw_counters/rx_write_requests", "5000");
    running.wait_for_error("after earlier traffic: the job may have stalled.");
    running.wait_for_error(" UTC: NCCL's RAS (2.28.9): rank 1 of 3 on ");
    served.join().unwrap();
    let said = stop(running);
    assert!(!said.contains("in the first"), "{said}");
}

/// The launcher says that there is one node, or the user asks for TCP.
#[test]
fn a_job_that_needs_no_rdma_is_not_warned_that_nothing_moves() {
    for environment in [&[("NNODES", "1"), ("NODE_RANK", "0")][..], &[("NCCL_NET", "Socket")]] {
        let host = Host::with_infiniband();
        let mut command = host.shows("exec", &[&["--watch-after", "300ms"][..], &WAITS].concat());
        command.envs(environment.iter().copied());
        let mut running = as_pid_1(command);
        running.wait_for("ready");
        let watcher = watcher(running.pid);
        looks(watcher, 10);
        let said = stop(running);
        assert!(!said.contains("no data has moved") && said.contains("mlx5_0 moved no data, "), "{said}");
    }
}

/// Waits until the watcher waits for events, between two looks.
pub fn awaits_events(watcher: i32) {
    poll_until("it waits for events", || {
        let call = fs::read_to_string(format!("/proc/{watcher}/syscall")).unwrap();
        let number = call.split(' ').next()?.parse::<i64>().ok()?;
        [libc::SYS_ppoll, libc::SYS_rt_sigtimedwait, POLL].contains(&number).then_some(())
    });
}

/// arm64 has no poll(2).
#[cfg(target_arch = "x86_64")]
const POLL: i64 = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const POLL: i64 = libc::SYS_ppoll;

/// Waits until the watcher has looked so many times.
pub fn looks(watcher: i32, count: u64) {
    let slept = || {
        let status = fs::read_to_string(format!("/proc/{watcher}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = slept();
    poll_until("some looks", || (slept() >= before + count).then_some(()));
}

#[test]
fn it_asks_ras_when_nothing_moves() {
    let (address, served) = server(&["2.28.9-dead"]);
    let host = Host::with_infiniband();
    let options = ["--watch-after", "300ms", "--set", &format!("NCCL_RAS_ADDR={address}")];
    let mut running = host.job(&options);
    running.wait_for_error("no data has moved over mlx5_0 in the first ");
    running.wait_for_error(" UTC: NCCL's RAS (2.28.9): rank 1 of 3 on ");
    served.join().unwrap();
    let said = stop(running);
    assert_eq!(said.matches("NCCL's RAS (").count(), 1, "it is asked again after a minute: {said}");
}

/// The kernel connects the watcher to a process that is stopped.
#[test]
fn a_ras_that_does_not_answer_delays_no_look() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let host = Host::with_infiniband();
    let options = ["--watch-after", "300ms", "--set", &format!("NCCL_RAS_ADDR={address}")];
    let mut running = host.job(&options);
    running.wait_for_error("no data has moved over mlx5_0 in the first ");
    let asked = listener.accept().unwrap();
    host.port("state", "1: DOWN");
    running.wait_for_error("mlx5_0 is no longer active.");
    host.port("state", "4: ACTIVE");
    running.wait_for_error("mlx5_0 is active again");
    let said = stop(running);
    assert!(!said.contains("NCCL's RAS"), "it still waited for an answer: {said}");
    drop(asked);
}

/// Below another PID 1, an entering process looks for starts by the name of their program.
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

/// The watcher has no exit signal, so the supervisor reaps it when another child ends, and at the latest at its own end,
/// if it dies within a tenth of a second then: a busy machine may need longer. PID 1 reaps nothing here.
#[test]
fn a_supervisor_leaves_no_zombie_of_it() {
    assert!(!leaves_a_zombie(true), "of one that died before");
    assert!((0..3).any(|_| !leaves_a_zombie(false)), "of one that dies with the supervisor");
}

/// `dies_before`: the watcher ends while the command runs.
fn leaves_a_zombie(dies_before: bool) -> bool {
    let host = Host::new();
    let arguments = ["--supervise", "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = as_pid_1(host.shows("\"$@\" & exec sleep 1000;", &arguments));
    running.wait_for("ready");
    let supervisor = running.child();
    let watcher = watcher(supervisor);
    let is_there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap();
    let others = || children(supervisor).into_iter().filter(|child| *child != watcher).collect::<Vec<_>>();
    let command = poll_until("the command", || others().first().copied());
    if dies_before {
        send(watcher, libc::SIGKILL);
        poll_until("it is reaped while the command runs", || (!is_there(watcher)).then_some(()));
    }
    send(command, libc::SIGTERM);
    poll_until("the supervisor has ended", || is_zombie(supervisor).then_some(()));
    let is_left = is_there(watcher);
    running.kill(libc::SIGKILL);
    running.end();
    is_left
}
