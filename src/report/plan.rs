//! Writes the decision for people: the block at start-up, and `rdma-init plan`.

use std::io::{self, Write};

use serde::Serialize;

use super::forecast;
use super::headline::headline;
use crate::facts::limits::{Amount, Limit};
use crate::finding::{Finding, Severity};
use crate::findings::memlock::Pinning;
use crate::log::Level;
use crate::plan::{EnvPlugin, Plan, PortVerdict, SCHEMA, Setting, SettingOutcome};
use crate::state::run::Run;
use crate::text::{amount, condensed, grouped, name_program, shortened, visible};

/// What was done about the limit of pinned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Memlock {
    pub before: Limit,
    pub after: Limit,
    pub pinning: Pinning,
}

/// How much to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// As `Compact`, but many findings of one kind share a line.
    Start,
    /// One line for each item.
    Compact,
    /// With the evidence.
    Full,
}

/// Writes the block.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(
    out: &mut impl Write,
    plan: &Plan,
    memlock: Option<&Memlock>,
    detail: Detail,
) -> io::Result<()> {
    write_headline(out, plan, "")?;
    let ports = groups(&plan.ports);
    let forecasts = forecast::lines(plan);
    let widths = plan.settings.iter().map(|setting| setting.variable.len());
    let widths = widths.chain(ports.iter().map(|group| group.names.len()));
    let widths = widths.chain(forecasts.iter().map(|(release, _)| release.len()));
    let width = widths.max().unwrap_or_default().min(WIDEST);
    for group in &ports {
        let verdict = if group.used { "use" } else { "skip" };
        writeln!(out, "  {verdict:5}  {:width$}  {}", visible(&group.names), visible(&group.text))?;
    }
    for (index, setting) in plan.settings.iter().enumerate() {
        // One line for each library other than NCCL.
        let library = setting.library.filter(|_| detail != Detail::Full);
        let mut also = Vec::new();
        if library.is_some() {
            let is_of_same = |other: &&Setting| other.library == library;
            if plan.settings[..index].iter().any(|other| is_of_same(&other)) {
                continue;
            }
            also.extend(plan.settings[index + 1..].iter().filter(is_of_same));
        }
        write_setting(out, setting, &also, width)?;
        if detail == Detail::Full {
            for evidence in &setting.evidence {
                writeln!(out, "  {:5}  {:width$}  {}", "", "", visible(evidence))?;
            }
        }
    }
    for (whom, what) in forecasts {
        writeln!(out, "  {:5}  {:width$}  will {}", plan.library, whom, visible(&what))?;
    }
    if plan.env_plugin == EnvPlugin::Used {
        writeln!(
            out,
            "  {:5}  {:width$}  will {}",
            plan.library,
            "env plugin",
            visible(&forecast::asks_ours(plan))
        )?;
    }
    if detail == Detail::Full {
        for line in forecast::log_lines(plan) {
            writeln!(out, "  {:5}  {:width$}  its log: {}", "", "", visible(line))?;
        }
    }
    if let Some(memlock) = memlock {
        writeln!(out, "  {:5}  {:width$}  {}", "limit", "memlock", memlock_line(memlock))?;
    }
    write_findings(out, plan.findings.iter(), detail)
}

/// Writes what a start at this level shows: the block; or only the findings, below its first line, and nothing if there
/// are none.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_at(
    out: &mut impl Write,
    plan: &Plan,
    memlock: Option<&Memlock>,
    detail: Detail,
    level: Level,
) -> io::Result<()> {
    let is_shown = |finding: &&Finding| shows(level, finding.severity);
    let findings: Vec<Finding> = plan.findings.iter().filter(is_shown).cloned().collect();
    if level >= Level::Info {
        return write(out, &Plan { findings, ..plan.clone() }, memlock, detail);
    }
    if !findings.is_empty() {
        write_headline(out, plan, "")?;
    }
    write_findings(out, findings.iter(), detail)
}

/// Writes the first line: the program's name, its version, and the decision; and what `also` adds to it.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_headline(out: &mut impl Write, plan: &Plan, also: &str) -> io::Result<()> {
    writeln!(out, "rdma-init {}: {}{also}", env!("CARGO_PKG_VERSION"), visible(&headline(plan)))
}

