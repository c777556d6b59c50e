//! The job's RDMA traffic, and the errors of its ports. The counters before the job are noted
//! for the init of the command, which reports the difference when the command has ended.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::facts::port_counters::Counters;
use crate::facts::port_look::{self, PortLook, UsedGid};
use crate::facts::rdma::LinkLayer;
use crate::facts::{Facts, Reader};
use crate::findings;
use crate::findings::port_errors::PortRises;
use crate::findings::traffic::{self, PortTraffic};
use crate::json;
use crate::libraries::nccl::gid::INDEX;
use crate::libraries::nccl::predict::GidUse;
use crate::libraries::nccl::ras::{Ras, ras};
use crate::libraries::nccl::version::SEARCHES_GIDS;
use crate::log::{Format, Level, Log};
use crate::plan::{Plan, PortVerdict};
use crate::report::start;
use crate::watch::{self, WatchOrders, WatchedPort};

/// What the init of the command keeps until the end.
#[derive(Serialize, Deserialize)]
struct Note {
    format: Format,
    level: Level,
    /// The ports that the job will use, before the job.
    ports: Vec<WatchedPort>,
    watch: WatchOrders,
}

/// Returns the counters of the ports that the job will use, and how to speak of them. Empty if
/// there is nothing to tell: no such port, or none whose counters show.
pub(super) fn note(config: &Config, facts: &Facts, plan: &Plan) -> Vec<u8> {
    if config.log_level < Level::Warn {
        return Vec::new();
    }
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let used = plan.ports.iter().filter(|port| port.used);
    let ports: Vec<WatchedPort> = used
        .map(|port| {
            let gid = used_gid(plan, port);
            WatchedPort {
                hca: port.hca.clone(),
                port: port.port,
                is_infiniband: port.link_layer == LinkLayer::InfiniBand,
                first: port_look::read(&reader, &counters, &port.hca, port.port, gid.as_ref()),
                gid,
            }
        })
        .collect();
    match ports.iter().any(|port| port.first.traffic.is_known()) {
        true => {
            let level = config.log_level.min(Level::Info);
            let watch = WatchOrders {
                interval: config.watch_interval,
                after: config.watch_after,
                ras: ras_address(config, facts, plan),
                on_finding: config.on_finding.clone(),
            };
            json::line(&Note { format: config.log_format, level, ports, watch })
        }
        false => Vec::new(),
    }
}

/// Returns where NCCL's RAS answers. RCCL has none.
fn ras_address(config: &Config, facts: &Facts, plan: &Plan) -> Option<String> {
    let of_environment = |name: &str| facts.settings.get(name).map(|setting| setting.value.as_str());
    let get = |name: &str| config.set.get(name).map(String::as_str).or_else(|| of_environment(name));
    match ras(get, plan.nccl) {
        Ras::At(address) if plan.library.is_nccl() => Some(address.to_owned()),
        _ => None,
    }
}

/// Returns the GID that NCCL will use on a port, by the last forecast: that of the job's NCCL, or of a new one if
/// its release is not known.
fn used_gid(plan: &Plan, port: &PortVerdict) -> Option<UsedGid> {
    let mut ports = plan.forecasts.last()?.prediction.transport.ports()?.iter();
    let used = ports.find(|used| (used.hca.as_str(), used.port) == (port.hca.as_str(), port.port))?;
    let Some(GidUse::Slot { index, gid: Some(gid) }) = &used.gid else { return None };
    // A negative index makes NCCL search.
    let is_pinned = plan.value(INDEX).is_some_and(|value| !value.is_empty() && !value.starts_with('-'));
    let is_searched = !is_pinned && plan.nccl.is_none_or(|version| version >= SEARCHES_GIDS);
    Some(UsedGid { index: u32::try_from(*index).ok()?, gid: gid.gid, is_searched })
}

/// Reports the traffic since the note was made, `ran` ago. Call this in a separate process:
/// a driver may take long.
pub fn tell(note: &[u8], ran: Duration) {
    let Ok(Note { format, level, ports, .. }) = json::read(note) else { return };
    let since = |(port, now): (&WatchedPort, PortLook)| {
        let wrong = PortRises {
            hca: port.hca.clone(),
            port: port.port,
            is_lost: now.errors.is_lost_since(&port.first.errors),
            rises: now.errors.since(&port.first.errors),
        };
        (port.moved(&now, &port.first), wrong)
    };
    let (moved, wrong): (Vec<PortTraffic>, Vec<PortRises>) =
        ports.iter().zip(looks(&ports)).map(since).unzip();
    let mut findings = findings::port_errors::findings(&wrong, ran);
    findings.extend(traffic::finding(&moved, ran));
    start::traffic(&Log::start(format, level, Log::patient()), &moved, &findings);
}

/// Watches the ports of the note until this process is killed. Call this in a process of its own.
pub fn watch(note: &[u8]) {
    let Ok(Note { format, level, ports, watch }) = json::read(note) else { return };
    let log = Log::start(format, level, Log::patient());
    watch::run(ports, watch, looks, |finding| start::finding(&log, finding), |message| log.warn(message))
}

/// Looks at the ports with a new reader, because a reader keeps what it could not read.
fn looks(ports: &[WatchedPort]) -> Vec<PortLook> {
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let look =
        |port: &WatchedPort| port_look::read(&reader, &counters, &port.hca, port.port, port.gid.as_ref());
    ports.iter().map(look).collect()
}
