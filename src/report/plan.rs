//! The decision, for people: the block at start-up, and `rdma-init plan`.

use std::io::{self, Write};

use serde::Serialize;

use super::forecast;
use crate::facts::limits::{Amount, Limit};
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Severity};
use crate::findings::memlock::{Pinning, amount};
use crate::libraries::nccl::predict::Transport;
use crate::plan::{Fabric, Outcome, Plan, PortVerdict, SCHEMA, Setting};
use crate::state::run::Run;
use crate::text::{condensed, counted, grouped, shortened, visible};

/// What was done about pinned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memlock {
    pub before: Limit,
    pub after: Limit,
    pub pinning: Pinning,
}

/// How much to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// One line for each thing.
    Compact,
    /// With the evidence.
    Full,
}

/// Writes the block.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut impl Write, plan: &Plan, memlock: Option<&Memlock>, detail: Detail) -> io::Result<()> {
    write_headline(out, plan)?;
    let ports = groups(&plan.ports);
    let names = plan.settings.iter().map(|setting| setting.variable.len());
    let width =
        names.chain(ports.iter().map(|group| group.names.len())).max().unwrap_or_default().min(WIDEST);
    for group in &ports {
        let verdict = if group.used { "use" } else { "skip" };
        writeln!(out, "  {verdict:5}  {:width$}  {}", visible(&group.names), visible(&group.text))?;
    }
    for (index, setting) in plan.settings.iter().enumerate() {
        // One line for each library beside NCCL.
        let library = |setting: &Setting| setting.rule.library();
        let is_of_same = |other: &&Setting| library(setting).is_some() && library(other) == library(setting);
        let before = plan.settings[..index].iter().find(is_of_same);
        if detail == Detail::Compact && before.is_some() {
            continue;
        }
        let after = plan.settings[index + 1..].iter().filter(is_of_same);
        let also: Vec<&Setting> = after.filter(|_| detail == Detail::Compact).collect();
        write_setting(out, setting, &also, width)?;
        if detail == Detail::Full {
            for evidence in &setting.evidence {
                writeln!(out, "  {:5}  {:width$}  {}", "", "", visible(&evidence.to_string()))?;
            }
        }
    }
    for (whom, what) in forecast::lines(plan) {
        writeln!(out, "  {:5}  {:width$}  will {}", plan.library(), whom, visible(&what))?;
    }
    if let Some(memlock) = memlock {
        writeln!(out, "  {:5}  {:width$}  {}", "limit", "memlock", memlock_line(memlock))?;
    }
    write_findings(out, plan.findings.iter())
}

/// Writes the first line: who speaks, and what was decided.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_headline(out: &mut impl Write, plan: &Plan) -> io::Result<()> {
    writeln!(out, "rdma-init {}: {}", env!("CARGO_PKG_VERSION"), visible(&headline(plan)))
}

/// Writes findings, the fix below each.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_findings<'a>(
    out: &mut impl Write,
    findings: impl Iterator<Item = &'a Finding>,
) -> io::Result<()> {
    let mut findings: Vec<&Finding> = findings.collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in findings {
        writeln!(out, "  {}: {}", finding.severity.as_str(), visible(&finding.message))?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "      fix: {}", visible(fix))?;
        }
    }
    Ok(())
}

/// A column is not wider than this; a longer name pushes its line to the right.
const WIDEST: usize = 32;

/// `RoCE, 8 of 9 ports, profile generic-roce (usable HCAs of link layer Ethernet)`.
/// In one line.
pub fn headline(plan: &Plan) -> String {
    headline_because(plan, true)
}

/// The same without what the user's own values say.
pub fn public_headline(plan: &Plan) -> String {
    headline_because(plan, false)
}

