//! What a user should know about a host and the decision for it. There is one file for each subject, with a
//! function that derives findings from the decision; what the decision itself sees, it has reported already
//! (`Decided::findings`). Pure; the plan does not depend on this module.
//!
//! * The fabric and its rails: [`fabric`], [`ports`], [`down`], [`counts`], [`gid`],
//!   [`gid_changed`], [`namespace`], [`nvswitch`], [`slots`], [`pkey`], [`traffic_class`], [`address`], [`mtu`],
//!   [`routes`].
//! * The job's other network: [`wireless`], [`master`].
//! * What the platform publishes: [`platform`], [`script`], [`profile_names`], [`idle_in_profile`],
//!   [`instance_type`]; what its device plugins have given:
//!   [`given`].
//! * How NCCL interprets the user's values: [`values`]; how other libraries interpret theirs: [`libraries`].
//! * The links between GPUs, HCAs, and other nodes: [`gpu_direct`], [`c2c`], [`data_direct`], [`nics`],
//!   [`nvlink`].
//! * The container: [`container`], [`image`], [`verbs`], [`kernel_abi`], [`memlock`], [`unreadable`].
//! * A node with fewer NICs that no error shows: [`mismatch`].
//! * The tools that can show later why a job hangs: [`hang`].
//! * What processes that enter the container later get: [`nccl_conf`], [`secrets`].
//! * What the job has moved by the time it ends: [`traffic`].

mod address;
mod c2c;
mod container;
mod counts;
mod data_direct;
mod down;
mod fabric;
mod failover;
mod gid;
mod gid_changed;
mod gin;
mod given;
mod gpu_direct;
mod hang;
mod idle_in_profile;
mod image;
mod instance_type;
mod kernel_abi;
mod libraries;
mod master;
pub(crate) mod memlock;
mod mismatch;
pub(crate) mod mtu;
mod namespace;
pub(crate) mod nccl_conf;
mod nics;
mod nvlink;
mod nvswitch;
mod pkey;
mod platform;
pub(crate) mod port_errors;
pub(crate) mod port_name;
mod ports;
mod profile_names;
mod rail_order;
pub mod routes;
mod script;
mod secrets;
pub(crate) mod slots;
pub(crate) mod traffic;
mod traffic_class;
mod unreadable;
mod values;
mod verbs;
mod wireless;

use crate::fabric::own_interface::Index;
use crate::finding::{Finding, Id, Severity};
use crate::plan::{Context, Decided, Plan};

/// Returns the plan with all findings that need only the facts.
pub fn add(decided: Decided) -> Plan {
    let Decided { context, ports, plan, .. } = &decided;
    let Context { facts, user, profile, .. } = context;
    let interfaces = Index::of(facts);
    let mut findings = decided.findings.clone();
    // The decision may already say which devices are missing.
    let is_told = findings.iter().any(|finding| finding.id == Id::NoRdma);
    let of_fabric = fabric::findings(context, plan, ports).into_iter();
    findings.extend(of_fabric.filter(|finding| !is_told || finding.id != Id::NoRdma));
    let mut of_values = values::findings(&decided);
    // The warning that there is no HCA says what the finding about a list of HCAs would say.
    let lacks_rdma = |finding: &Finding| finding.id == Id::NoRdma && finding.severity == Severity::Warning;
    if findings.iter().any(lacks_rdma) {
        of_values.retain(|finding| finding.id != Id::StaleHca);
    }
    // A variable may lead NCCL to another entry.
    let is_elsewhere = |finding: &Finding| {
        [Id::GidIndex, Id::GidSearch].contains(&finding.id) && finding.severity > Severity::Info
    };
    if !of_values.iter().any(is_elsewhere) {
        findings.extend(gid::report_node_gids(&decided));
    }
    findings.extend(namespace::finding(context));
    let of_nvswitches = nvswitch::of_nvswitches(facts, ports);
    findings.extend(nvswitch::findings(context, ports));
    findings.extend(ports::findings(plan.library, ports, &of_nvswitches));
    findings.extend(down::findings(context, &interfaces, ports));
    findings.extend(address::findings(facts, &interfaces, ports));
    findings.extend(mtu::findings(facts, &interfaces, ports, plan));
    findings.extend(wireless::finding(&decided, &interfaces));
    // Without a profile, the plan has not chosen any HCAs.
    if plan.profile.is_some() {
        findings.extend(counts::findings(context, &interfaces, ports, &of_nvswitches));
    }
    findings.extend(platform::findings(context, ports, &plan.fabric));
    findings.extend(given::findings(facts, ports));
    findings.extend(platform::equal_profiles(plan));
    findings.extend(fabric::of_others(facts, plan, profile));
    findings.extend(profile_names::findings(context));
    findings.extend(idle_in_profile::findings(profile));
    findings.extend(instance_type::finding(context));
    findings.extend(script::finding(context));
    findings.extend(platform::overridden(context));
    findings.extend(of_values);
    findings.extend(gid_changed::finding(&decided));
    findings.extend(libraries::findings(&decided));
    findings.extend(master::finding(facts));
    findings.extend(image::findings(facts, user, plan));
    findings.extend(hang::finding(facts, user));
    findings.extend(failover::finding(plan));
    findings.extend(mismatch::finding(context, plan));
    findings.extend(routes::findings(facts, plan));
    findings.extend(pkey::finding(facts, user, plan));
    findings.extend(traffic_class::findings(user, ports, plan));
    findings.extend(gpu_direct::finding(facts, plan));
    findings.extend(c2c::finding(facts, plan));
    findings.extend(memlock::findings(facts, plan));
    findings.extend(data_direct::finding(facts, plan));
    findings.extend(nics::finding(facts, plan));
    findings.extend(gin::finding(facts, plan));
    findings.extend(rail_order::finding(&decided));
    findings.extend(nvlink::finding(facts, plan));
    findings.extend(nccl_conf::findings(plan));
    findings.extend(secrets::finding(plan));
    findings.extend(container::shared_memory(facts));
    findings.extend(unreadable::findings(facts, user, &findings));
    findings.extend(container::parent(facts));
    let plan = decided.plan;
    Finding::drop_explained(&mut findings);
    Plan { findings: findings.into_iter().map(with_any_fix).collect(), ..plan }
}

/// Gives the general fix to what is wrong and has none of its own. A note without a fix needs none.
fn with_any_fix(finding: Finding) -> Finding {
    match &finding {
        Finding { fix: None, severity: Severity::Warning | Severity::Error, id, .. } => {
            let remedy = id.remedy();
            finding.with_fix(remedy)
        }
        _ => finding,
    }
}
