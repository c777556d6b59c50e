//! Tests the account of a job's ports: at its end, in a termination log, in `status`, as an exit code and as metrics.

use std::fs;
use std::process::Command;

use nix::libc;
use serde_json::Value;
use tempfile::TempDir;

use super::watcher::{awaits_events, has_ended, watcher};
use crate::support::one_hca::{self, Host, stop};
use crate::support::running::{Running, as_pid_1, send};
use crate::support::{binary, poll_until};

const ENDED: &str = "hw_counters/req_transport_retries_exceeded";
const OFF: [&str; 2] = ["--watch", "off"];

/// Starts a job that ends with this code when there is a file, which the returned function makes. The job lasts 20 ms at
/// least: some tests say that a job has begun after a millisecond.
fn ends_with(host: &Host, place: &TempDir, options: &[&str], code: i32) -> (Running, impl Fn() + use<>) {
    let go = place.path().join("go");
    let _ = fs::remove_file(&go);
    let script = format!("echo ready; while sleep 0.02; ! [ -e {} ]; do :; done; exit {code}", go.display());
    let arguments = [options, &["--", "sh", "-c", &script]].concat();
    let mut running = as_pid_1(host.shows("exec", &arguments));
    running.wait_for("ready");
    (running, move || fs::write(&go, "").unwrap())
}

/// Runs the program in this container.
fn inside(running: &Running, arguments: &[&str]) -> String {
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &running.pid.to_string(), "--pid", "--mount", "--net", "--"]).arg(binary());
    enter.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    let ended = enter.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// Waits until the watcher has said this, and has noted that it has.
fn watcher_says(running: &mut Running, text: &str) {
    running.wait_for_error(text);
    awaits_events(watcher(running.pid));
}

/// Takes the link down and up again, and waits each time until the watcher has said so, the `nth` time.
fn flaps(running: &mut Running, host: &Host, nth: usize) {
    host.port("state", "1: DOWN");
    running.wait_for_errors("mlx5_0 is no longer active.", nth);
    host.port("state", "4: ACTIVE");
    running.wait_for_errors("mlx5_0 is active again", nth);
}

#[test]
fn a_sound_job_has_one_line_and_one_object() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let (running, end) = ends_with(&host, &place, &OFF, 0);
    host.port("counters/port_xmit_data", "786432");
    end();
    let said = running.end().expect_code(0).stderr;
    let line = "rdma-init: mlx5_0 sent 3 MiB and received 0 bytes, without an error.\n";
    assert!(said.contains(line), "{said}");
    assert!(!said.contains("moved") && said.matches("mlx5_0 sent").count() == 1, "{said}");

    let (running, end) = ends_with(&host, &place, &["--watch", "off", "--log-format", "json"], 0);
    host.port("counters/port_xmit_data", "1572864");
    end();
    let said = running.end().expect_code(0).stderr;
    let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let accounts: Vec<Value> = events.filter(|event| event["event"] == "account").collect();
    let [account] = &accounts[..] else { panic!("{said}") };
    assert_eq!((&account["level"], &account["broken"]), (&"INFO".into(), &false.into()), "{account}");
    assert_eq!(account["message"], "mlx5_0 sent 3 MiB and received 0 bytes, without an error.");
    assert_eq!(account["rails"][0]["sent_bytes"], 3 << 20);
    assert!(account["timestamp"].as_str().unwrap().ends_with('Z'), "{account}");
}

#[test]
fn a_job_that_moved_nothing_is_told_once_and_one_that_never_began_is_not_accused() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let (line, warning) =
        ("mlx5_0 moved no data, without an error.", "RDMA was planned, but no data has moved");
    // By its own word, this job has begun when it has run for a millisecond.
    let begun = [&OFF[..], &["--watch-after", "1ms"]].concat();
    for (code, why) in
        [(0, ": the job ran on sockets"), (3, ": the job has not begun to communicate, ran on")]
    {
        for (options, is_warned) in [(&OFF[..], false), (&begun, true)] {
            let (running, end) = ends_with(&host, &place, options, code);
            end();
            let said = running.end().expect_code(code).stderr;
            assert_eq!((said.contains(line), said.contains(warning)), (!is_warned, is_warned), "{said}");
            assert_eq!(said.contains(why), is_warned, "{said}");
        }
    }
    let stopped = stop(host.job(&OFF));
    assert!(stopped.contains(line) && !stopped.contains(warning), "{stopped}");
}

