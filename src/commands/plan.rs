//! Implements `rdma-init plan`: shows what would be set, and why.

use std::io::Write;

use crate::config::{Config, Demand};
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::findings::memlock;
use crate::json;
use crate::log::Level;
use crate::report::plan::{Detail, Document, Memlock, write, write_at};
use crate::report::topology;

pub(super) enum PlanFormat {
    Text(Detail),
    /// Only what is wrong.
    Quiet,
    Json,
}

pub(super) fn run(
    out: &mut impl Write,
    captured: Option<&Facts>,
    form: PlanFormat,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<()> {
    let super::PlannedHost { facts, mut plan, .. } = super::decide(captured, config, environment)?;
    let mut memlock = None;
    if config.memlock != Demand::Off
        && plan.fabric.pins_memory()
        && let Some(before) = facts.limits.memlock
    {
        // The limit to which a start would raise it; this is computed, not tried.
        let after = memlock::raised(before, &facts.process);
        let pinning = memlock::pinning(after, &facts.process);
        plan.findings.extend(memlock::finding(pinning, &facts));
        memlock = Some(Memlock { before, after, pinning });
    }
    match form {
        PlanFormat::Json => {
            json::write(out, &Document::new(&plan, memlock.as_ref()))?;
        }
        PlanFormat::Quiet => write_at(out, &plan, memlock.as_ref(), Detail::Compact, Level::Warn)?,
        PlanFormat::Text(detail) => {
            write(out, &plan, memlock.as_ref(), detail)?;
            if detail == Detail::Full {
                let used = plan.ports.iter().filter(|port| port.used);
                let used: Vec<&str> = used.map(|port| port.hca.as_str()).collect();
                topology::write(out, &facts, Some(&used))?;
            }
        }
    }
    Ok(())
}
