//! Writes Markdown, for people and for the record.

use std::fmt::Write;

/// Returns a table whose first column is left-aligned.
pub fn table(title: &str, note: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("\n## {title}\n\n{note}\n\n");
    let _ = writeln!(text, "| {} |", head.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(head.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

pub fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("comparable"));
    values[values.len() / 2]
}
