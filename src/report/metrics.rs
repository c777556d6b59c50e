//! Writes the state and the counters of all ports for Prometheus. Metrics that node_exporter's `infiniband`
//! collector also has use the same names and labels, so that existing dashboards and rules work. Unlike
//! that collector, this one has the counters of every driver, and works in a container that shares the HCAs
//! of the host's network namespace.

mod fields;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use fields::{FIELDS, Field, Kind};

use crate::facts::port_sample::{DeviceInfo, PortSample};
use crate::watch::Standing;

/// How the metrics are written. The comments are its help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exposition {
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// Prometheus' text format 0.0.4, for node_exporter's textfile collector
    Prometheus,
}

/// The start of the metric names.
const PREFIX: &str = "node_infiniband_";

/// The metric for values that the table of fields does not contain.
const OTHER: &str = "rdma_init_driver_value";

/// Writes all metrics.
///
/// # Errors
/// The error of the sink.
pub(crate) fn write(out: &mut impl Write, ports: &[PortSample], how: Exposition) -> io::Result<()> {
    for field in FIELDS {
        let values: Vec<(&PortSample, u64)> =
            ports.iter().filter_map(|port| Some((port, field.of(port)?))).collect();
        if !values.is_empty() {
            family(out, field, &values, how)?;
        }
    }
    devices(out, ports, how)?;
    others(out, ports, how)?;
    match how {
        Exposition::OpenMetrics => writeln!(out, "# EOF"),
        Exposition::Prometheus => Ok(()),
    }
}

/// Writes what the watcher of the container with this host name knows of the job, for a file of node_exporter. `now`:
/// since the epoch.
///
/// # Errors
/// The error of the sink.
pub(crate) fn write_watcher(
    out: &mut impl Write,
    host: &str,
    now: Duration,
    standing: &Standing,
    is_up: bool,
) -> io::Result<()> {
    let host = format!("host=\"{}\"", escaped(host));
    let mut gauge = |name: &str, help: &str, value: u64| {
        writeln!(out, "# HELP rdma_init_{name} {help}\n# TYPE rdma_init_{name} gauge")?;
        writeln!(out, "rdma_init_{name}{{{host}}} {value}")
    };
    gauge("watcher_up", "Whether the watcher of the job runs: 0 after an end in order.", is_up.into())?;
    gauge(
        "watcher_last_look_timestamp_seconds",
        "When the watcher looked at the ports last.",
        now.as_secs(),
    )?;
    if let Some(rested) = standing.rested {
        let moved_at = now.saturating_sub(rested).as_secs();
        gauge("last_traffic_timestamp_seconds", "When the job moved data last.", moved_at)?;
    }
    if !standing.findings.is_empty() {
        let name = "rdma_init_findings_total";
        writeln!(
            out,
            "# HELP {name} Findings of the watcher, with those that its lines omit.\n# TYPE {name} counter"
        )?;
    }
    for ((id, severity), count) in standing.findings {
        let severity = severity.name();
        writeln!(out, "rdma_init_findings_total{{{host},id=\"{id}\",severity=\"{severity}\"}} {count}")?;
    }
    Ok(())
}

/// Writes the values of one field.
fn family(
    out: &mut impl Write,
    field: &Field,
    values: &[(&PortSample, u64)],
    how: Exposition,
) -> io::Result<()> {
    let name = format!("{PREFIX}{}", field.name);
    let (kind, end) = match field.kind {
        Kind::Counter => ("counter", "_total"),
        Kind::Gauge => ("gauge", ""),
    };
    let whole = format!("{name}{end}");
    // In OpenMetrics, the family name of a counter has no suffix.
    let family = if how == Exposition::OpenMetrics { &name } else { &whole };
    writeln!(out, "# HELP {family} {}", field.help)?;
    writeln!(out, "# TYPE {family} {kind}")?;
    if how == Exposition::OpenMetrics && name.ends_with("_bytes") {
        writeln!(out, "# UNIT {family} bytes")?;
    }
    for (port, value) in values {
        writeln!(out, "{whole}{{device=\"{}\",port=\"{}\"}} {value}", escaped(&port.hca), port.port)?;
    }
    Ok(())
}

/// Writes what the devices say about themselves, each once.
fn devices(out: &mut impl Write, ports: &[PortSample], how: Exposition) -> io::Result<()> {
    let mut seen = BTreeSet::new();
    let known = |port: &&PortSample| port.device != DeviceInfo::default();
    let mut devices = ports.iter().filter(known).filter(|port| seen.insert(&port.hca)).peekable();
    if devices.peek().is_none() {
        return Ok(());
    }
    // In OpenMetrics, the family name of such a metric has no suffix.
    let (family, kind) = match how {
        Exposition::OpenMetrics => ("node_infiniband", "info"),
        Exposition::Prometheus => ("node_infiniband_info", "gauge"),
    };
    writeln!(out, "# HELP {family} What the device says about itself; the value is always 1.")?;
    writeln!(out, "# TYPE {family} {kind}")?;
    for port in devices {
        let label = |value: &Option<String>| escaped(value.as_deref().unwrap_or_default());
        writeln!(
            out,
            "{PREFIX}info{{device=\"{}\",board_id=\"{}\",firmware_version=\"{}\",hca_type=\"{}\"}} 1",
            escaped(&port.hca),
            label(&port.device.board_id),
            label(&port.device.firmware),
            label(&port.device.kind),
        )?;
    }
    Ok(())
}

