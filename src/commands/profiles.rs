//! Implements `rdma-init profiles`: lists the profiles, or shows one.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;

use super::PlannedHost;
use crate::config::Config;
use crate::facts::environment::Environment;
use crate::facts::secret::shown;
use crate::json;
use crate::pipeline::read;
use crate::plan::ProfileChoice;
use crate::plan::evidence::{self, Fit, Held, Table};
use crate::plan::profile::{PlatformValue, platform_values};
use crate::profiles::{Only, Profile, range_of};
use crate::text::visible;

pub(super) fn run(
    out: &mut impl Write,
    name: Option<&str>,
    json: bool,
    config: &Config,
) -> anyhow::Result<()> {
    let profiles = super::profiles(config)?;
    let Some(name) = name else {
        if json {
            return write_json(out, profiles.iter().collect());
        }
        let width = profiles.names().map(str::len).max().unwrap_or_default();
        for profile in profiles.iter() {
            writeln!(out, "{:width$}  {}", visible(&profile.name), visible(&profile.title))?;
        }
        return Ok(());
    };
    let Some(profile) = profiles.get(name) else {
        bail!("there is no profile {name:?}; {}", read::advice_on_profile(name, &profiles, &[]));
    };
    if json {
        write_json(out, vec![profile])
    } else {
        write!(out, "{}", toml::to_string(profile)?)?;
        Ok(())
    }
}

/// Writes whether each profile matches this host or the captured one, and which of its conditions hold.
pub(super) fn why(
    out: &mut impl Write,
    host: &crate::cli::Host,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let PlannedHost { profiles, facts, plan } = super::decide(host, config, environment)?;
    for fit in evidence::fits_of(&facts, &profiles) {
        writeln!(
            out,
            "{} (priority {}): {}",
            visible(&fit.profile.name),
            fit.profile.priority,
            verdict(&fit, plan.profile.as_ref())
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
    let all = only.variables.iter().map(|(name, value)| format!("{name}={}", shown(name, value)));
    format!("only {}", all.collect::<Vec<String>>().join(" "))
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
        let found = match &condition.held {
            Held::By(sign) => format!("yes: {sign}"),
            Held::ByAbsence => "yes".to_owned(),
            Held::No => "no".to_owned(),
        };
        writeln!(out, "{heading:width$} {}: {found}", condition.asked)?;
    }
    Ok(())
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
