//! Tests what is said about the traffic of a job, with made-up counters.

use crate::support::docker::host::Host;
use crate::support::docker::{Container, Engine, engine};

const PORT: &str = "class/infiniband/mlx5_0/ports/1";

/// Sets the counters of mlx5. The counters of data count words of four bytes.
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

fn started<'a>(engine: &'a Engine, host: &Host) -> Container<'a> {
    let mut container = engine.start(host.options(&[]), &["sh", "-c", "echo ready; read -r _ </dev/zero"]);
    container.wait_for("ready");
    container
}

#[test]
fn it_is_told_at_the_end() {
    let Some(engine) = engine() else { return };
    let host = Host::with_one_hca(engine);
    count(&host, 1000, 10);
    let container = started(engine, &host);
    count(&host, 1000 + (3 << 18), 4010);
    container.signal("KILL");
    // The engine kills all processes, so no process is left to say it.
    container.wait().expect_code(137).expect_unsaid("sent");

    let container = started(engine, &host);
    count(&host, 1000 + (6 << 18), 8010);
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line(["rdma-init: mlx5_0 sent 3 MiB and received 6 MiB."])
        .expect_unsaid("nothing has moved");

    let container = started(engine, &host);
    container.signal("TERM");
    container
        .wait()
        .expect_code(143)
        .expect_line(["rdma-init: mlx5_0 sent 0 bytes and received 0 bytes."])
        .expect_line(["warning: RDMA was planned, and nothing has moved over mlx5_0 in "]);

    // On InfiniBand the traffic of the subnet manager does not count as the job's.
    host.write(&format!("{PORT}/link_layer"), "InfiniBand");
    let container = started(engine, &host);
    count(&host, 1000 + (6 << 18) + 64, 8012);
    container.signal("TERM");
    container.wait().expect_said("sent 256 bytes").expect_said("nothing has moved over mlx5_0");
}

#[test]
fn nothing_is_told_where_no_counter_shows() {
    let Some(engine) = engine() else { return };
    let host = Host::with_one_hca(engine);
    let container = started(engine, &host);
    let stat = container.exec(&["/rdma-init", "stat"]).expect_code(125);
    stat.expect_said("the counters of the RDMA devices cannot be read here");
    container.signal("TERM");
    container.wait().expect_code(143).expect_unsaid("sent").expect_unsaid("moved");
}
