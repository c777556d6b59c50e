//! Implements `rdma-init inspect`: prints the facts of the container.

use std::io::Write;

use crate::cli::Host;
use crate::config::Config;
use crate::facts::document::Document;
use crate::facts::environment::Environment;
use crate::json;
use crate::pipeline::read;
use crate::report;

pub(super) fn run(
    out: &mut impl Write,
    host: &Host,
    json: bool,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let mut facts = super::facts(host, &super::profiles(config)?, config, environment)?;
    if json {
        if host.facts.is_none() {
            // A self-test on another host reads these facts with --facts.
            read::add_extra(&mut facts);
        }
        json::write(out, &Document::new(&facts))?;
    } else {
        report::facts::write(out, &facts)?;
    }
    Ok(())
}
