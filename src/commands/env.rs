//! `rdma-init env`: the variables, for other programs to read.

use std::io::Write;

use crate::cli::{EnvFormat, Host};
use crate::config::Config;
use crate::facts::settings::Environment;
use crate::report;
use crate::report::log::say;

pub fn run(
    out: &mut impl Write,
    host: &Host,
    format: EnvFormat,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let super::Decision { plan, .. } = super::decide(host, config, environment)?;
    let variables: Vec<(&str, &str)> = plan.filled().collect();
    let left_out = report::environment::write(out, &variables, format)?;
    if !left_out.is_empty() {
        say(&format!(
            "left out, because this format cannot hold their values (a line break, or too long): {}",
            left_out.join(", ")
        ));
    }
    Ok(())
}
