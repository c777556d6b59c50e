//! A command that must not start without the checks does not start, however the
//! preparation ends.

use std::time::Duration;

use nix::libc;

use super::container::{as_pid_1, hanging, rdma_init, send};
use super::hang::Hang;

const HANGS: &str = "/sys/class/infiniband";

#[test]
fn a_timeout_refuses_where_rdma_is_required() {
    for as_pid_1 in [true, false] {
        let hang = Hang::interruptible(HANGS);
        let flags = ["--prepare-timeout", "500ms", "--require-rdma", "--", "echo", "started"];
        let running = hanging(rdma_init(flags), as_pid_1, &hang);
        hang.wait();
        let ended = running.end().expect_code(121);
        assert_eq!(ended.stdout, "", "{ended:#?}");
        assert!(ended.stderr.contains("Refusing to start"), "{ended:#?}");
    }
}

#[test]
fn a_crash_refuses_where_pinned_memory_is_enforced() {
    let hang = Hang::interruptible(HANGS);
    let mut command = rdma_init(["--", "echo", "started"]);
    command.env("RDMA_INIT_MEMLOCK", "enforce").env("RDMA_INIT_REFUSE_EXIT_CODE", "77");
    let running = hanging(command, true, &hang);
    hang.wait();
    send(running.child(), libc::SIGKILL);
    let ended = running.end().expect_code(77);
    assert_eq!(ended.stdout, "", "{ended:#?}");
}

/// Wherever the time is up: the two ends of the preparation must not both count.
#[test]
fn a_refused_command_is_not_started_at_the_timeout() {
    for micros in (0..6000).step_by(300) {
        let timeout = format!("{}us", Duration::from_micros(micros).as_micros().max(1));
        let flags = ["--require-rdma", "--prepare-timeout", &timeout, "--", "echo", "started"];
        let ended = as_pid_1(rdma_init(flags)).end().expect_code(121);
        assert_eq!(ended.stdout, "", "{timeout}: {ended:#?}");
    }
}
