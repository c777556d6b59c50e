//! Writes the traffic of the HCAs, in MiB and packets per second.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::facts::traffic::{CounterValue, Traffic};
use crate::json;
use crate::text::{WIDEST, visible};

/// A port and its traffic.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    pub hca: &'a str,
    pub port: u32,
    #[serde(flatten, serialize_with = "Traffic::flat")]
    pub moved: Traffic,
}

/// Writes a table with a row for each port.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, rows: &[Row], time: Duration) -> io::Result<()> {
    let names: Vec<String> = rows.iter().map(|row| visible(&format!("{}:{}", row.hca, row.port))).collect();
    let width = names.iter().map(String::len).max().unwrap_or_default().min(WIDEST);
    // Without this column, a port that counts only requests would have no figures at all.
    let shows_requests = rows.iter().any(|row| row.moved.requests.is_some());
    let head = if shows_requests { "   requests/s" } else { "" };
    writeln!(
        out,
        "{:width$}  {:>11}  {:>11}  {:>11}  {:>11}{head}",
        "", "sent MiB/s", "packets/s", "recv MiB/s", "packets/s"
    )?;
    for (name, row) in names.iter().zip(rows) {
        let columns = |of: CounterValue| {
            let mebibytes =
                rate(of.bytes, time).map_or("-".to_owned(), |rate| format!("{:.1}", rate / MEBIBYTE));
            let packets = rate(of.packets, time).map_or("-".to_owned(), |rate| format!("{rate:.0}"));
            format!("{mebibytes:>11}  {packets:>11}")
        };
        let last = match rate(row.moved.requests, time) {
            _ if !shows_requests => String::new(),
            requests => format!("  {:>11}", requests.map_or("-".to_owned(), |rate| format!("{rate:.0}"))),
        };
        writeln!(out, "{name:width$}  {}  {}{last}", columns(row.moved.sent), columns(row.moved.received))?;
    }
    Ok(())
}

const MEBIBYTE: f64 = (1 << 20) as f64;

/// Returns the rate per second; `None` if the value is not counted.
fn rate(count: Option<u64>, time: Duration) -> Option<f64> {
    count.map(|count| count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// A line of `stat --json`: the traffic of one port within this many seconds.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    seconds: f64,
    #[serde(flatten)]
    row: &'a Row<'a>,
}

/// Writes one line for each port.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_json(out: &mut dyn Write, rows: &[Row], time: Duration) -> io::Result<()> {
    let seconds = time.as_secs_f64();
    rows.iter().try_for_each(|row| json::write_line(out, &Line { schema: "rdma-init/stat/1", seconds, row }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_a_second() {
        let amount = |bytes, packets| CounterValue { bytes, packets };
        let (sent, received) = (amount(Some(3 << 20), Some(9)), amount(None, Some(0)));
        let moved = Traffic { sent, received, requests: None };
        let rows = [Row { hca: "mlx5_10", port: 1, moved }];
        let mut text = Vec::new();
        write(&mut text, &rows, Duration::from_millis(1500)).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "            sent MiB/s    packets/s   recv MiB/s    packets/s\n\
             mlx5_10:1          2.0            6            -            0\n"
        );
        let mut json = Vec::new();
        write_json(&mut json, &rows, Duration::from_millis(1500)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((json["sent_bytes"].as_u64(), json["seconds"].as_f64()), (Some(3 << 20), Some(1.5)));
        assert!(json["received_bytes"].is_null());
        let served = Traffic { requests: Some(30), ..Traffic::default() };
        let mut text = Vec::new();
        write(&mut text, &[Row { hca: "mlx5_0", port: 1, moved: served }], Duration::from_secs(2)).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "           sent MiB/s    packets/s   recv MiB/s    packets/s   requests/s\n\
             mlx5_0:1            -            -            -            -           15\n"
        );
    }
}
