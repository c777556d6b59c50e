//! Implements `rdma-init plan --why VARIABLE`: shows how the value of one variable was decided.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;

use crate::config::Config;
use crate::facts::Facts;
use crate::facts::environment::{Environment, is_variable_name};
use crate::json;
use crate::plan::Why;
use crate::report;
use crate::text::visible;

/// The document of `plan --why VARIABLE --json`.
#[derive(Serialize)]
struct WhyDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    why: &'a Why,
}

pub(super) fn run(
    out: &mut impl Write,
    captured: Option<&Facts>,
    variable: &str,
    json: bool,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    if !is_variable_name(variable) {
        bail!("{:?} is not the name of a variable", visible(variable));
    }
    let super::PlannedHost { profiles, facts, plan } = super::decide(captured, config, environment)?;
    let profile = plan.profile.as_ref().and_then(|choice| profiles.get(&choice.name));
    let why = Why::new(variable, &facts, profile, &config.plan_options(), &plan);
    if json {
        json::write(out, &WhyDocument { schema: "rdma-init/why/1", why: &why })?;
    } else {
        report::why::write(out, &why, &plan)?;
    }
    Ok(())
}
