//! A report of the quick level.

use std::collections::BTreeMap;
use std::time::Instant;

use super::check::{Check, Outcome};
use super::evidence::{nvlink, rails, used};
use super::report::{Rail, Report, SCHEMA};
use super::took_us;
use super::{judge, kinds};
use crate::fabric::own_slots;
use crate::facts::Facts;
use crate::facts::dra::ClaimedDevice;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::facts::secret::shown;
use crate::libraries::nccl::variables;
use crate::libraries::{self, rccl};
use crate::plan::{Plan, Setting, SettingOutcome};

/// Judges the known facts about the host with this name.
pub fn report(host: &str, facts: &Facts, plan: &Plan, is_wanted: impl Fn(&str) -> bool) -> Report {
    let started = Instant::now();
    let mut checks = judge::quick(facts, plan, is_wanted);
    kinds::complete_fixes(&mut checks);
    let rails: Vec<_> = rails(facts, plan).collect();
    Report {
        schema: SCHEMA.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        host: host.to_owned(),
        passed: passed(&checks),
        took_us: took_us(started),
        hcas: used(facts, plan).map(|(hca, port)| rail(facts, &rails, hca, port)).collect(),
        nccl: plan.nccl.map(|version| version.to_string()),
        profile: plan.profile.as_ref().map(|choice| choice.name.clone()),
        nvlink: nvlink::of_node(facts, plan),
        nvlink_domain: facts.dra.iter().find_map(ClaimedDevice::nvlink_domain).map(str::to_owned),
        placement_group: facts.dra.iter().find_map(ClaimedDevice::placement_group).map(str::to_owned),
        filled: plan.filled().map(|(name, value)| (name.to_owned(), shown(name, value).to_owned())).collect(),
        set: set_by_user(plan),
        checks,
        pair: None,
    }
}

/// The most variables of the user in a report, and the longest value, in bytes: a message of a preflight has room for
/// so many.
const MOST_SET: usize = 256;
const LONGEST_SET: usize = 256;

/// Returns the variables that the user has set, so that another node on which rdma-init fills one of them in can be
/// compared.
fn set_by_user(plan: &Plan) -> BTreeMap<String, String> {
    let is_of_user = |setting: &&Setting| setting.outcome == SettingOutcome::User;
    let known = |setting: &&Setting| {
        let name = setting.variable.as_str();
        variables::find(name).is_some() || rccl::knows(name) || libraries::may_fill(name)
    };
    let value = |setting: &Setting| {
        let value = shown(&setting.variable, setting.value.as_deref()?);
        (value.len() <= LONGEST_SET).then(|| (setting.variable.clone(), value.to_owned()))
    };
    plan.settings.iter().filter(is_of_user).filter(known).filter_map(value).take(MOST_SET).collect()
}

/// Returns this node's name.
pub fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns whether no check failed.
pub fn passed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.outcome != Outcome::Failed)
}

fn rail(facts: &Facts, rails: &[(&Hca, &str, Option<u32>)], hca: &Hca, port: &Port) -> Rail {
    let gid = own_slots(facts, port).into_iter().next();
    let gid = gid.filter(|_| port.link_layer == LinkLayer::Ethernet);
    let family = |gid: &crate::facts::gid::Gid| if gid.address().is_ipv4() { "IPv4" } else { "IPv6" };
    Rail {
        hca: hca.name.clone(),
        port: port.number,
        driver: hca.driver.clone(),
        firmware: hca.firmware.clone(),
        link_layer: port.link_layer.clone().into(),
        rate: port.rate.clone(),
        gid_type: gid.map(|gid| format!("{}, {}", String::from(gid.kind.clone()), family(gid))),
        gid_index: gid.map(|gid| gid.index),
        mtu: rails.iter().find(|(rail, _, _)| rail.name == hca.name).and_then(|(_, _, mtu)| *mtu),
        traffic_class: port.traffic_class.clone().map(String::from),
    }
}
