//! Output of `rdma-init compare`, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::compare::collect::{ReportFault, Unread};
use crate::compare::comparison::{Compared, Comparison, consequence};
use crate::text::{condensed_to, counted, name_program, shortened, visible};

/// The document of `compare --json`.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    /// Whether there is nothing to check, as the exit code reports it.
    pub passed: bool,
    /// The expected number of nodes with a report, if the user gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<usize>,
    /// How many of these nodes have no report.
    missing: usize,
    #[serde(flatten)]
    comparison: &'a Comparison<'a>,
    unread: &'a Unread,
}

/// The most names, or runs of names, on a line.
const NAMES: usize = 16;

/// The most values shown for one property.
const VALUES: usize = 16;

impl<'a> Document<'a> {
    pub(crate) fn new(
        comparison: &'a Comparison,
        unread: &'a Unread,
        expected: Option<usize>,
    ) -> Document<'a> {
        let missing = expected.map_or(0, |expected| expected.saturating_sub(comparison.nodes));
        let passed = comparison.is_clean() && unread.count == 0 && missing == 0;
        Document { schema: "rdma-init/compare/1", passed, expected, missing, comparison, unread }
    }
}

/// Writes the comparison.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, document: &Document) -> io::Result<()> {
    let Document { comparison, unread, .. } = document;
    writeln!(out, "rdma-init {}: {}", env!("CARGO_PKG_VERSION"), headline(document))?;
    let names = comparison.properties.iter().map(|property| label(property).len());
    let names = names.chain(comparison.failed.iter().map(|check| check.id.len()));
    let width = names.max().unwrap_or_default().min(30);
    for property in &comparison.properties {
        write_property(out, property, width)?;
    }
    for check in &comparison.failed {
        let whom = whom(check.count, &check.nodes);
        writeln!(out, "  failed  {:width$}  {whom}", visible(&shortened(check.id)))?;
    }
    write_repeated(out, comparison)?;
    if let Some(expected) = document.expected.filter(|_| document.missing > 0) {
        let reported = counted(comparison.nodes, "node");
        let as_one =
            if comparison.repeated.is_empty() { "" } else { "; nodes with the same name count as one" };
        writeln!(
            out,
            "  missing {}: {expected} are expected, and there are reports of {reported}{as_one}",
            counted(document.missing, "node")
        )?;
    }
    if comparison.variables_left_out > 0 {
        writeln!(
            out,
            "  left    {} are not compared",
            counted(comparison.variables_left_out, "more variable")
        )?;
    }
    for place in &unread.first {
        writeln!(out, "  unread  {}", sentence(place))?;
    }
    match unread.count - unread.first.len() {
        0 => Ok(()),
        more => writeln!(out, "  unread  and {more} more"),
    }
}

/// Returns the place in a file that could not be read, and why.
fn sentence(place: &ReportFault) -> String {
    let line = place.line.map(|line| format!(", line {line}")).unwrap_or_default();
    format!("{}{line}: {}", place.file, place.why)
}

/// Writes which nodes have several reports, which of these counts, and what the cause may be.
fn write_repeated(out: &mut impl Write, comparison: &Comparison) -> io::Result<()> {
    let differ = &comparison.contradicted;
    let same: Vec<&str> = comparison.repeated.iter().copied().filter(|node| !differ.contains(node)).collect();
    let why = "tested again, or several nodes with one name; compare uses the last report of each";
    if !same.is_empty() {
        writeln!(out, "  twice   {} ({why})", whom(same.len(), &same))?;
    }
    if !differ.is_empty() {
        writeln!(out, "  twice   {}, with reports that differ ({why})", whom(differ.len(), differ))?;
    }
    Ok(())
}

fn headline(Document { comparison, unread, expected, .. }: &Document) -> String {
    let nodes = counted(comparison.nodes, "node");
    let nodes = match *expected {
        Some(expected) if expected > comparison.nodes => {
            format!("{} of {}", comparison.nodes, counted(expected, "node"))
        }
        Some(expected) if expected < comparison.nodes => format!("{nodes} ({expected} expected)"),
        _ => nodes,
    };
    if comparison.nodes == 0 {
        let advice = name_program("pass the output of rdma-init self-test --json on each node");
        return format!("{nodes}: there is no report to compare; {advice}");
    }
    let mut parts = Vec::new();
    let without = comparison.properties.iter().filter(|property| property.majority.is_none()).count();
    if !comparison.contradicted.is_empty() {
        parts.push(format!("{} with reports that differ", comparison.contradicted.len()));
    } else if comparison.nodes == 1 {
        parts.push("there is no other to compare it with".to_owned());
    } else if comparison.agree {
        parts.push("all agree".to_owned());
    }
    match comparison.differing.len() {
        0 => {}
        1 => parts.push("1 differs from the majority".to_owned()),
        several => parts.push(format!("{several} differ from the majority")),
    }
    if without > 0 {
        parts.push(format!(
            "no majority in {}",
            if without == 1 { "1 property".to_owned() } else { format!("{without} properties") }
        ));
    }
    parts.push(match comparison.failed.len() {
        0 => "no check failed".to_owned(),
        checks => format!("{} failed", counted(checks, "check")),
    });
    if unread.count > 0 {
        parts.push(format!("{} cannot be read", counted(unread.count, "report")));
    }
    format!("{nodes}: {}", parts.join(", "))
}

fn write_property(out: &mut impl Write, property: &Compared, width: usize) -> io::Result<()> {
    let verdict = if property.others.is_empty() { "same" } else { "differ" };
    write!(out, "  {verdict:6}  {:width$}  ", visible(&shortened(label(property))))?;
    match &property.majority {
        Some(majority) => {
            let count = counted(majority.count, "node");
            writeln!(out, "{} ({count})", value(property, majority.value))?;
        }
        None => writeln!(out, "no value has a majority")?,
    }
    for other in property.others.iter().take(VALUES) {
        let whom = whom(other.count, &other.nodes);
        writeln!(out, "  {:6}  {:width$}  {} ({whom})", "", "", value(property, other.value))?;
    }
    let more = property.others.get(VALUES..).unwrap_or_default();
    if !more.is_empty() {
        let nodes = counted(more.iter().map(|other| other.count).sum(), "node");
        writeln!(out, "  {:6}  {:width$}  and {} more ({nodes})", "", "", counted(more.len(), "value"))?;
    }
    match consequence(property.property).filter(|_| !property.others.is_empty()) {
        Some(follows) => writeln!(out, "  {:6}  {:width$}  {follows}", "", ""),
        None => Ok(()),
    }
}

fn label<'a>(property: &Compared<'a>) -> &'a str {
    property.variable.unwrap_or(property.property)
}

fn value(property: &Compared, value: Option<&str>) -> String {
    match value {
        Some("") => "empty".to_owned(),
        Some(value) => visible(&shortened(value)),
        None if property.variable.is_some() => "not set".to_owned(),
        None => "none".to_owned(),
    }
}

fn whom(count: usize, nodes: &[&str]) -> String {
    format!("{}: {}", counted(count, "node"), visible(&condensed_to(nodes, NAMES)))
}