#[test]
fn what_the_watcher_saw_is_in_the_account_and_in_status() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let (mut running, end) = ends_with(&host, &place, &["--state-dir", "/dev/state"], 3);
    flaps(&mut running, &host, 1);
    // The driver is loaded anew.
    host.port("counters/port_xmit_data", "1000");
    poll_until("the watcher has looked", || {
        let status = inside(&running, &["status", "--state-dir", "/dev/state", "--json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let rail = &status["account"]["rails"][0];
        assert_eq!((&rail["downs"], &rail["well"]), (&1.into(), &false.into()), "{status}");
        (rail["sent_bytes"] == 4000).then_some(())
    });
    let status = inside(&running, &["status", "--state-dir", "/dev/state"]);
    assert!(
        status.contains(
            "\nmlx5_0 sent 3.9 KiB and received 0 bytes: its link went down 1 time, last seen down "
        ),
        "{status}"
    );
    assert!(status.contains(" ago\n"), "{status}");
    end();
    let said = running.end().expect_code(3).stderr;
    assert!(
        said.contains(
            "rdma-init: mlx5_0 sent 3.9 KiB and received 0 bytes: its link went down 1 time, last seen down "
        ),
        "{said}"
    );
    assert!(said.contains(" before the end.\n"), "{said}");
}

/// The watcher says it when it happens, and the account at the end. No finding of the end says it again.
#[test]
fn each_trouble_is_told_once_while_the_job_runs_and_once_at_the_end() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let finding = "Queue pairs failed in ";
    let fix = "fix: Look in the other nodes' logs for a process that failed first.";
    let in_account = ": 2 queue pairs failed without an answer from the peer (error 12 in NCCL's log).\n";
    for options in [&[][..], &OFF] {
        host.port(ENDED, "0");
        let is_watched = options.is_empty();
        let (mut running, end) = ends_with(&host, &place, options, 3);
        host.port(ENDED, "2");
        if is_watched {
            watcher_says(&mut running, finding);
        }
        end();
        let said = running.end().expect_code(3).stderr;
        let count = |text: &str| said.matches(text).count();
        assert_eq!((count(finding), count(in_account), count(fix)), (is_watched.into(), 1, 1), "{said}");
    }
    // Without lines of the account, the finding of the end is what there is.
    let warn = [&OFF[..], &["--log-level", "warn"]].concat();
    host.port(ENDED, "0");
    let (running, end) = ends_with(&host, &place, &warn, 3);
    host.port(ENDED, "2");
    end();
    let said = running.end().expect_code(3).stderr;
    assert_eq!((said.matches(finding).count(), said.contains(in_account)), (1, false), "{said}");
}

/// The watcher gives it with its line, and the account if it did not.
#[test]
fn a_link_that_is_down_has_its_fix_once() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    for options in [&[][..], &OFF] {
        host.port("state", "4: ACTIVE");
        let (mut running, end) = ends_with(&host, &place, options, 3);
        host.port("state", "1: DOWN");
        if options.is_empty() {
            watcher_says(&mut running, "mlx5_0 is no longer active.");
        }
        end();
        let said = running.end().expect_code(3).stderr;
        assert_eq!(said.matches("fix: Check the cable, the transceiver").count(), 1, "{said}");
    }
}

