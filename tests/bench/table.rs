//! Markdown, for people and for the record.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::peers::{output, versions};

/// A table; the first column is aligned to the left.
pub fn table(title: &str, note: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("\n## {title}\n\n{note}\n\n");
    let _ = writeln!(text, "| {} |", head.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(head.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// On what this was measured.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "# PID 1 beside its peers\n\n{} CPUs, {}; Linux {}; {}.\n",
        cpus,
        model.trim_start_matches(['\t', ' ', ':']),
        output(Command::new("uname").arg("-r")),
        versions().join(", ")
    )
}

pub fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("comparable"));
    values[values.len() / 2]
}
