//! What one look at a port of the job shows. It is taken again and again while the job runs, so it takes few
//! system calls.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::gid::{GidType, LARGEST_INDEX, address};
use super::net;
use super::port_counters::Counters;
use super::port_errors::{self, PortErrors};
use super::reader::Reader;
use super::traffic::{self, Traffic};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortLook {
    pub traffic: Traffic,
    pub errors: PortErrors,
    /// As the kernel writes it: `200 Gb/sec (4X HDR)`.
    pub rate: Option<String>,
    /// Where the GID of the job is, if the job uses one here.
    pub gid: Option<GidPlace>,
}

/// The GID that the job uses on a RoCE port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedGid {
    pub index: u32,
    pub gid: Ipv6Addr,
    /// Whether NCCL searches the table for it at each new connection.
    pub is_searched: bool,
}

/// Where a GID of the job is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GidPlace {
    /// At the index that the job uses.
    InPlace,
    At(u32),
    /// Nowhere in the table. `has_address`: whether an interface still has its address, as far as is known.
    Gone {
        has_address: bool,
    },
}

/// Looks at a port now.
pub(crate) fn read(
    reader: &Reader,
    counters: &Counters,
    hca: &str,
    port: u32,
    gid: Option<&UsedGid>,
) -> PortLook {
    // Read first: if the device goes away meanwhile, the state shows that, and the GID counts for nothing.
    let gid = gid.map(|used| place(reader, &format!("/sys/class/infiniband/{hca}/ports/{port}"), used));
    let of = counters.of(hca, port);
    let (traffic, errors) = (traffic::read(&of), port_errors::read(&of));
    // A link that goes down or comes up meanwhile has a rate that means nothing.
    let rate = of.rate().filter(|_| errors.has_state(of.state()));
    PortLook { traffic, errors, rate, gid }
}

/// Reads one file, unless the GID has left its place.
fn place(reader: &Reader, port: &str, used: &UsedGid) -> GidPlace {
    let gids = reader.folder(format!("{port}/gids"));
    let is_at = |index: u32| {
        let text = gids.attribute(&index.to_string());
        text.is_ok_and(|text| text.parse() == Ok(used.gid))
    };
    if is_at(used.index) {
        return GidPlace::InPlace;
    }
    let types = reader.folder(format!("{port}/gid_attrs/types"));
    let is_routable = |index: &u32| {
        types.attribute(&index.to_string()).is_ok_and(|text| GidType::from(text) == GidType::RoceV2)
    };
    if let Some(index) = (0..=LARGEST_INDEX).filter(|index| is_at(*index)).find(is_routable) {
        return GidPlace::At(index);
    }
    let own =
        if reader.is_of_this_machine() { net::system_addresses().unwrap_or_default() } else { Vec::new() };
    let mut own = own.iter().filter_map(|entry| Some(entry.address?.addr())).peekable();
    let address = address(used.gid);
    GidPlace::Gone { has_address: own.peek().is_none() || own.any(|known| known == address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn a_gid_is_found_where_it_is() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let used = UsedGid { index: 3, gid: "::ffff:10.0.0.3".parse().unwrap(), is_searched: true };
        let look = |files: &[(&str, &str)]| {
            root.files(port, files);
            let reader = root.reader();
            let found = read(&reader, &Counters::new(&reader), "x_0", 1, Some(&used));
            (found.gid.unwrap(), found.rate)
        };
        let (own, none) =
            ("0000:0000:0000:0000:0000:ffff:0a00:0003\n", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        let gone = GidPlace::Gone { has_address: true };
        assert_eq!(look(&[]), (gone, None));
        let rate = ("rate", "200 Gb/sec (4X HDR)\n");
        assert_eq!(
            look(&[("gids/3", own), rate]),
            (GidPlace::InPlace, Some("200 Gb/sec (4X HDR)".to_owned()))
        );
        // RoCE v1 has the same GID.
        let v1 = [("gids/3", none), ("gids/4", own), ("gid_attrs/types/4", "IB/RoCE v1\n")];
        assert_eq!(look(&v1).0, gone);
        assert_eq!(look(&[("gids/5", own), ("gid_attrs/types/5", "RoCE v2\n")]).0, GidPlace::At(5));
    }
}