/// No state and no counter of the end shows them.
#[test]
fn what_the_watcher_has_warned_of_is_in_the_account() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let (mut running, end) = ends_with(&host, &place, &["--watch-after", "500ms"], 1);
    host.port("counters/port_xmit_data", "786432");
    host.port("rate", "50 Gb/sec (1X HDR)");
    running.wait_for_error("mlx5_0 runs at 50 Gb/sec (1X HDR) instead of ");
    host.port("gid_attrs/types/2", "RoCE v2");
    host.port("gids/2", one_hca::OWN);
    host.port("gids/1", one_hca::EMPTY);
    running.wait_for_error("The GID of mlx5_0 (10.9.0.1) has moved from index 1");
    running.wait_for_error("the job may have stalled.");
    end();
    let said = running.end().expect_code(1).stderr;
    let line = "rdma-init: mlx5_0 sent 3 MiB and received 0 bytes: it has run at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR) for ";
    assert!(said.contains(line) && said.contains("; its GID has not been at index 1 for "), "{said}");
    assert!(said.contains(", and is at index 2.\nrdma-init: No data has moved in the last "), "{said}");
    assert!(!said.contains("without an error"), "{said}");
}

/// The end gives up a command that it may not kill, as it does one that hangs in the kernel.
#[test]
fn a_command_that_does_not_end_has_an_account() {
    let host = Host::with_infiniband();
    let stays = ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", "echo ready; exec sleep 1000"];
    let arguments = [&["--stop-timeout", "300ms", "--"][..], &stays].concat();
    let mut running = as_pid_1(host.shows("exec setpriv --bounding-set -kill --", &arguments));
    running.wait_for("ready");
    host.port("counters/port_xmit_data", "786432");
    running.kill(libc::SIGTERM);
    let said = running.end().expect_code(137).stderr;
    assert!(said.contains("cannot be killed"), "{said}");
    assert!(
        said.contains("rdma-init: mlx5_0 sent 3 MiB and received 0 bytes, without an error.\n"),
        "{said}"
    );
}

/// As after the firmware of a device has failed.
#[test]
fn a_device_that_cannot_be_read_any_more_breaks_the_fabric() {
    let (host, place) = (Host::with_infiniband(), tempfile::tempdir().unwrap());
    let options = ["--fabric-exit-code", "42"];
    let (mut running, end) = ends_with(&host, &place, &options, 3);
    // A read of a directory fails. What is open stays open for some looks.
    let state = host.folder.path().join("sys/class/infiniband/mlx5_0/ports/1/state");
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    running.wait_for_error(" UTC: The state of mlx5_0 cannot be read (EISDIR).");
    end();
    let said = running.end().expect_code(42).stderr;
    assert!(
        said.contains("rdma-init: mlx5_0 sent 0 bytes and received 0 bytes: its state cannot be read.\n"),
        "{said}"
    );
}

/// With its ports, as in other documents.
#[test]
fn an_event_of_a_finding_says_what_it_is_about() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    for options in [&["--log-format", "json"][..], &["--log-format", "json", "--watch", "off"]] {
        host.port(ENDED, "0");
        let is_watched = options.len() == 2;
        let (mut running, end) = ends_with(&host, &place, options, 3);
        host.port(ENDED, "2");
        if is_watched {
            watcher_says(&mut running, "ended-queue-pairs");
        }
        end();
        let said = running.end().expect_code(3).stderr;
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<Value> = events.filter(|event| event["id"] == "ended-queue-pairs").collect();
        let [event] = &events[..] else { panic!("once, by the watcher or at the end: {said}") };
        assert_eq!((&event["event"], &event["level"]), (&"finding".into(), &"WARN".into()), "{event}");
        assert_eq!(event["about"], serde_json::json!({"ports": ["mlx5_0:1"]}));
        assert!(event["message"].as_str().unwrap().starts_with("Queue pairs failed in "), "{event}");
        assert!(event["fix"].is_string() && event["timestamp"].is_string(), "{event}");
        assert_eq!(event["phase"], if is_watched { "run" } else { "end" });
    }
}

#[test]
fn lines_that_the_watcher_omitted_are_counted_at_the_end() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let (mut running, end) = ends_with(&host, &place, &["--state-dir", "/dev/state"], 0);
    for nth in 1..7 {
        flaps(&mut running, &host, nth);
    }
    host.port("state", "1: DOWN");
    let omitted = "1 more line about mlx5_0 (link-down) was omitted";
    let status = || inside(&running, &["status", "--state-dir", "/dev/state"]);
    poll_until("status counts it", || status().contains(omitted).then_some(()));
    end();
    let said = running.end().expect_code(0).stderr;
    assert_eq!(said.matches("mlx5_0 is no longer active").count(), 6, "{said}");
    assert!(said.contains(&format!("rdma-init: {omitted}.\n")), "{said}");
}

