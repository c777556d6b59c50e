//! `rdma-init env`: the variables, for other programs to read.

use std::io::Write;

use indexmap::IndexMap;

use crate::cli::{EnvFormat, Host};
use crate::config::Config;
use crate::facts::settings::Environment;
use crate::host;
use crate::report;
use crate::report::log::say;
use crate::state::find::find;

pub fn run(
    out: &mut impl Write,
    host: &Host,
    format: EnvFormat,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let filled = filled(host, config, environment)?;
    let variables: Vec<(&str, &str)> =
        filled.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let left_out = report::environment::write(out, &variables, format)?;
    if !left_out.is_empty() {
        say(&format!(
            "left out, because this format cannot hold their values (a line break, or too long): {}",
            left_out.join(", ")
        ));
    }
    Ok(())
}

/// What the container was started with, else what it would be.
fn filled(
    host: &Host,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<IndexMap<String, String>> {
    let profiles = host::profiles(config)?;
    let state = match host.facts {
        None => find(&config.state_dir, |name| profiles.may_fill(name)).ok(),
        Some(_) => None,
    };
    if let Some(state) = state {
        return Ok(state.run.filled);
    }
    let super::Decision { plan, .. } = super::decide(host, config, environment)?;
    Ok(plan.filled().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