/// Writes the findings, each with its fix below it.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_findings<'a>(
    out: &mut impl Write,
    findings: impl Iterator<Item = &'a Finding>,
    detail: Detail,
) -> io::Result<()> {
    let mut findings: Vec<&Finding> = findings.collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for (index, finding) in findings.iter().enumerate() {
        let (before, after) = findings.split_at(index);
        let is_same = |other: &&&Finding| other.id == finding.id && other.severity == finding.severity;
        let (before, left) = (before.iter().filter(is_same).count(), after.iter().filter(is_same).count());
        if detail == Detail::Start && before + left > FEW && before + 1 >= FEW {
            if before + 1 == FEW {
                let (severity, id) = (finding.severity.as_str(), finding.id.name());
                let advice = name_program("rdma-init plan shows them all.");
                writeln!(out, "  {severity}: {left} more of the kind {id}; {advice}")?;
            }
            continue;
        }
        writeln!(out, "  {}: {}", finding.severity.as_str(), visible(&finding.message))?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "      fix: {}", visible(fix))?;
        }
    }
    Ok(())
}

/// At a start, this many findings of one kind have lines of their own.
const FEW: usize = 5;

/// The widest column; a longer name pushes the rest of its line to the right.
const WIDEST: usize = 32;

/// Ports with the same rate and verdict, which share a line.
struct PortGroup {
    used: bool,
    text: String,
    names: String,
}

fn groups(ports: &[PortVerdict]) -> Vec<PortGroup> {
    let said = ports.iter().map(|port| {
        let text = match &port.reason {
            None => {
                let rate = if port.rate.is_empty() { "of unknown rate" } else { &port.rate };
                [&String::from(port.link_layer.clone()), rate].join(", ")
            }
            Some(reason) => reason.clone(),
        };
        ((port.used, text), port.name())
    });
    let groups = grouped(said).into_iter();
    groups.map(|((used, text), names)| PortGroup { used, text, names: condensed(&names) }).collect()
}

/// Writes the line of a setting. `also` contains other settings of the same library, which share the line.
fn write_setting(out: &mut impl Write, setting: &Setting, also: &[&Setting], width: usize) -> io::Result<()> {
    let verdict = match setting.outcome {
        SettingOutcome::Filled => "set",
        SettingOutcome::User => "yours",
        SettingOutcome::Left => "left",
        SettingOutcome::Unset => "unset",
    };
    let value = match setting.value.as_deref() {
        Some("") => "(empty)".to_owned(),
        Some(value) if setting.outcome == SettingOutcome::User => visible(&shortened(value)),
        value => visible(value.unwrap_or_default()),
    };
    let rule = setting.rule.clone();
    let reason = match setting.outcome {
        SettingOutcome::User => setting.source.to_string(),
        _ if setting.at_start => {
            format!("{rule} ({}), filled in when this container started", setting.source)
        }
        _ => format!("{rule} ({})", setting.source),
    };
    let also = also.iter().filter_map(|other| Some(format!("{}={}", other.variable, other.value.as_ref()?)));
    let also: Vec<String> = also.collect();
    let reason = if also.is_empty() { reason } else { format!("{reason}; also {}", also.join(", ")) };
    writeln!(out, "  {verdict:5}  {:width$}  {value:<8}  {}", visible(&setting.variable), visible(&reason))
}

/// Returns the limit, such as `64 KiB` or `unlimited`.
pub(crate) fn limit(soft: Amount) -> String {
    match soft {
        Amount::Limited(bytes) => amount(bytes),
        Amount::Unlimited(_) => "unlimited".to_owned(),
    }
}

fn memlock_line(memlock: &Memlock) -> String {
    let raised = match memlock.before == memlock.after {
        true => String::new(),
        false => format!(", raised from {}", limit(memlock.before.soft)),
    };
    let how = match memlock.pinning {
        Pinning::Capability => ", and CAP_IPC_LOCK lifts it",
        Pinning::Unlimited | Pinning::Limited(_) => "",
    };
    format!("{}{raised}{how}", limit(memlock.after.soft))
}

/// The document of `plan --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    program: &'static str,
    /// `None` if a file that is not world-readable contributed to the decision.
    #[serde(flatten)]
    plan: Option<&'a Plan>,
    memlock: Option<&'a Memlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a Run>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(plan: &'a Plan, memlock: Option<&'a Memlock>) -> Document<'a> {
        Document { schema: SCHEMA, program: env!("CARGO_PKG_VERSION"), plan: Some(plan), memlock, run: None }
    }

    /// Makes the form that the state directory contains.
    pub(crate) fn of_run(self, run: &'a Run) -> Document<'a> {
        Document { run: Some(run), ..self }
    }

    /// Makes the form that contains only the start.
    pub(crate) fn without_plan(self) -> Document<'a> {
        Document { plan: None, ..self }
    }
}

/// Returns whether a level shows findings of this severity.
pub(crate) fn shows(level: Level, severity: Severity) -> bool {
    match severity {
        Severity::Error => true,
        Severity::Warning => level >= Level::Warn,
        Severity::Info => level >= Level::Info,
    }
}