#[test]
fn a_watcher_that_ended_early_is_in_the_account() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    for options in [&["--state-dir", "/dev/state"][..], &["--log-format", "json"]] {
        let is_json = options.contains(&"json");
        let (mut running, end) = ends_with(&host, &place, options, 0);
        let outside = watcher(running.pid);
        if !is_json {
            flaps(&mut running, &host, 1);
        }
        send(outside, libc::SIGKILL);
        // PID 1 is told at once, although no wait for children sees the watcher.
        running
            .wait_for_error("the watcher has ended before the command: the ports are not watched any more.");
        assert!(has_ended(&running, outside));
        if !is_json {
            poll_until("status sees it", || {
                let status = inside(&running, &["status", "--state-dir", "/dev/state"]);
                status.contains("\nThe watcher has not looked for ").then_some(())
            });
            // Nor does it show what the watcher has seen last.
            host.port("counters/port_xmit_data", "786432");
            let status = inside(&running, &["status", "--state-dir", "/dev/state"]);
            assert!(status.contains("\nmlx5_0 sent 3 MiB and "), "{status}");
        }
        end();
        let said = running.end().expect_code(0).stderr;
        if is_json {
            assert!(said.contains("\"watched\":false,\"watched_seconds\":"), "{said}");
        } else {
            let line =
                " before the end; what happened on the ports since then shows only in their counters.\n";
            assert!(
                said.contains("rdma-init: The watcher's last look was ") && said.contains(line),
                "{said}"
            );
        }
    }
}

#[test]
fn a_command_that_fails_after_the_fabric_broke_has_a_code_of_its_own() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let options = [&OFF[..], &["--fabric-exit-code", "42"]].concat();
    // Nothing broke; the fabric broke, and the command succeeded, or failed.
    for (code, count, wanted) in [(3, "0", 3), (0, "1", 0), (3, "2", 42)] {
        let (running, end) = ends_with(&host, &place, &options, code);
        host.port(ENDED, count);
        end();
        let said = running.end().expect_code(wanted).stderr;
        let told = "rdma-init: sh ended with exit code 3 (turned into 42, because the fabric broke while it ran) after ";
        assert_eq!(said.contains(told), wanted == 42, "{said}");
    }
    let (running, end) = ends_with(&host, &place, &[&options[..], &["--log-format", "json"]].concat(), 3);
    host.port(ENDED, "3");
    end();
    let said = running.end().expect_code(42).stderr;
    assert!(said.contains("\"event\":\"end\"") && said.contains("\"fabric_broke\":true"), "{said}");
    // Without a line, it is the same.
    let (running, end) = ends_with(&host, &place, &[&options[..], &["--log-level", "error"]].concat(), 3);
    host.port("state", "1: DOWN");
    end();
    assert_eq!(running.end().expect_code(42).stderr, "");
    host.port("state", "4: ACTIVE");

    // A command that was asked to end keeps its code.
    let running = host.job(&options);
    host.port(ENDED, "4");
    running.kill(libc::SIGTERM);
    let said = running.end().expect_code(143).stderr;
    assert!(said.contains("1 queue pair failed without an answer from the peer"), "{said}");
}

#[test]
fn kubernetes_gets_a_message_if_the_fabric_was_at_fault() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let log = place.path().join("termination-log");
    // In /dev as the kubelet mounts it: a file of the container's own.
    let first = format!(": >/dev/termination-log; mount --bind {} /dev/termination-log; exec", log.display());
    let go = place.path().join("go");
    let mut count = 0;
    for (before, code, is_broken, is_written) in
        [("", 3, true, true), ("", 3, false, false), ("", 0, true, false), ("Traceback\n", 3, true, false)]
    {
        fs::write(&log, before).unwrap();
        let _ = fs::remove_file(&go);
        let script = format!("echo ready; until [ -e {} ]; do sleep 0.02; done; exit {code}", go.display());
        let mut running = as_pid_1(host.shows(&first, &["--watch", "off", "--", "sh", "-c", &script]));
        running.wait_for("ready");
        count += u64::from(is_broken);
        host.port(ENDED, &count.to_string());
        fs::write(&go, "").unwrap();
        running.end().expect_code(code);
        let text = fs::read_to_string(&log).unwrap();
        if !is_written {
            assert_eq!(text, before);
            continue;
        }
        assert!(text.starts_with("rdma-init: sh ended with exit code 3 after "), "{text}");
        let broken = ". mlx5_0 sent 0 bytes and received 0 bytes: 1 queue pair failed without an answer from the peer (error 12 in NCCL's log).\n";
        assert!(text.ends_with(broken), "{text}");
    }
}

