//! Writes what a start reports on standard error, as text or as log events: the decision, the outcome of a
//! self-test, and at the end the RDMA traffic.

use std::io::Write;
use std::time::SystemTime;

use serde::Serialize;

use super::account::{self, Document, When};
use super::forecast;
use super::plan::{self, Detail, Memlock};
use super::self_test;
use crate::finding::{About, Finding, Phase, Severity};
use crate::log::{Format, Level, Log};
use crate::plan::{EnvPlugin, Fabric, Plan, SettingOutcome};
use crate::self_test::report::Report;
use crate::text::time_of_day;
use crate::watch::account::Account;

/// Reports the decision and the findings. Of a decision that is the same as that of the container's start, as in each
/// worker of a job, only the errors are repeated.
pub(crate) fn plan(log: &Log, plan: &Plan, memlock: Option<&Memlock>) {
    let is_repeated = plan.is_of_start();
    match log.format() {
        Format::Json => events(log, plan, memlock, is_repeated),
        Format::Text if is_repeated => log.put(|out| {
            if log.level() >= Level::Info {
                plan::write_headline(out, plan, ", as this container's start decided")?;
            }
            let is_error = |finding: &&Finding| finding.severity == Severity::Error;
            plan::write_findings(out, plan.findings.iter().filter(is_error), Detail::Start)
        }),
        Format::Text => log.put(|out| plan::write_at(out, plan, memlock, Detail::Start, log.level())),
    }
}

/// Reports the outcome of a self-test, after its plan was shown.
pub(crate) fn self_test(log: &Log, report: &Report) {
    match log.format() {
        Format::Json => self_test::events(report),
        Format::Text => log.put(|out| self_test::write_brief(out, report, log.level())),
    }
}

/// The account at the end of the job, and what is wrong with it. `is_cut_short`: the command failed, or was stopped.
pub(crate) fn account(log: &Log, account: &Account, is_cut_short: bool) {
    let findings = account.findings(is_cut_short);
    let has_lines = log.level() >= Level::Info;
    match log.format() {
        Format::Json => {
            if has_lines && !account.rails.is_empty() {
                let document = Document::new(account, When::AtEnd);
                let level = if account.is_broken() { Level::Warn } else { Level::Info };
                log.object(level, &AccountEvent { event: "account", account: document });
            }
            // The watcher has given this event before.
            let is_repeated = |finding: &&Finding| has_lines && account.was_said(finding);
            let new = findings.iter().filter(|finding| !is_repeated(finding));
            new.for_each(|finding| event(log, finding, Phase::End));
        }
        Format::Text => log.put(|out| {
            if has_lines {
                write_lines(out, account, &findings)?;
            }
            // No finding repeats what the lines of the rails say.
            let mut apart = findings.iter().filter(|finding| {
                !(has_lines && Account::lines_have(finding)) && plan::shows(log.level(), finding.severity)
            });
            apart.try_for_each(|finding| write_alone(out, finding, Phase::End))
        }),
    }
}

