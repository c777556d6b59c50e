//! Tests the metrics of `rdma-init stat` with their real readers: promtool, the OpenMetrics parser of
//! Prometheus' Python client, and a Prometheus that scrapes them. The kernel's files are made up.

use std::fs;
use std::process::Command;

use super::setup::{prepared, value};
use crate::support::{binary, namespace, repository};

/// Two HCAs: one with all kinds of counters, and one with counters of a driver that is not in the table.
const HOST: &str = r#"
    mount -t tmpfs none /sys/class
    port=/sys/class/infiniband/mlx5_0/ports/1
    mkdir -p $port/counters $port/hw_counters
    echo 28.39.1002 >/sys/class/infiniband/mlx5_0/fw_ver
    echo '4: ACTIVE' >$port/state
    echo '5: LinkUp' >$port/phys_state
    echo '400 Gb/sec (4X NDR)' >$port/rate
    echo 1000 >$port/counters/port_xmit_data
    echo 3 >$port/counters/link_downed
    echo 18446744073709551615 >$port/counters/symbol_error
    echo 'N/A (no PMA)' >$port/counters/port_rcv_errors
    echo 7 >$port/hw_counters/rx_write_requests
    echo 10 >$port/hw_counters/lifespan
    port=/sys/class/infiniband/new_0/ports/2
    mkdir -p $port/hw_counters
    echo 8 >$port/hw_counters/brand_new
    "$0" stat --format openmetrics >"$1/metrics.openmetrics"
    "$0" stat --format prometheus >"$1/metrics.prom"
"#;

#[test]
fn prometheus_takes_the_metrics_of_stat() {
    let (Some(python), Some(prometheus)) = (prepared("manifests"), prepared("prometheus")) else { return };
    if !namespace::can_be_made() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut host = Command::new("unshare");
    host.args(["--mount", "--", "sh", "-ec", HOST]).arg(binary()).arg(folder.path());
    let made = host.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let written = fs::read_to_string(folder.path().join("metrics.prom")).unwrap();
    let judged = Command::new(value(&python, "PYTHON"))
        .arg(repository("tests/examples/metrics.py"))
        .arg(folder.path())
        .arg(value(&prometheus, "PROMETHEUS"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.success(), "{said}\n{written}");
}
