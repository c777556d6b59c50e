//! `rdma-init inspect`: what the container has.

use std::io::Write;

use crate::config::Config;
use crate::facts::document::Document;
use crate::facts::settings::Environment;
use crate::json;
use crate::{host, report};

pub fn run(
    out: &mut impl Write,
    json: bool,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let profiles = host::profiles(config)?;
    let filled = host::filled_at_start(config, &profiles, environment);
    let mut facts = host::live_facts(&profiles, environment, &filled);
    if json {
        // For a self-test elsewhere, with --facts.
        host::add_extra(&mut facts);
        json::write(out, &Document::new(&facts))?;
    } else {
        report::facts::write(out, &facts)?;
    }
    Ok(())
}