fn headline_because(plan: &Plan, with_reason: bool) -> String {
    let fabric = match &plan.fabric {
        Fabric::Verbs => {
            let library = plan.library();
            let in_vain =
                if is_in_vain(plan) { format!(", but {library} will not use RDMA") } else { String::new() };
            format!("{}, {}{in_vain}", transports(&plan.ports), ports_used(&plan.ports))
        }
        Fabric::Interface(name) => format!("RDMA behind the interface {name}, without verbs"),
        Fabric::Plugin(_) => format!("RDMA through a net plugin, {}", ports_used(&plan.ports)),
        // The ports' own lines say why.
        Fabric::None(_) if !plan.ports.is_empty() => format!("no RDMA, {}", ports_used(&plan.ports)),
        Fabric::None(_) if !with_reason => "no RDMA".to_owned(),
        Fabric::None(why) => format!("no RDMA: {why}"),
    };
    match &plan.profile {
        None if plan.fabric.is_there() => format!("{fabric}, no profile, so rdma-init chooses nothing"),
        None => fabric,
        Some(choice) if choice.is_named() => format!("{fabric}, profile {} (by name)", choice.name),
        Some(choice) => format!("{fabric}, profile {} ({})", choice.name, choice.signs()),
    }
}

/// Whether NCCL does without the ports, whatever its release.
fn is_in_vain(plan: &Plan) -> bool {
    !plan.forecasts.is_empty()
        && plan.forecasts.iter().all(|forecast| {
            matches!(forecast.prediction.transport, Transport::Sockets { .. } | Transport::Fails(_))
        })
}

fn transports(ports: &[PortVerdict]) -> String {
    let used = |link_layer| ports.iter().any(|port| port.used && port.link_layer == link_layer);
    match (used(LinkLayer::InfiniBand), used(LinkLayer::Ethernet)) {
        (true, true) => "InfiniBand and RoCE",
        (true, false) => "InfiniBand",
        (false, _) => "RoCE",
    }
    .to_owned()
}

fn ports_used(ports: &[PortVerdict]) -> String {
    let all = counted(ports.len(), "port");
    match ports.iter().filter(|port| port.used).count() {
        used if used == ports.len() => all,
        used => format!("{used} of {all}"),
    }
}

/// Ports with the same rate and verdict, which share a line.
struct Group {
    used: bool,
    text: String,
    names: String,
}

fn groups(ports: &[PortVerdict]) -> Vec<Group> {
    let said = ports.iter().map(|port| {
        let text = match &port.reason {
            None => [String::from(port.link_layer.clone()), port.rate.clone()].join(", "),
            Some(reason) => reason.clone(),
        };
        ((port.used, text), port.name())
    });
    let groups = grouped(said).into_iter();
    groups.map(|((used, text), names)| Group { used, text, names: condensed(&names) }).collect()
}

/// `also` are others of the same library, which share its line.
fn write_setting(out: &mut impl Write, setting: &Setting, also: &[&Setting], width: usize) -> io::Result<()> {
    let verdict = match setting.outcome {
        Outcome::Filled => "set",
        Outcome::User => "yours",
        Outcome::Unset => "unset",
    };
    let value = match setting.value.as_deref() {
        Some("") => "(empty)".to_owned(),
        Some(value) if setting.outcome == Outcome::User => visible(&shortened(value)),
        value => visible(value.unwrap_or_default()),
    };
    let rule = setting.rule.to_string();
    let reason = match setting.outcome {
        Outcome::User => setting.source.to_string(),
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

/// `64 KiB`, or `unlimited`.
pub fn limit(soft: Amount) -> String {
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

/// `plan --json`.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    program: &'static str,
    /// `None` where not everybody may read what it was decided on.
    #[serde(flatten)]
    plan: Option<&'a Plan>,
    memlock: Option<&'a Memlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a Run>,
}

impl<'a> Document<'a> {
    pub fn new(plan: &'a Plan, memlock: Option<&'a Memlock>) -> Document<'a> {
        Document { schema: SCHEMA, program: env!("CARGO_PKG_VERSION"), plan: Some(plan), memlock, run: None }
    }

    /// As the state folder has it.
    pub fn of_run(self, run: &'a Run) -> Document<'a> {
        Document { run: Some(run), ..self }
    }

    /// With the start alone.
    pub fn without_plan(self) -> Document<'a> {
        Document { plan: None, ..self }
    }
}

/// Whether a level shows findings of this severity.
pub fn shows(level: crate::log::Level, severity: Severity) -> bool {
    use crate::log::Level;
    match severity {
        Severity::Error => true,
        Severity::Warning => level >= Level::Warn,
        Severity::Info => level >= Level::Info,
    }
}
