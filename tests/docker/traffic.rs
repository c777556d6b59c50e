//! Tests the report about a job's traffic, with simulated counters.

use crate::support::docker::host::Host;
use crate::support::docker::{Container, Engine};

const PORT: &str = "class/infiniband/mlx5_0/ports/1";

/// Sets mlx5's counters. The data counters count words of four bytes.
fn count(host: &Host, words: u64, packets: u64) {
    for (counter, value) in [
        ("port_xmit_data", words),
        ("port_rcv_data", 2 * words),
        ("port_xmit_packets", packets),
        ("port_rcv_packets", packets),
    ] {
        host.write(&format!("{PORT}/counters/{counter}"), &value.to_string());
    }
}

/// Starts a command that waits to be stopped.
fn started<'a>(engine: &'a Engine, host: &Host) -> Container<'a> {
    runs(engine, host, "echo ready; read -r _ </dev/zero")
}

fn runs<'a>(engine: &'a Engine, host: &Host, script: &str) -> Container<'a> {
    runs_with(engine, host, &[], script)
}

fn runs_with<'a>(engine: &'a Engine, host: &Host, options: &[&str], script: &str) -> Container<'a> {
    let mut container = engine.start(host.options(options), &["sh", "-c", script]);
    container.wait_for("ready");
    container
}

#[test]
fn it_is_told_at_the_end() {
    let Some((engine, host)) = Host::of_engine() else { return };
    count(&host, 1000, 10);
    let container = started(engine, &host);
    count(&host, 1000 + (3 << 18), 4010);
    container.signal("KILL");
    // The engine kills all processes, so no process is left to report it.
    container.wait().expect_code(137).expect_unsaid("sent");

    let container = started(engine, &host);
    count(&host, 1000 + (6 << 18), 8010);
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line(["rdma-init: mlx5_0 sent 3 MiB and received 6 MiB, and no error is visible."])
        .expect_unsaid("no data has moved");

    // A job that was stopped so early may not have begun.
    let container = started(engine, &host);
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line(["rdma-init: mlx5_0 moved no data, and no error is visible."])
        .expect_unsaid("no data has moved");
    let nodes = ["--env", "NNODES=2", "--env", "NODE_RANK=0"];
    let begun = [&["--env", "RDMA_INIT_WATCH_AFTER=1ms"][..], &nodes].concat();
    // A container that ends at once may have its output lost by the engine (moby issue 27289).
    let until_told = format!("echo ready; until [ -e /sys/{PORT}/end ]; do sleep 0.02; done");
    let container = runs_with(engine, &host, &begun, &until_told);
    host.write(&format!("{PORT}/end"), "");
    container
        .wait()
        .expect_code(0)
        .expect_line(["warning: RDMA was planned, but no data has moved over mlx5_0 in "])
        .expect_unsaid("moved no data");

    // On InfiniBand, the subnet manager's traffic does not count as the job's.
    host.write(&format!("{PORT}/link_layer"), "InfiniBand");
    let until_counted =
        format!("echo ready; until grep -q 8012 /sys/{PORT}/counters/port_xmit_packets; do sleep 0.02; done");
    let container = runs_with(engine, &host, &begun, &until_counted);
    count(&host, 1000 + (6 << 18) + 64, 8012);
    container
        .wait()
        .expect_code(0)
        .expect_said("sent 256 bytes")
        .expect_said("no data has moved over mlx5_0");
}

#[test]
fn what_went_wrong_on_a_port_is_told_and_a_sound_one_has_no_line() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let wrong = [
        "The link went down",
        "Queue pairs",
        "The link had errors",
        "Packets were lost or sent again",
        "no longer is",
    ];
    let set = |counters: &[(&str, u64)]| {
        counters.iter().for_each(|(name, value)| host.write(&format!("{PORT}/{name}"), &value.to_string()));
    };
    let (down, ended) = ("counters/link_downed", "hw_counters/req_transport_retries_exceeded");
    let (symbols, timeouts) = ("counters/symbol_error", "hw_counters/local_ack_timeout_err");
    count(&host, 1000, 10);
    set(&[(down, 3), (ended, 7), (symbols, 65_535), (timeouts, 4_294_967_290)]);
    let container = started(engine, &host);
    count(&host, 2000, 20);
    // The timeout counter has 32 bits and wraps around; the symbol counter is at its maximum.
    set(&[(timeouts, 10)]);
    container.signal("TERM");
    let ended_well = container.wait().expect_code(143);
    wrong.iter().fold(ended_well, |ended, text| ended.expect_unsaid(text));

    let container = started(engine, &host);
    set(&[(down, 255), (ended, 9), (timeouts, 1 << 30)]);
    host.write(&format!("{PORT}/state"), "1: DOWN");
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line([
            "mlx5_0 sent ",
            ": it is no longer active; its link went down at least 252 times",
            "; 2 queue pairs failed without an answer from the peer (error 12 in NCCL's log)",
            "; local_ack_timeout_err rose by 1073741814.",
        ])
        .expect_line(["fix: Check the cable, the transceiver and the switch's port"])
        .expect_unsaid("The link went down within")
        .expect_unsaid("Queue pairs failed in")
        .expect_unsaid("The link had errors");
    // Without the account, the findings say it.
    host.write(&format!("{PORT}/state"), "4: ACTIVE");
    let container =
        runs_with(engine, &host, &["--env", "RDMA_INIT_LOG_LEVEL=warn"], "echo ready; exec sleep 1000");
    set(&[(ended, 12)]);
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line([
            "warning: Queue pairs failed in ",
            "mlx5_0: 3 without an answer from the peer (error 12",
        ])
        .expect_unsaid("sent ");
}

#[test]
fn nothing_is_told_where_no_counter_shows() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let container = started(engine, &host);
    let stat = container.exec(&["/rdma-init", "stat"]).expect_code(125);
    stat.expect_said("the RDMA devices show no counters here");
    container.signal("TERM");
    container.wait().expect_code(143).expect_unsaid("sent").expect_unsaid("moved");
}
