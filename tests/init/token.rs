//! Tests that PID 1 gives the token of a job only to rdma-init itself, and to no other program.

use crate::support::binary;
use crate::support::port::free_port;
use crate::support::running::{Running, as_pid_1, rdma_init};

const TOKEN: &str = "a secret of all nodes";

/// Starts a node of a job of two behind a PID 1 with the token. `between` precedes its command.
fn node(port: u16, node: u32, between: &[&str]) -> Running {
    let own = binary().into_os_string().into_string().unwrap();
    let (node, meet) = (node.to_string(), format!("127.0.0.1:{port}"));
    let step = [&own, "preflight", "--nodes", "2", "--node", &node, "--meet", &meet];
    let mut command = rdma_init([&["--"], between, &step].concat());
    command.env("RDMA_INIT_TOKEN", TOKEN).env("RDMA_INIT_PREFLIGHT_WAIT", "60s");
    as_pid_1(command)
}

#[test]
fn a_preflight_that_is_the_command_has_the_token() {
    let port = free_port();
    let own = binary().into_os_string().into_string().unwrap();
    // One node gets the token directly, the other one through a second rdma-init.
    let nodes = [node(port, 0, &[]), node(port, 1, &[&own, "--"])];
    for node in nodes {
        let ended = node.end().expect_code(0);
        assert!(ended.stdout.contains("passed"), "{ended:#?}");
        for none in ["RDMA_INIT_TOKEN", TOKEN] {
            assert!(!ended.stderr.contains(none) && !ended.stdout.contains(none), "{ended:#?}");
        }
    }
}

#[test]
fn a_shell_in_between_has_no_token_and_the_preflight_behind_it_says_so() {
    let ended = node(free_port(), 1, &["sh", "-c", "env; \"$0\" \"$@\""]).end().expect_code(1);
    assert!(!ended.stdout.contains(TOKEN), "{ended:#?}");
    assert!(ended.stdout.contains("RDMA_INIT_KEPT_TOKEN=1"), "{ended:#?}");
    for part in ["RDMA_INIT_TOKEN is not set here", "set RDMA_INIT_TOKEN again"] {
        assert!(ended.stderr.contains(part), "{ended:#?}");
    }
}
