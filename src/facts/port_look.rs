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
    /// RoCE v1 and v2 have the same GID of an address, at two indexes that may swap.
    pub kind: GidType,
    /// Whether NCCL searches the table for it at each new connection.
    pub is_searched: bool,
}

/// Where a GID of the job is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GidPlace {
    /// At the index that the job uses.
    InPlace,
    At(u32),
    /// At the index that the job uses, but of another type, and nowhere of the right one.
    Retyped,
    /// Nowhere in the table. `has_address`: whether an interface still has its address, as far as is known.
    Gone {
        has_address: bool,
    },
}

/// Looks at a port now, `before` which there may have been a look at it.
pub(crate) fn read(
    reader: &Reader,
    counters: &Counters,
    hca: &str,
    port: u32,
    gid: Option<&UsedGid>,
    before: Option<&PortLook>,
) -> PortLook {
    // Read first: if the device goes away meanwhile, the state shows that, and the GID counts for nothing.
    let gid = gid.map(|used| place(reader, &format!("/sys/class/infiniband/{hca}/ports/{port}"), used));
    let of = counters.of(hca, port);
    let errors = match before {
        Some(before) => port_errors::read_again(&of, &before.errors),
        None => port_errors::read(&of),
    };
    let traffic = traffic::read(&of);
    // A link that goes down or comes up meanwhile has a rate that means nothing.
    let rate = of.rate().filter(|_| errors.has_state(of.state()));
    PortLook { traffic, errors, rate, gid }
}

/// Reads two files, unless the GID has left its place.
fn place(reader: &Reader, port: &str, used: &UsedGid) -> GidPlace {
    let gids = reader.folder(format!("{port}/gids"));
    let is_at = |index: u32| {
        let text = gids.attribute(&index.to_string());
        text.is_ok_and(|text| text.parse() == Ok(used.gid))
    };
    let types = reader.folder(format!("{port}/gid_attrs/types"));
    let kind = |index: u32| types.attribute(&index.to_string()).ok().map(GidType::from);
    let is_there = is_at(used.index);
    // A type that cannot be read, now or at the start, proves nothing.
    let is_right = |kind: GidType| kind == used.kind || [&kind, &used.kind].contains(&&GidType::Unknown);
    if is_there && kind(used.index).is_none_or(is_right) {
        return GidPlace::InPlace;
    }
    let mut indices = (0..=LARGEST_INDEX).filter(|index| is_at(*index));
    if let Some(index) = indices.find(|index| kind(*index).as_ref() == Some(&used.kind)) {
        return GidPlace::At(index);
    }
    if is_there {
        return GidPlace::Retyped;
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
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let used = UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: true };
        let look = |files: &[(&str, &str)]| {
            root.files(port, files);
            let reader = root.reader();
            let found = read(&reader, &Counters::new(&reader), "x_0", 1, Some(&used), None);
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
        // It swaps its index with that of RoCE v1.
        let v2_at = |index: &str| {
            let other = if index == "3" { "4" } else { "3" };
            let types = [index, other].map(|index| format!("gid_attrs/types/{index}"));
            look(&[
                ("gids/3", own),
                ("gids/4", own),
                ("gids/5", none),
                (&types[0], "RoCE v2\n"),
                (&types[1], "IB/RoCE v1\n"),
            ])
            .0
        };
        assert_eq!([v2_at("3"), v2_at("4")], [GidPlace::InPlace, GidPlace::At(4)]);
        assert_eq!(look(&[("gids/4", none)]).0, GidPlace::Retyped);
    }
}
