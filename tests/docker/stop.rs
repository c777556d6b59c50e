//! Tests `docker stop` with the deadlines, and what `docker logs` shows about the end.

use crate::support::docker::{Container, Ended, Engine, engine};

/// A command, and a worker in its own session. Neither ends on SIGTERM.
const STUBBORN: &str = "trap 'echo command asked' TERM
    setsid sh -c 'trap \"echo worker asked\" TERM; echo worker; while :; do sleep 1000 & wait $!; done' &
    while :; do wait; done";

/// A command that ends on SIGTERM, and a worker that saves something before it ends.
const SAVER: &str = "setsid sh -c 'trap \"echo worker asked; sleep 2; echo saved; exit\" TERM
        echo worker; while :; do sleep 1000 & wait $!; done' &
    exec sleep 1000";

/// Starts the script with these settings, and waits for the worker.
fn start<'a>(engine: &'a Engine, settings: &[&str], script: &str) -> Container<'a> {
    let settings = settings.iter().flat_map(|setting| ["--env", setting]);
    let mut container = engine.start(settings, &["sh", "-c", script]);
    container.wait_for("worker");
    container
}

/// Runs `docker stop`, which gives the container a minute before the engine kills it. The code and the last
/// line of the container then show that the engine did not have to.
fn stop(container: &Container) {
    container.docker(["stop", "-t", "60"], &[]).expect_code(0);
}

/// Returns what `docker logs` shows for the container.
fn logs(container: &Container) -> Ended {
    container.docker(["logs"], &[]).expect_code(0)
}

/// Returns a container that `docker stop` ended and that was not removed.
fn stopped<'a>(engine: &'a Engine, settings: &[&str]) -> Container<'a> {
    let settings = settings.iter().flat_map(|setting| ["--env", setting]);
    let mut container = engine.create(settings, &["sh", "-c", "echo ready; exec sleep 1000"]);
    container.start();
    container.wait_for("ready");
    stop(&container);
    container.wait_again().expect_code(143);
    container
}

#[test]
fn after_the_stop_timeout_the_engine_need_not_kill() {
    let Some(engine) = engine() else { return };
    let container = start(engine, &["RDMA_INIT_STOP_TIMEOUT=10s"], STUBBORN);
    stop(&container);
    container
        .wait()
        .expect_code(137)
        // The command would have to stop the worker, because PID 1 forwards the stop only to the command.
        .expect_stdout("worker\ncommand asked\n")
        .expect_line(["sh was killed by SIGKILL", "after the stop-timeout of 10s were killed"]);
}

/// If the engine itself kills the container, no process is left to report it.
#[test]
fn without_a_stop_timeout_the_engine_kills() {
    let Some(engine) = engine() else { return };
    let container = start(engine, &[], STUBBORN);
    container.docker(["stop", "-t", "10"], &[]).expect_code(0);
    container
        .wait()
        .expect_code(137)
        .expect_stdout("worker\ncommand asked\n")
        .expect_unsaid("killed by SIGKILL");
}

#[test]
fn with_a_drain_timeout_docker_stop_lets_the_workers_finish() {
    let Some(engine) = engine() else { return };
    let container = start(engine, &["RDMA_INIT_DRAIN_TIMEOUT=30s"], SAVER);
    stop(&container);
    container
        .wait()
        .expect_code(143)
        .expect_stdout("worker\nworker asked\nsaved\n")
        .expect_unsaid("drain-timeout");
}

#[test]
fn without_a_drain_timeout_the_workers_end_with_the_command() {
    let Some(engine) = engine() else { return };
    let container = start(engine, &[], SAVER);
    stop(&container);
    container.wait().expect_code(143).expect_stdout("worker\n");
}

#[test]
fn workers_that_do_not_finish_are_killed_after_the_drain_timeout() {
    let Some(engine) = engine() else { return };
    let script = STUBBORN.replace("echo command asked", "exit 4");
    let container = start(engine, &["RDMA_INIT_DRAIN_TIMEOUT=10s"], &script);
    stop(&container);
    container
        .wait()
        .expect_code(4)
        .expect_stdout("worker\nworker asked\n")
        .expect_line(["sh ended with exit code 4", "after the drain-timeout of 10s were killed"]);
}

#[test]
fn docker_logs_shows_how_it_ended() {
    let Some(engine) = engine() else { return };
    let ended = logs(&stopped(engine, &[]));
    let last = ended.stderr.lines().last().unwrap_or_default();
    let parts =
        ["rdma-init: sh was killed by SIGTERM (exit code 143) after ", "; SIGTERM was forwarded to it "];
    assert!(last.starts_with(parts[0]) && last.contains(parts[1]), "{ended:#?}");

    let mut container = engine.create::<&str>([], &["sh", "-c", "exit 7"]);
    container.start();
    container.wait_again().expect_code(7);
    let ended = logs(&container);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("rdma-init: sh ended with exit code 7 after "), "{ended:#?}");
}

#[test]
fn a_plain_end_is_not_worth_a_line() {
    let Some(engine) = engine() else { return };
    engine.run::<&str>([], &["true"]).expect_code(0).expect_unsaid("ended").expect_unsaid("exit code");
}

#[test]
fn with_the_log_level_error_docker_logs_shows_nothing() {
    let Some(engine) = engine() else { return };
    let ended = logs(&stopped(engine, &["RDMA_INIT_LOG_LEVEL=error"]));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("ready\n", ""));
}

#[test]
fn in_json_the_last_line_of_docker_logs_is_the_end() {
    let Some(engine) = engine() else { return };
    let ended = logs(&stopped(engine, &["RDMA_INIT_LOG_FORMAT=json"]));
    let last = ended.stderr.lines().last().unwrap_or_default();
    let end: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{ended:#?}"));
    let text = end.to_string();
    for part in [r#""event":"end""#, r#""command":"sh""#, r#""exit_code":143"#, r#""killed_by":"SIGTERM""#] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
