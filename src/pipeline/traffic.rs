//! What the job has moved over RDMA. The counters before the job are noted for the init of the
//! command, and the difference is told when the command has ended.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::facts::Reader;
use crate::facts::rdma::LinkLayer;
use crate::facts::traffic::read;
use crate::findings::traffic::{self, Moved};
use crate::json;
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::report::start;

/// What the init of the command keeps until the end.
#[derive(Serialize, Deserialize)]
struct Note {
    format: Format,
    level: Level,
    /// The ports that the job will use, with what went over them before it.
    ports: Vec<Moved>,
}

/// The counters of the ports that the job will use, and how to speak of them. Empty where
/// there is nothing to tell: no such port, or none whose counters show.
pub fn note(config: &Config, plan: &Plan) -> Vec<u8> {
    if config.log_level < Level::Warn {
        return Vec::new();
    }
    let reader = Reader::new(Path::new("/"));
    let used = plan.ports.iter().filter(|port| port.used);
    let ports: Vec<Moved> = used
        .map(|port| Moved {
            hca: port.hca.clone(),
            port: port.port,
            is_infiniband: port.link_layer == LinkLayer::InfiniBand,
            traffic: read(&reader, &port.hca, port.port),
        })
        .collect();
    match ports.iter().any(|port| port.traffic.is_known()) {
        true => {
            json::line(&Note { format: config.log_format, level: config.log_level.min(Level::Info), ports })
        }
        false => Vec::new(),
    }
}

/// Tells what has moved since the note was made, `ran` ago. Call this in a process of its own:
/// a driver may take long.
pub fn tell(note: &[u8], ran: Duration) {
    let Ok(Note { format, level, ports }) = json::read(note) else { return };
    let reader = Reader::new(Path::new("/"));
    let since =
        |port: Moved| Moved { traffic: read(&reader, &port.hca, port.port).since(port.traffic), ..port };
    let moved: Vec<Moved> = ports.into_iter().map(since).collect();
    start::traffic(&Log::start(format, level, Log::patient()), &moved, traffic::finding(&moved, ran));
}
