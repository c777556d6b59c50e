//! Facts that only a self-test needs: reading them at every start would take too long.

use super::port_counters::Counters;
use super::rdma::Access;
use super::reader::Reader;
use super::{Facts, counters, state};

/// Adds these facts. A fact that cannot be read stays absent and is not reported: the devices themselves have
/// been read.
pub(crate) fn add(facts: &mut Facts, reader: &Reader) {
    let look = Counters::new(reader);
    for hca in &mut facts.rdma {
        // Reading a counter may send a command to the device, and the host may have many
        // devices.
        if hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened) {
            for port in &mut hca.ports {
                port.counters = Some(counters::read(&look.of(&hca.name, port.number)));
            }
        }
    }
    facts.state_writable = Some(state::is_writable(reader));
}
