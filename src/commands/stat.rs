//! Implements `rdma-init stat`: shows the current traffic of the HCAs.

use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::cli::StatArguments;
use crate::facts::Reader;
use crate::facts::port_counters::Counters;
use crate::facts::port_errors::PortErrors;
use crate::facts::port_look::{self, PortLook};
use crate::facts::{port_sample, traffic};
use crate::finding::Finding;
use crate::findings::port_errors::{self, PortRises};
use crate::findings::port_name::{RailId, has_several};
use crate::log::say;
use crate::report::metrics;
use crate::report::stat::{self, Row};

/// The time between two readings without `--watch`.
const ONCE: Duration = Duration::from_secs(1);

/// Shows the rates over one second; with `--watch`, repeats this at the interval that the user chose.
pub(super) fn run(out: &mut impl Write, arguments: &StatArguments) -> anyhow::Result<()> {
    let reader = Reader::new(Path::new("/"));
    if let Some(how) = arguments.format {
        return Ok(metrics::write(out, &port_sample::all(&reader), how)?);
    }
    let interval = arguments.watch.unwrap_or(ONCE);
    let mut before = look(&reader);
    if before.is_empty() {
        bail!("there is no RDMA device here (/sys/class/infiniband)");
    }
    if !before.iter().any(|one| one.look.traffic.is_known()) {
        bail!(
            "the RDMA devices show no counters here, neither in /sys nor by RDMA netlink. Run rdma-init stat on the \
             node, or in a container with the host's network"
        );
    }
    if before.iter().any(|one| !one.look.traffic.is_known()) {
        say("the counters of a port that shows - cannot be read here.");
    }
    let mut since = Instant::now();
    loop {
        sleep(interval.saturating_sub(since.elapsed()));
        // All counters are read in the same order, so the time between two readings is the same for each of
        // them.
        let (now, at) = (look(&reader), Instant::now());
        let rows: Vec<Row> = now
            .iter()
            .map(|one| {
                let earlier = before.iter().find(|known| known.is(one)).map(|earlier| earlier.look.traffic);
                let moved = one.look.traffic.since(earlier.unwrap_or_default());
                Row { hca: &one.hca, port: one.port, moved }
            })
            .collect();
        match arguments.json {
            true => stat::write_json(out, &rows, at - since)?,
            false => stat::write(out, &rows, at - since)?,
        }
        out.flush()?;
        let hcas = || before.iter().map(|port| port.hca.as_str());
        let until_now = |earlier: &Port| {
            let is_one_of_several = has_several(&earlier.hca, hcas());
            let rail = RailId { is_one_of_several, ..RailId::new(&earlier.hca, earlier.port) };
            let gone = PortErrors::default();
            // A port that is missing now has gone.
            let later = now.iter().find(|one| one.is(earlier)).map_or(&gone, |later| &later.look.errors);
            PortRises::between(rail, &earlier.look.errors, later)
        };
        let rises: Vec<PortRises> = before.iter().map(until_now).collect();
        for Finding { severity, message, .. } in port_errors::findings(&rises, None, at - since) {
            say(&format!("{}: {message}", severity.as_str()));
        }
        if arguments.watch.is_none() {
            return Ok(());
        }
        (before, since) = (now, at);
    }
}

/// A port at one moment.
struct Port {
    hca: String,
    port: u32,
    look: PortLook,
}

impl Port {
    fn is(&self, other: &Port) -> bool {
        (&self.hca, self.port) == (&other.hca, other.port)
    }
}

/// Looks at all ports. A device may come or go between two looks.
fn look(reader: &Reader) -> Vec<Port> {
    let counters = Counters::new(reader);
    let look = |(hca, port): (String, u32)| {
        let look = port_look::read(reader, &counters, &hca, port, None, None);
        Port { hca, port, look }
    };
    traffic::ports(reader).into_iter().map(look).collect()
}
