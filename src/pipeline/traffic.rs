//! The job's RDMA traffic, and the errors of its ports. The counters before the job are noted
//! for the init of the command, which reports the difference when the command has ended.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::facts::Reader;
use crate::facts::port_counters::Counters;
use crate::facts::port_errors::{self, PortErrors};
use crate::facts::rdma::LinkLayer;
use crate::facts::traffic::read;
use crate::findings;
use crate::findings::port_errors::PortRises;
use crate::findings::traffic::{self, PortTraffic};
use crate::json;
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::report::start;
use crate::watch::{self, PortLook, WatchedPort};

/// What the init of the command keeps until the end.
#[derive(Serialize, Deserialize)]
struct Note {
    format: Format,
    level: Level,
    /// The ports that the job will use.
    ports: Vec<Port>,
    /// How often the watcher looks, and after which time without traffic it says so.
    watch_interval: Duration,
    watch_after: Duration,
}

/// A port before the job: its traffic, and its errors.
#[derive(Serialize, Deserialize)]
struct Port {
    moved: PortTraffic,
    errors: PortErrors,
}

/// Returns the counters of the ports that the job will use, and how to speak of them. Empty if
/// there is nothing to tell: no such port, or none whose counters show.
pub(super) fn note(config: &Config, plan: &Plan) -> Vec<u8> {
    if config.log_level < Level::Warn {
        return Vec::new();
    }
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let used = plan.ports.iter().filter(|port| port.used);
    let ports: Vec<Port> = used
        .map(|port| {
            let of = counters.of(&port.hca, port.port);
            let moved = PortTraffic {
                hca: port.hca.clone(),
                port: port.port,
                is_infiniband: port.link_layer == LinkLayer::InfiniBand,
                traffic: read(&of),
            };
            Port { moved, errors: port_errors::read(&of) }
        })
        .collect();
    match ports.iter().any(|port| port.moved.traffic.is_known()) {
        true => {
            let level = config.log_level.min(Level::Info);
            let (watch_interval, watch_after) = (config.watch_interval, config.watch_after);
            json::line(&Note { format: config.log_format, level, ports, watch_interval, watch_after })
        }
        false => Vec::new(),
    }
}

/// Reports the traffic since the note was made, `ran` ago. Call this in a separate process:
/// a driver may take long.
pub fn tell(note: &[u8], ran: Duration) {
    let Ok(Note { format, level, ports, .. }) = json::read(note) else { return };
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let since = |Port { moved, errors }: Port| {
        let of = counters.of(&moved.hca, moved.port);
        let now = port_errors::read(&of);
        let wrong = PortRises {
            hca: moved.hca.clone(),
            port: moved.port,
            is_lost: now.is_lost_since(&errors),
            rises: now.since(&errors),
        };
        (PortTraffic { traffic: read(&of).since(moved.traffic), ..moved }, wrong)
    };
    let (moved, wrong): (Vec<PortTraffic>, Vec<PortRises>) = ports.into_iter().map(since).unzip();
    let mut findings = findings::port_errors::findings(&wrong, ran);
    findings.extend(traffic::finding(&moved, ran));
    start::traffic(&Log::start(format, level, Log::patient()), &moved, &findings);
}

/// Watches the ports of the note until this process is killed. Call this in a process of its own.
pub fn watch(note: &[u8]) {
    let Ok(Note { format, level, ports, watch_interval, watch_after }) = json::read(note) else { return };
    let ports = ports.into_iter().map(|Port { moved, errors }| WatchedPort {
        hca: moved.hca,
        port: moved.port,
        is_infiniband: moved.is_infiniband,
        first: PortLook { traffic: moved.traffic, errors },
    });
    let log = Log::start(format, level, Log::patient());
    let look = |port: &WatchedPort| {
        // A new reader each time, because a reader keeps what it could not read.
        let reader = Reader::new(Path::new("/"));
        let counters = Counters::new(&reader);
        let of = counters.of(&port.hca, port.port);
        PortLook { traffic: read(&of), errors: port_errors::read(&of) }
    };
    watch::run(ports.collect(), watch_interval, watch_after, look, |finding| start::finding(&log, finding))
}
