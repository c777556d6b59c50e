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
    has_flags: bool,
) -> anyhow::Result<()> {
    // Who asks for another profile wants to know what that would come to.
    let state = match &host.facts {
        None if !has_flags => kept(config)?,
        _ => None,
    };
    let filled = match state {
        Some(filled) => filled,
        None => {
            let super::Decision { plan, .. } = super::decide(host, config, environment)?;
            plan.filled().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        }
    };
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

/// What the container was started with.
fn kept(config: &Config) -> anyhow::Result<Option<IndexMap<String, String>>> {
    let profiles = host::profiles(config)?;
    let found = find(&config.state_dir, |name| profiles.may_fill(name));
    Ok(found.ok().map(|found| found.run.filled))
}
