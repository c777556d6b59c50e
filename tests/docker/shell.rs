//! Tests an ENTRYPOINT in shell form.

use crate::support::docker::engine;

const NOTE: &str = "note: PID 1 of this container is a shell (sh)";
const JOB: &str = "/rdma-init -- sh -c 'trap \"echo stopped; exit 7\" TERM; echo ready; sleep 1000 & wait'";

#[test]
fn docker_stop_is_lost_on_a_shell_and_the_report_says_so() {
    let Some(engine) = engine() else { return };
    let shell = ["--entrypoint", "/bin/sh"];
    let mut container = engine.start(shell, &["-c", &format!("{JOB}; true")]);
    container.wait_for("ready");
    // The shell that enters here is not PID 1, so the note is not written.
    let entered = container.exec(&["sh", "-c", "/rdma-init -- true; true"]).expect_code(0);
    entered.expect_unsaid("note: PID 1");
    container.docker(["stop", "-t", "1"], &[]).expect_code(0);
    let ended = container.wait().expect_code(137).expect_stdout("ready\n");
    ended.expect_said(NOTE).expect_line(["fix:", "sh -c \"exec /rdma-init -- ...\"", "ENTRYPOINT ["]);

    let mut container = engine.start(shell, &["-c", &format!("exec {JOB}")]);
    container.wait_for("ready");
    container.docker(["stop", "-t", "60"], &[]).expect_code(0);
    container.wait().expect_code(7).expect_stdout("ready\nstopped\n").expect_unsaid("note: PID 1");
}
