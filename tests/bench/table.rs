//! Writes the results as Markdown tables, which people read and tests/bench/results keeps.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::peers::{Peer, output};

/// Returns a table whose first column is aligned to the left, and all others to the right.
pub fn table(title: &str, note: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("\n## {title}\n\n{note}\n\n");
    let _ = writeln!(text, "| {} |", head.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(head.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Returns a heading that names the machine and the versions of the inits.
pub fn machine(peers: &[Peer]) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let versions: Vec<String> = peers.iter().filter_map(Peer::version).collect();
    format!(
        "# PID 1 beside its peers\n\n{} CPUs, {}; Linux {}; {}.\n",
        cpus,
        model.trim_start_matches(['\t', ' ', ':']),
        output(Command::new("uname").arg("-r")),
        versions.join(", ")
    )
}

pub fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("comparable"));
    values[values.len() / 2]
}
