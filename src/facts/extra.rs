//! What only a self-test asks for: too much to read at every start.

use super::rdma::Access;
use super::reader::Reader;
use super::{Facts, counters, state};

/// Adds it. What cannot be read here is not there: the devices themselves have been read.
pub fn add(facts: &mut Facts, reader: &Reader) {
    for hca in &mut facts.rdma {
        // Each counter may be a command to the device, and the host may have many.
        if hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened) {
            for port in &mut hca.ports {
                port.counters = Some(counters::read(reader, &hca.name, port.number));
            }
        }
    }
    facts.state_writable = Some(state::is_writable(reader));
}
