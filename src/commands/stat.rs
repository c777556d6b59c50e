//! `rdma-init stat`: shows what goes over the HCAs now.

use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::cli::StatArguments;
use crate::facts::Reader;
use crate::facts::traffic::{self, Traffic};
use crate::log::say;
use crate::report::stat::{self, Row};

/// The time between two looks without `--watch`.
const ONCE: Duration = Duration::from_secs(1);

/// The shortest time between two looks; drivers count no faster.
const SHORTEST: Duration = Duration::from_millis(10);

/// Shows the rates over one second, or again and again over the wanted time.
pub fn run(out: &mut impl Write, arguments: &StatArguments) -> anyhow::Result<()> {
    let interval = arguments.watch.map_or(ONCE, Into::into);
    if interval < SHORTEST {
        bail!("--watch {}: expected {SHORTEST:?} or more", humantime::format_duration(interval));
    }
    let reader = Reader::new(Path::new("/"));
    let mut before = look(&reader);
    if before.is_empty() {
        bail!("there is no RDMA device here (/sys/class/infiniband)");
    }
    if !before.iter().any(|(_, traffic)| traffic.is_known()) {
        bail!(
            "the counters of the RDMA devices cannot be read here. A container that shares the devices with the host's \
             network namespace (`rdma system` says \"netns shared\") never sees them. Run rdma-init stat on the node, \
             or in a container with the host's network"
        );
    }
    if before.iter().any(|(_, traffic)| !traffic.is_known()) {
        say("the counters of a port that shows - cannot be read here.");
    }
    let mut since = Instant::now();
    loop {
        sleep(interval.saturating_sub(since.elapsed()));
        // Each counter is read as long after its last reading as every other one, because all
        // are read in the same order.
        let (now, at) = (look(&reader), Instant::now());
        let rows: Vec<Row> = now
            .iter()
            .map(|(port, traffic)| {
                let earlier = before.iter().find(|(known, _)| known == port).map(|(_, earlier)| *earlier);
                Row { hca: &port.0, port: port.1, moved: traffic.since(earlier.unwrap_or_default()) }
            })
            .collect();
        match arguments.json {
            true => stat::write_json(out, &rows, at - since)?,
            false => stat::write(out, &rows, at - since)?,
        }
        out.flush()?;
        if arguments.watch.is_none() {
            return Ok(());
        }
        (before, since) = (now, at);
    }
}

/// Reads the counters of all ports. A device may come or go between two looks.
fn look(reader: &Reader) -> Vec<((String, u32), Traffic)> {
    let ports = traffic::ports(reader).into_iter();
    ports
        .map(|port| {
            let traffic = traffic::read(reader, &port.0, port.1);
            (port, traffic)
        })
        .collect()
}
