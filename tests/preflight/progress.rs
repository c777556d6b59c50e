//! Tests what node 0 shows during the preflight.

use super::job::Job;
use crate::support::screen::on_a_terminal;

#[test]
fn on_a_terminal_a_bar_shows_how_far_the_nodes_are() {
    let job = Job::of(3);
    let mut command = job.command(0, &[]);
    command.env("TERM", "xterm");
    let (zero, mut screen) = on_a_terminal(command);
    screen.shows("\r[");
    screen.shows("] 1 of 3 nodes have joined; node 0 is waiting for node 1, node 2\x1b[K");
    let others = [job.start(1, &[]), job.start(2, &[])];
    // The bar of the pairs replaces that of the nodes, on one line of at most 79 columns.
    screen.shows(" of 2 pairs are done, round ");
    let bar = screen.text.split('\r').next().unwrap();
    assert!(!bar.contains('\n'), "{bar:?}");
    screen.shows("\r\x1b[K");
    screen.shows(&format!("rdma-init {} preflight: passed", env!("CARGO_PKG_VERSION")));
    screen.shows("(3 nodes, ");
    for node in others {
        node.end().expect_code(0);
    }
    zero.end().expect_code(0);
}

#[test]
fn without_a_terminal_lines_report_the_progress() {
    let job = Job::of(3);
    let zero = job.start(0, &["--wait", "15s"]);
    zero.wait_for("preflight: 1 of 3 nodes have joined; node 0 is waiting for node 1, node 2\n");
    let ended = zero.end().expect_code(1);
    assert!(!ended.stderr.contains(['\r', '\x1b']), "{ended:#?}");
}
