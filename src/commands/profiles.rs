//! Implements `rdma-init profiles`: lists the profiles, or shows one.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;

use super::PlannedHost;
use crate::config::Config;
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::facts::platform::is_of_platform;
use crate::facts::secret::shown;
use crate::json;
use crate::pipeline::read;
use crate::plan::ProfileChoice;
use crate::plan::evidence::{self, Asked, CheckedCondition, Fit, Held, Table};
use crate::plan::profile::{PlatformValue, platform_values};
use crate::profiles::{Only, Profile, Profiles, range_of};
use crate::text::{WIDEST, visible};

pub(super) fn run(out: &mut impl Write, names: &[String], json: bool, config: &Config) -> anyhow::Result<()> {
    let profiles = super::profiles(config)?;
    let named = named(names, &profiles)?;
    if json {
        return write_json(out, if names.is_empty() { profiles.iter().collect() } else { named });
    }
    if names.is_empty() {
        let width = profiles.names().map(str::len).max().unwrap_or_default().min(WIDEST);
        for profile in profiles.iter() {
            writeln!(out, "{:width$}  {}", visible(&profile.name), visible(&profile.title))?;
        }
    }
    for (number, profile) in named.into_iter().enumerate() {
        let between = if number == 0 { "" } else { "\n" };
        write!(out, "{between}{}", toml::to_string(profile)?)?;
    }
    Ok(())
}

fn named<'p>(names: &[String], profiles: &'p Profiles) -> anyhow::Result<Vec<&'p Profile>> {
    let find = |name: &String| match profiles.get(name) {
        Some(profile) => Ok(profile),
        None => bail!("there is no profile {name:?}; {}", read::advice_on_profile(name, profiles, &[])),
    };
    names.iter().map(find).collect()
}

/// Writes whether each profile, or each of these, matches this host or the captured one, and which of its conditions
/// hold.
pub(super) fn why(
    out: &mut impl Write,
    names: &[String],
    captured: Option<&Facts>,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let PlannedHost { profiles, facts, plan } = super::decide(captured, config, environment)?;
    named(names, &profiles)?;
    let built_in = Profiles::load(None)?;
    let is_known = |asked: Asked| match asked {
        _ if captured.is_none() => true,
        Asked::File(path) | Asked::RegularFile(path) => built_in.files().contains(&path),
        Asked::Variable(pattern) => is_of_platform(pattern) || built_in.is_marker(pattern),
        _ => true,
    };
    let fits = evidence::fits_of(&facts, &profiles, is_known);
    let is_wanted = |fit: &&Fit| names.is_empty() || names.contains(&fit.profile.name);
    for fit in fits.iter().filter(is_wanted) {
        writeln!(
            out,
            "{} (priority {}): {}",
            visible(&fit.profile.name),
            fit.profile.priority,
            verdict(fit, plan.profile.as_ref())
        )?;
        for (number, table) in fit.tables.iter().enumerate() {
            write_table(out, table, if number == 0 { "  if" } else { "  or" })?;
        }
        for (only, table) in fit.profile.only.iter().zip(&fit.only) {
            writeln!(out, "  {}", constants(only))?;
            write_table(out, table, "    if")?;
        }
        for value in platform_values(fit.profile, &facts) {
            writeln!(out, "  {}", of_platform(&value))?;
        }
    }
    Ok(())
}

fn verdict(fit: &Fit, chosen: Option<&ProfileChoice>) -> String {
    match chosen {
        Some(chosen) if chosen.name == fit.profile.name => "chosen".to_owned(),
        _ if fit.tables.is_empty() => "chosen by name only".to_owned(),
        _ if !fit.holds() => "does not fit".to_owned(),
        Some(chosen) if chosen.is_named() => format!("fits, but the configuration names {}", chosen.name),
        Some(chosen) if chosen.equals.contains(&fit.profile.name) => {
            format!("fits, but {} has the same priority, and comes first by name", chosen.name)
        }
        Some(chosen) => format!("fits, but {} has a higher priority", chosen.name),
        None => "fits, but the configuration wants no profile".to_owned(),
    }
}

/// Returns the constants that apply only on some hosts, as one line.
fn constants(only: &Only) -> String {
    let all = only.variables.iter().map(|(name, value)| format!("{name} = {:?}", shown(name, value)));
    format!("only {}", all.collect::<Vec<String>>().join(", "))
}

/// Returns where a variable's value comes from on this host, and whether it can be right, as one line.
fn of_platform(value: &PlatformValue) -> String {
    let PlatformValue { variable, source, found } = value;
    let Some((text, checked)) = found else {
        return format!("{variable} from {source}: not set here");
    };
    let checked = match (checked, range_of(variable)) {
        (Ok(()), Some(range)) => format!("yes: in its range, {range}"),
        (Ok(()), None) => "yes: any text is possible".to_owned(),
        (Err(wrong), _) => format!("no: the value {wrong}"),
    };
    format!("{variable} from {source}={}: {checked}", visible(shown(source, text)))
}

fn write_table(out: &mut impl Write, table: &Table, heading: &str) -> std::io::Result<()> {
    for (line, condition) in table.conditions.iter().enumerate() {
        let width = heading.len();
        let heading = if line == 0 { heading } else { "" };
        writeln!(out, "{heading:width$} {}: {}", condition.asked, result(condition))?;
    }
    Ok(())
}

/// Facts have the files and variables that the profiles of the capture asked for, and not which ones these were.
const UNASKED: &str = "the facts were captured without this profile (inspect --json --profile-dir DIR)";

/// Returns whether a condition holds, and what shows that.
fn result(condition: &CheckedCondition) -> String {
    let CheckedCondition { held, unwanted, may_be_unasked, .. } = condition;
    match held {
        Held::By(sign) => format!("yes: {sign}"),
        Held::No if *may_be_unasked => format!("no, or {UNASKED}"),
        Held::No if unwanted.is_empty() => "no".to_owned(),
        Held::No => format!("no: {}", all_of(unwanted.iter().map(present))),
        Held::ByAbsence => {
            let absent = unwanted.iter().filter(|condition| condition.held == Held::No);
            let unasked = unwanted.iter().any(|condition| condition.may_be_unasked);
            match unwanted.len() {
                _ if unasked => format!("yes, unless {UNASKED}"),
                // The condition itself is on the line.
                0 | 1 => "yes".to_owned(),
                _ => format!("yes: without {}", all_of(absent.map(|condition| condition.asked.clone()))),
            }
        }
    }
}

/// Returns what shows that an unwanted condition holds.
fn present(condition: &CheckedCondition) -> String {
    match &condition.held {
        Held::By(sign) => sign.clone(),
        Held::ByAbsence | Held::No => format!("{} holds", condition.asked),
    }
}

fn all_of(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<String>>().join(", ")
}

#[derive(Serialize)]
struct ProfilesDocument<'a> {
    schema: &'static str,
    profiles: Vec<&'a Profile>,
}

fn write_json(out: &mut impl Write, profiles: Vec<&Profile>) -> anyhow::Result<()> {
    let document = ProfilesDocument { schema: "rdma-init/profiles/1", profiles };
    json::write(out, &document)?;
    Ok(())
}