/// Writes counters that only some drivers have, under the drivers' names. Some of them may actually be
/// gauges.
fn others(out: &mut impl Write, ports: &[PortSample], how: Exposition) -> io::Result<()> {
    let known: BTreeSet<&str> = FIELDS.iter().flat_map(|field| field.of_hardware).copied().collect();
    let of = |port: &PortSample| -> Vec<(String, u64)> {
        let unknown = port.of_hardware.iter().filter(|(name, _)| !known.contains(name.as_str()));
        unknown.map(|(name, value)| (name.clone(), *value)).collect()
    };
    if ports.iter().all(|port| of(port).is_empty()) {
        return Ok(());
    }
    let kind = if how == Exposition::OpenMetrics { "unknown" } else { "untyped" };
    writeln!(out, "# HELP {OTHER} A value that the driver of the port counts, by the driver's name for it.")?;
    writeln!(out, "# TYPE {OTHER} {kind}")?;
    for port in ports {
        for (name, value) in of(port) {
            writeln!(
                out,
                "{OTHER}{{device=\"{}\",port=\"{}\",counter=\"{}\"}} {value}",
                escaped(&port.hca),
                port.port,
                escaped(&name)
            )?;
        }
    }
    Ok(())
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_sample;

    fn ports() -> Vec<PortSample> {
        let root = FakeRoot::new();
        let files = [
            ("state", "4: ACTIVE\n"),
            ("rate", "400 Gb/sec (4X NDR)\n"),
            ("counters/port_xmit_data", "1000\n"),
        ];
        root.files("sys/class/infiniband/mlx5_0/ports/1", &files);
        let look = port_sample::all(&root.reader()).remove(0).look;
        let of = |counts: &[(&str, u64)]| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        vec![
            PortSample {
                hca: "mlx5_0".into(),
                port: 1,
                device: DeviceInfo { firmware: Some("28.39.1002".into()), ..DeviceInfo::default() },
                look,
                of_port: of(&[("link_downed", 1), ("VL15_dropped", 2)]),
                of_hardware: of(&[("rx_write_requests", 7), ("brand_new", 8)]),
                ..PortSample::default()
            },
            PortSample {
                hca: "odd\"\\\nname".into(),
                port: 2,
                of_hardware: of(&[("link_downed", 3), ("local_ack_timeout_err", u64::MAX)]),
                ..PortSample::default()
            },
        ]
    }

    fn written(how: Exposition) -> String {
        let mut text = Vec::new();
        write(&mut text, &ports(), how).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_family_has_the_values_of_all_ports() {
        let text = written(Exposition::OpenMetrics);
        let lines = "# TYPE node_infiniband_link_downed counter\n\
            node_infiniband_link_downed_total{device=\"mlx5_0\",port=\"1\"} 1\n\
            node_infiniband_link_downed_total{device=\"odd\\\"\\\\\\nname\",port=\"2\"} 3\n";
        assert!(text.contains(lines), "{text}");
        let bytes = "# UNIT node_infiniband_port_data_transmitted_bytes bytes\n\
            node_infiniband_port_data_transmitted_bytes_total{device=\"mlx5_0\",port=\"1\"} 4000\n";
        assert!(text.contains(bytes), "{text}");
        assert!(text.contains("\nnode_infiniband_state_id{device=\"mlx5_0\",port=\"1\"} 4\n"), "{text}");
        assert!(text.contains("_vl15_dropped_total{"), "{text}");
        let info = "# TYPE node_infiniband info\n\
            node_infiniband_info{device=\"mlx5_0\",board_id=\"\",firmware_version=\"28.39.1002\",hca_type=\"\"} 1\n\
            # HELP rdma_init";
        assert!(text.contains(info), "{text}");
        assert!(text.contains("{device=\"mlx5_0\",port=\"1\",counter=\"brand_new\"} 8\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(!text.contains("symbol_error"), "none has it");
    }

    #[test]
    fn the_text_format_names_families_by_their_counters() {
        let text = written(Exposition::Prometheus);
        assert!(text.contains("# TYPE node_infiniband_link_downed_total counter\n"), "{text}");
        assert!(text.contains("# TYPE rdma_init_driver_value untyped\n"), "{text}");
        assert!(text.contains("# TYPE node_infiniband_info gauge\nnode_infiniband_info{device="), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    }
}