/// Writes the account, with the fixes that the watcher has not given below the rails that they are for. Rails one below
/// the other that have the same fixes share them.
fn write_lines(out: &mut Vec<u8>, account: &Account, findings: &[Finding]) -> std::io::Result<()> {
    let lines = account::lines_of_rails(account, When::AtEnd, findings).into_iter();
    let mut lines = lines.map(|(line, rail)| (line, rail.map(|rail| rail.fixes(findings)))).peekable();
    while let Some((line, fixes)) = lines.next() {
        writeln!(out, "rdma-init: {line}.")?;
        if lines.peek().is_none_or(|(_, next)| *next != fixes) {
            fixes.into_iter().flatten().try_for_each(|fix| write_fix(out, fix))?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct AccountEvent {
    event: &'static str,
    #[serde(flatten)]
    account: Document,
}

/// A finding that is made after the decision was reported.
pub(crate) fn finding(log: &Log, finding: &Finding, phase: Phase) {
    match log.format() {
        _ if !plan::shows(log.level(), finding.severity) => {}
        Format::Json => event(log, finding, phase),
        Format::Text => log.put(|out| write_alone(out, finding, phase)),
    }
}

/// Writes a finding with the time of day, if it is one of a job that runs for long.
fn write_alone(out: &mut Vec<u8>, finding: &Finding, phase: Phase) -> std::io::Result<()> {
    let severity = finding.severity.as_str();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match phase {
        Phase::Run => {
            writeln!(out, "rdma-init: {severity}: {} UTC: {}", time_of_day(since_1970), finding.message)?;
        }
        Phase::Start | Phase::End => writeln!(out, "rdma-init: {severity}: {}", finding.message)?,
    }
    finding.fix.iter().try_for_each(|fix| write_fix(out, fix))
}

fn write_fix(out: &mut Vec<u8>, fix: &str) -> std::io::Result<()> {
    writeln!(out, "      fix: {fix}")
}

fn events(log: &Log, plan: &Plan, memlock: Option<&Memlock>, is_repeated: bool) {
    let profile = plan.profile.as_ref().map(|choice| choice.name.as_str());
    let used = plan.ports.iter().filter(|port| port.used).count();
    let (fabric, why_none) = match &plan.fabric {
        Fabric::Verbs => ("verbs", None),
        Fabric::Interface(_) => ("interface", None),
        Fabric::Plugin(_) | Fabric::PluginOverInterfaces(_) => ("plugin", None),
        Fabric::None(why) => ("none", Some(why.to_string())),
    };
    tracing::info!(
        event = "plan",
        fabric,
        why_none,
        profile,
        ports_used = used,
        ports = plan.ports.len(),
        "decided"
    );
    if is_repeated {
        let errors = plan.findings.iter().filter(|finding| finding.severity == Severity::Error);
        return errors.for_each(|finding| event(log, finding, Phase::Start));
    }
    for port in &plan.ports {
        tracing::info!(
            event = "port",
            hca = port.hca,
            port = port.port,
            used = port.used,
            reason = port.reason,
            rate = port.rate,
            "port"
        );
    }
    for setting in &plan.settings {
        let outcome = match setting.outcome {
            SettingOutcome::Filled => "filled",
            SettingOutcome::User => "user",
            SettingOutcome::Left => "left",
            SettingOutcome::Unset => "unset",
        };
        tracing::info!(
            event = "variable",
            variable = setting.variable,
            value = setting.value,
            outcome,
            source = %setting.source,
            rule = setting.rule.clone(),
            "variable"
        );
    }
    for (release, what) in forecast::lines(plan) {
        tracing::info!(event = "forecast", release, what, "forecast");
    }
    if plan.env_plugin == EnvPlugin::Used {
        tracing::info!(event = "env-plugin", what = forecast::asks_ours(plan), "env plugin");
    }
    if let Some(memlock) = memlock {
        let [before, after] = [memlock.before, memlock.after].map(|limit| plan::limit(limit.soft));
        tracing::info!(event = "memlock", before, after, pinning = memlock.pinning.word(), "memlock");
    }
    plan.findings.iter().for_each(|finding| event(log, finding, Phase::Start));
}

#[derive(Serialize)]
struct FindingEvent<'a> {
    message: &'a str,
    event: &'static str,
    id: &'static str,
    phase: Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
    #[serde(skip_serializing_if = "About::is_empty")]
    about: &'a About,
}

fn event(log: &Log, finding: &Finding, phase: Phase) {
    let Finding { id, severity, message, fix, about, .. } = finding;
    let level = match severity {
        Severity::Error => Level::Error,
        Severity::Warning => Level::Warn,
        Severity::Info => Level::Info,
    };
    if plan::shows(log.level(), *severity) {
        let (id, fix) = (id.name(), fix.as_deref());
        log.object(level, &FindingEvent { message, event: "finding", id, phase, fix, about });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::facts::port_errors::{Rise, Trouble};
    use crate::findings::port_name::RailId;
    use crate::findings::traffic::Expected;
    use crate::watch::account::{Rail, Watched};

    #[test]
    fn each_rail_has_its_fix_below_its_line() {
        let rail = |number: u32, trouble, counter| {
            let rises = vec![Rise { trouble, counter, count: 1, is_least: false }];
            let mut rail = Rail { rises, ..Rail::default() };
            rail.track.rail = RailId::new(&format!("a_{number}"), 1);
            rail
        };
        let failed = |number| rail(number, Trouble::NoAnswer, "req_transport_retries_exceeded");
        let mut told = rail(4, Trouble::LinkDown, "link_downed");
        told.track.said.insert("link-down".to_owned());
        let account = Account {
            ran: Duration::from_secs(3600),
            rails: vec![rail(1, Trouble::LinkDown, "link_downed"), failed(2), failed(3), told],
            watched: Watched::Until(Duration::from_secs(3000)),
            beginning: Duration::from_secs(60),
            omitted: Vec::new(),
            rested: None,
            tells_rest_from: Duration::from_secs(600),
            expected: Expected::Traffic,
            pauses: (0, Duration::ZERO),
        };
        let mut out = Vec::new();
        write_lines(&mut out, &account, &account.findings(false)).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().map(|line| line.get(..22).unwrap()).collect();
        assert_eq!(
            lines,
            [
                "rdma-init: a_1: its li",
                "      fix: Check the c",
                "rdma-init: a_2: 1 queu",
                "rdma-init: a_3: 1 queu",
                "      fix: Look in the",
                "rdma-init: a_4: its li",
                "rdma-init: The watcher",
            ],
            "{out}"
        );
    }
}