#[test]
fn the_watcher_keeps_a_file_of_metrics() {
    let (host, place) = (Host::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("rdma.prom");
    let path = file.to_str().unwrap();
    let running = host.job(&["--watch-metrics", path]);
    host.port("counters/port_xmit_data", "1000");
    let line = "node_infiniband_port_data_transmitted_bytes_total{device=\"mlx5_0\",port=\"1\"} 4000\n";
    let text =
        poll_until("it is renewed", || fs::read_to_string(&file).ok().filter(|text| text.contains(line)));
    // tests/examples gives what `stat` prints to Prometheus.
    let (ports, watcher) = text.split_at(text.find("# HELP rdma_init_watcher_up").unwrap());
    assert_eq!(ports, inside(&running, &["stat", "--format", "prometheus"]));
    let has = |text: &str, start: &str, end: &str| {
        text.lines().any(|line| line.starts_with(start) && line.ends_with(end))
    };
    assert!(has(watcher, "rdma_init_watcher_up{host=", "} 1"), "{watcher}");
    assert!(has(watcher, "rdma_init_last_traffic_timestamp_seconds{host=", ""), "{watcher}");
    running.kill(libc::SIGTERM);
    running.end().expect_code(143);
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(ports), "it stays: {after}");
    assert!(has(&after, "rdma_init_watcher_up{host=", "} 0"), "{after}");
}

#[test]
fn a_file_of_metrics_that_cannot_be_written_is_told_once() {
    let host = Host::new();
    let mut running = host.job(&["--watch-metrics", "/no/such/folder/rdma.prom"]);
    running.wait_for_error("cannot write the metrics to /no/such/folder/rdma.prom (watch-metrics): ");
    flaps(&mut running, &host, 1);
    running.kill(libc::SIGTERM);
    let said = running.end().expect_code(143).stderr;
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");

    let running = host.job(&["--watch", "off", "--watch-metrics", "/dev/shm/rdma.prom"]);
    running.kill(libc::SIGTERM);
    let said = running.end().expect_code(143).stderr;
    assert!(said.contains("watch-metrics has no effect without the watcher"), "{said}");
}

/// As each worker of `torchrun --no-python rdma-init`: the container's start has reported the decision.
#[test]
fn a_worker_with_the_decision_of_the_start_says_one_line() {
    let host = Host::new();
    let state = tempfile::tempdir().unwrap();
    let worker = format!("{} --log-level info -- echo worker", binary().display());
    let options = ["--profile", "generic-roce", "--log-level", "error", "--state-dir"];
    let script = format!("{worker}; NCCL_IB_GID_INDEX=7 {worker}");
    let job = ["--", "sh", "-c", &script];
    let arguments = [&options[..], &[state.path().to_str().unwrap()], &job].concat();
    let mut command = host.shows("exec", &arguments);
    command.env("RDMA_INIT_PROFILE", "generic-roce").env("RDMA_INIT_STATE_DIR", state.path());
    let ended = as_pid_1(command).end().expect_code(0);
    assert_eq!(ended.stdout, "worker\nworker\n");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines[0].ends_with(", as this container's start decided"), "{ended:#?}");
    assert!(lines[1].starts_with("rdma-init ") && lines.len() > 3, "the other one decides anew: {ended:#?}");
    assert!(
        ended.stderr.contains("GID index 7 is empty") || ended.stderr.contains("NCCL_IB_GID_INDEX=7"),
        "{ended:#?}"
    );
}
