//! Implements `rdma-init inspect`: prints the facts of the container.

use std::io::Write;

use crate::config::Config;
use crate::facts::Facts;
use crate::facts::document::Document;
use crate::facts::environment::Environment;
use crate::json;
use crate::pipeline::read;
use crate::report;

pub(super) fn run(
    out: &mut impl Write,
    captured: Option<&Facts>,
    json: bool,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let mut facts = super::facts(captured, &super::profiles(config)?, config, environment);
    if json {
        if captured.is_none() {
            // A self-test on another host reads these facts with --facts.
            read::add_extra(&mut facts);
            facts.configuration = Some(config.captured());
        }
        json::write(out, &Document::new(&facts))?;
    } else {
        report::facts::write(out, &facts)?;
    }
    Ok(())
}
