//! Output of `rdma-init plan --why VARIABLE`, for people.

use std::io::{self, Write};

use super::forecast;
use super::plan::{Detail, write_findings};
use crate::plan::{Plan, SettingOutcome, Why};
use crate::text::visible;

/// Writes the chain of reasons.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, why: &Why, plan: &Plan) -> io::Result<()> {
    if !why.concerns {
        writeln!(
            out,
            "{} is not a variable of NCCL, of another library that rdma-init knows, of this profile or of the configuration: rdma-init does not set it{}",
            visible(&why.variable),
            why.meant.as_ref().map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
        )?;
        return findings(out, why);
    }
    writeln!(out, "{}", visible(&headline(why)))?;
    let mut section = |title: &str, lines: Vec<String>| -> io::Result<()> {
        if !lines.is_empty() {
            writeln!(out, "{title}")?;
        }
        lines.iter().try_for_each(|line| writeln!(out, "  {}", visible(line)))
    };
    section("where it is set", set_in(why))?;
    section("what is published", why.published.clone())?;
    let tried = why.tried.iter().enumerate();
    section(
        "rules that were tried",
        tried.map(|(number, (rule, result))| format!("{}. {rule}: {result}", number + 1)).collect(),
    )?;
    if let Some(setting) = &why.setting {
        section("what decided", vec![format!("{} ({})", setting.rule, setting.source)])?;
        section("evidence", setting.evidence.clone())?;
    }
    let mut nccl: Vec<String> = why.known.iter().cloned().collect();
    let lines = |forecasts: &[_], plan: &Plan| -> Vec<(String, String)> {
        forecast::lines(&Plan { forecasts: forecasts.to_vec(), ..plan.clone() })
    };
    let of = |whom: &str| if whom == forecast::ANY { format!("of {whom}") } else { whom.to_owned() };
    let library = plan.library;
    let as_it_is = lines(&why.forecasts, plan);
    nccl.extend(as_it_is.iter().map(|(whom, what)| format!("{library} {} will {what}", of(whom))));
    // The errors apply to the plan as it is, not to the plan without the variable.
    let without = lines(&why.without, &Plan { findings: Vec::new(), ..plan.clone() });
    nccl.extend(
        without.iter().map(|(whom, what)| format!("without it, {library} {} would {what}", of(whom))),
    );
    let beside = why.library.iter();
    let said =
        beside.filter_map(|outlook| Some(format!("{} will {}", outlook.title, outlook.will.as_ref()?)));
    section(&format!("what {library} does"), if why.library.is_some() { Vec::new() } else { nccl })?;
    section("what the library does", said.collect())?;
    section("what a process here gets", why.process.clone())?;
    findings(out, why)
}

fn findings(out: &mut impl Write, why: &Why) -> io::Result<()> {
    if !why.findings.is_empty() {
        writeln!(out, "findings")?;
    }
    write_findings(out, why.findings.iter(), Detail::Full)
}

fn headline(why: &Why) -> String {
    let variable = &why.variable;
    let Some(setting) = &why.setting else {
        return match why.set_in.first() {
            Some(own) => format!("{variable}={}, set by you and unchanged", own.value),
            None => format!("{variable} stays unset: nothing requests it"),
        };
    };
    match (&setting.value, setting.outcome) {
        (Some(value), SettingOutcome::Filled) if setting.at_start => {
            format!("{variable}={value}, filled in by rdma-init when this container started")
        }
        (Some(value), SettingOutcome::Filled) => format!("{variable}={value}, filled in by rdma-init"),
        (Some(value), _) => format!("{variable}={value}, set by you and unchanged"),
        (None, _) => format!("{variable} stays unset"),
    }
}

fn set_in(why: &Why) -> Vec<String> {
    if why.set_in.is_empty() {
        return vec!["nowhere: not in the environment, the configuration, or a conf file of NCCL".to_owned()];
    }
    let first = why.set_in.iter().enumerate();
    first
        .map(|(index, setting)| {
            let counts = if index == 0 { "" } else { " (ignored)" };
            format!("{}: {:?}{counts}", setting.origin, setting.value)
        })
        .collect()
}
