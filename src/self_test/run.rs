//! A self-test up to a given level.

use std::time::{Duration, Instant};

use super::check::Check;
use super::evidence::{of_roce, rails, used};
use super::kinds::{KINDS, Level};
use super::report::Report;
use super::took_us;
use super::{isolate, kinds, known, verbs};
use crate::config::SELF_TEST_TIME;
use crate::fabric::own_slots;
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::predict::{GidUse, Transport};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::Plan;
use crate::verbs::port_test::{DEFAULT_SIZE, DEFAULT_TIME, Marks, PortTest};

/// How far a self-test goes.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    pub level: Level,
    /// The number of bytes to register with each device.
    pub size: u64,
    /// The longest time for a port.
    pub each: Duration,
}

impl Scope {
    /// Creates a scope. `each` is limited, because a clock cannot hold every time.
    pub fn new(level: Level, size: u64, each: Duration) -> Scope {
        Scope { level, size, each: each.min(isolate::LONGEST) }
    }

    /// Returns the longest time for all ports together.
    pub fn longest(&self) -> Duration {
        SELF_TEST_TIME.max(self.each)
    }
}

impl Default for Scope {
    fn default() -> Scope {
        Scope { level: Level::Verbs, size: DEFAULT_SIZE, each: DEFAULT_TIME }
    }
}

/// Tests this host and reports under this name. The process must be single-threaded.
pub(crate) fn report(
    host: &str,
    facts: &Facts,
    plan: &Plan,
    extent: Scope,
    is_wanted: impl Fn(&str) -> bool,
) -> Report {
    let started = Instant::now();
    let mut report = known::report(host, facts, plan, &is_wanted);
    let mut of_verbs = KINDS.iter().filter(|kind| kind.level == Level::Verbs);
    if extent.level >= Level::Verbs && of_verbs.any(|kind| is_wanted(kind.id)) {
        let found = of_devices(facts, plan, extent).into_iter();
        report.checks.extend(found.filter(|check| is_wanted(&check.id)));
    }
    kinds::complete_fixes(&mut report.checks);
    report.passed = known::passed(&report.checks);
    report.took_us = took_us(started);
    report
}

fn of_devices(facts: &Facts, plan: &Plan, extent: Scope) -> Vec<Check> {
    let wanted = wanted(facts, plan, extent);
    if wanted.is_empty() {
        let why = "no port is in use";
        return KINDS
            .iter()
            .filter(|kind| kind.level == Level::Verbs)
            .map(|kind| kind.skipped(why))
            .collect();
    }
    let results = isolate::probe(&wanted, extent.each, extent.longest());
    wanted.iter().zip(&results).flat_map(|(wanted, result)| verbs::checks(wanted, result)).collect()
}

/// Returns the ports that the job uses, each with the GID index that NCCL will use or, if that is
/// unknown, with the index of the container's own GID.
pub(crate) fn wanted(facts: &Facts, plan: &Plan, extent: Scope) -> Vec<PortTest> {
    let rails: Vec<_> = rails(facts, plan).collect();
    let marks = marks(facts, plan);
    let of = |(hca, port): (&Hca, &Port)| {
        let gid_index = match port.link_layer {
            LinkLayer::Ethernet => planned_slot(plan, hca, port)
                .or_else(|| own_slots(facts, port).first().map(|gid| i64::from(gid.index)))
                .and_then(|index| u8::try_from(index).ok()),
            _ => None,
        };
        let rail = rails.iter().find(|(rail, _, _)| rail.name == hca.name);
        let allowed_mtu = rail.and_then(|(_, _, mtu)| *mtu).and_then(of_roce);
        // No device has a port 0, and the probe will report that.
        let port = u8::try_from(port.number).unwrap_or(0);
        PortTest {
            device: hca.name.clone(),
            port,
            gid_index,
            size: extent.size,
            each: extent.each,
            allowed_mtu,
            marks,
            driver: hca.driver.clone(),
            cma_outside_areas: facts.memory.cma_outside_areas,
        }
    };
    used(facts, plan).map(of).collect()
}

/// Returns the attributes that NCCL will give its queue pairs, according to the plan and the user's own
/// variables (`ncclIbInitQp`, `ncclIbRtrQp`).
fn marks(facts: &Facts, plan: &Plan) -> Marks {
    let version = plan.nccl.unwrap_or(NEWEST);
    let number = |name: &str| {
        let of_user = || facts.settings.get(name).map(|setting| setting.value.as_str());
        let number = plan.value(name).or_else(of_user).and_then(|text| integer(text, version));
        // Newer versions use -1 for a value that is not set.
        number.filter(|number| *number != -1).unwrap_or_default()
    };
    // NCCL cuts the values to the width of the queue pair's fields as well.
    Marks {
        pkey_index: number("NCCL_IB_PKEY") as u16,
        service_level: number("NCCL_IB_SL") as u8,
        traffic_class: number("NCCL_IB_TC") as u8,
    }
}

fn planned_slot(plan: &Plan, hca: &Hca, port: &Port) -> Option<i64> {
    let transport = &plan.forecasts.last()?.prediction.transport;
    let transport = match transport {
        Transport::Plugin { otherwise, .. } => otherwise,
        other => other,
    };
    let Transport::Verbs(ports) = transport else { return None };
    let planned = ports.iter().find(|known| known.hca == hca.name && known.port == port.number)?;
    match planned.gid {
        Some(GidUse::Slot { index, .. }) => Some(index),
        Some(GidUse::Fails(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::settings::{Settings, UserSetting};
    use crate::finding::Source;
    use crate::self_test::evidence::tests::host;

    #[test]
    fn queue_pairs_get_what_those_of_nccl_get() {
        let (mut facts, plan) = host(1, 1);
        let mut of = |variables: &[(&str, &str)]| {
            let setting = |(name, value): &(&str, &str)| UserSetting::new(name, value, Source::Environment);
            facts.settings = Settings(variables.iter().map(setting).collect());
            wanted(&facts, &plan, Scope::default()).remove(0).marks
        };
        assert_eq!(of(&[]), Marks::default());
        let all = of(&[("NCCL_IB_PKEY", "0x2"), ("NCCL_IB_SL", "3"), ("NCCL_IB_TC", "106")]);
        assert_eq!(all, Marks { pkey_index: 2, service_level: 3, traffic_class: 106 });
        assert_eq!(of(&[("NCCL_IB_TC", "-1")]), Marks::default());
    }
}
