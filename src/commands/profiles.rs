//! `rdma-init profiles`: lists the profiles, or shows one.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;

use super::PlannedHost;
use crate::config::Config;
use crate::facts::environment::Environment;
use crate::json;
use crate::pipeline::read;
use crate::plan::evidence::{self, Held, Table};
use crate::profiles::Profile;

pub(super) fn run(
    out: &mut impl Write,
    name: Option<&str>,
    json: bool,
    config: &Config,
) -> anyhow::Result<()> {
    let profiles = read::profiles(config)?;
    let Some(name) = name else {
        if json {
            return write_json(out, profiles.iter().collect());
        }
        let width = profiles.names().map(str::len).max().unwrap_or_default();
        for profile in profiles.iter() {
            writeln!(out, "{:width$}  {}", profile.name, profile.title)?;
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

/// Returns whether each profile fits this host or the captured one: which of its conditions hold, and which
/// do not.
pub(super) fn why(
    out: &mut impl Write,
    host: &crate::cli::Host,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let PlannedHost { profiles, facts, plan } = super::decide(host, config, environment)?;
    let chosen = plan.profile.as_ref().map(|choice| choice.name.as_str());
    for fit in evidence::fits_of(&facts, &profiles) {
        let is_chosen = chosen == Some(&*fit.name);
        let verdict = match (&fit.tables[..], is_chosen) {
            (_, true) => "chosen".to_owned(),
            ([], false) => "chosen by name only".to_owned(),
            (tables, false) if tables.iter().any(Table::holds) => {
                format!(
                    "fits, but {} has a higher priority or comes first",
                    chosen.unwrap_or("another profile")
                )
            }
            _ => "does not fit".to_owned(),
        };
        writeln!(out, "{} (priority {}): {verdict}", fit.name, fit.priority)?;
        for (number, table) in fit.tables.iter().enumerate() {
            let heading = if number == 0 { "if" } else { "or" };
            for (line, condition) in table.conditions.iter().enumerate() {
                let heading = if line == 0 { heading } else { "" };
                let found = match &condition.held {
                    Held::By(sign) => format!("yes: {sign}"),
                    Held::ByAbsence => "yes".to_owned(),
                    Held::No => "no".to_owned(),
                };
                writeln!(out, "  {heading:2} {}: {found}", condition.asked)?;
            }
        }
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
