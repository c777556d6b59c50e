//! What the job has moved over RDMA. The counters before the job are noted for the init of the
//! command, and the difference is told when the command has ended.

use std::path::Path;
use std::time::Duration;

use crate::config::Config;
use crate::facts::Reader;
use crate::facts::rdma::LinkLayer;
use crate::facts::traffic::{Amount, Traffic, read};
use crate::findings::traffic::{self, Moved};
use crate::log::Log;
use crate::log::{Format, Level};
use crate::plan::{Plan, PortVerdict};
use crate::report::start;

/// The counters of the ports that the job will use, and how to tell about them. Empty if there
/// is nothing to tell: no port is used, or no counters show.
pub fn note(config: &Config, plan: &Plan) -> String {
    if config.log_level < Level::Warn {
        return String::new();
    }
    let reader = Reader::new(Path::new("/"));
    let mut is_any_known = false;
    let mut text = format!(
        "{} {}\n",
        u8::from(config.log_format == Format::Json),
        u8::from(config.log_level >= Level::Info)
    );
    // A name with a space would be read as two words.
    for port in plan.ports.iter().filter(|port| port.used && !port.hca.contains(char::is_whitespace)) {
        let traffic = read(&reader, &port.hca, port.port);
        is_any_known |= traffic.is_known();
        text.push_str(&line(port, traffic));
    }
    if is_any_known { text } else { String::new() }
}

/// `HCA PORT IS-INFINIBAND`, and the counts, with a hyphen for one that is not known.
fn line(port: &PortVerdict, Traffic { sent, received }: Traffic) -> String {
    let counts = [sent.bytes, sent.packets, received.bytes, received.packets];
    let counts = counts.map(|count| count.map_or("-".to_owned(), |count| count.to_string()));
    let is_infiniband = u8::from(port.link_layer == LinkLayer::InfiniBand);
    format!("{} {} {is_infiniband} {}\n", port.hca, port.port, counts.join(" "))
}

/// Tells what has moved since the note was made, `ran` ago. Call this in a process of its own:
/// a driver may take long.
pub fn tell(note: &str, ran: Duration) {
    let mut lines = note.lines();
    let (format, level) = match lines.next().and_then(|line| line.split_once(' ')) {
        Some((format, level)) => (
            if format == "1" { Format::Json } else { Format::Text },
            if level == "1" { Level::Info } else { Level::Warn },
        ),
        None => return,
    };
    let reader = Reader::new(Path::new("/"));
    let moved: Vec<Moved> = lines.filter_map(|line| since(&reader, line)).collect();
    start::traffic(&Log::start(format, level, Log::patient()), &moved, traffic::finding(&moved, ran));
}

fn since(reader: &Reader, line: &str) -> Option<Moved> {
    let mut words = line.split(' ');
    let hca = words.next()?.to_owned();
    let port = words.next()?.parse().ok()?;
    let is_infiniband = words.next()? == "1";
    let mut amount = || {
        let mut count = || words.next().and_then(|word| word.parse().ok());
        Amount { bytes: count(), packets: count() }
    };
    let before = Traffic { sent: amount(), received: amount() };
    let traffic = read(reader, &hca, port).since(before);
    Some(Moved { hca, port, is_infiniband, traffic })
}
