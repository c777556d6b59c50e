//! `rdma-init inspect`: what the container has.

use std::io::Write;

use crate::cli::Host;
use crate::config::Config;
use crate::facts::document::Document;
use crate::facts::environment::Environment;
use crate::json;
use crate::{host, report};

pub fn run(
    out: &mut impl Write,
    host: &Host,
    json: bool,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let mut facts = super::facts(host, &host::profiles(config)?, config, environment)?;
    if json {
        if host.facts.is_none() {
            // For a self-test elsewhere, with --facts.
            host::add_extra(&mut facts);
        }
        json::write(out, &Document::new(&facts))?;
    } else {
        report::facts::write(out, &facts)?;
    }
    Ok(())
}
