//! The counters of a port, from either place in which the kernel shows them: /sys, and RDMA netlink, which
//! reports those of the hardware in a network namespace that shares the HCAs of the host's, where /sys has
//! none.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;

use nix::errno::Errno;

use super::attributes::AttributeFolder;
use super::rdma_statistics::Statistics;
use super::reader::Reader;

/// The directories of the counters below a port's: those of the InfiniBand specification, and those of the
/// hardware.
const OF_PORT: &str = "counters";
const OF_HARDWARE: &str = "hw_counters";

/// Looks at the counters of ports. RDMA netlink is asked at most once for each port, and not at all if /sys has
/// the counters of the hardware.
pub(crate) struct Counters<'a> {
    reader: &'a Reader,
    statistics: OnceCell<Option<Statistics>>,
    has_asked: Cell<bool>,
}

impl<'a> Counters<'a> {
    pub(crate) fn new(reader: &'a Reader) -> Counters<'a> {
        Counters::with(reader, OnceCell::new())
    }

    /// Does the same with a socket of RDMA netlink that is open already, or could not be opened.
    pub(super) fn with(reader: &'a Reader, statistics: OnceCell<Option<Statistics>>) -> Counters<'a> {
        Counters { reader, statistics, has_asked: Cell::new(false) }
    }

    /// Returns whether RDMA netlink was asked for the counters of a port.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.get()
    }

    pub(super) fn into_statistics(self) -> OnceCell<Option<Statistics>> {
        self.statistics
    }

    /// Returns the counters of one port, from now on.
    pub(crate) fn of(&self, hca: &str, port: u32) -> PortCounters<'_> {
        let folder = format!("/sys/class/infiniband/{hca}/ports/{port}");
        let open = |name: &str| self.reader.folder(format!("{folder}/{name}"));
        PortCounters {
            of_port: open(OF_PORT),
            of_hardware: open(OF_HARDWARE),
            looked: self,
            folder,
            hca: hca.to_owned(),
            port,
            told: OnceCell::new(),
        }
    }

    /// Returns what RDMA netlink reports about a port; nothing if it does not know the device. It knows this
    /// machine's alone, and not those of a tree below another root.
    fn told(&self, hca: &str, port: u32) -> BTreeMap<String, u64> {
        let open = || self.reader.is_of_this_machine().then(|| Statistics::open().ok()).flatten();
        let statistics = self.statistics.get_or_init(open).as_ref();
        self.has_asked.set(statistics.is_some());
        statistics.and_then(|statistics| statistics.of(hca, port).ok()).unwrap_or_default()
    }
}

/// The counters of one port. They count since the driver was loaded or a user cleared them.
pub(crate) struct PortCounters<'a> {
    looked: &'a Counters<'a>,
    /// As the kernel names it, without the reader's root.
    folder: String,
    of_port: AttributeFolder<'a>,
    of_hardware: AttributeFolder<'a>,
    hca: String,
    port: u32,
    /// What RDMA netlink reports about the hardware.
    told: OnceCell<BTreeMap<String, u64>>,
}

impl PortCounters<'_> {
    /// Returns a counter of `counters`; `None` if the device does not have it: no file, an error, or `N/A (no
    /// PMA)`.
    pub(crate) fn of_port(&self, name: &str) -> Option<u64> {
        count(&self.of_port, name)
    }

    /// Returns a counter of `hw_counters`, by the driver's name for it.
    pub(crate) fn of_hardware(&self, name: &str) -> Option<u64> {
        count(&self.of_hardware, name).or_else(|| self.told().get(name).copied())
    }

    /// `enum ib_port_state` of `rdma/ib_verbs.h`; `None` if the port is not there.
    pub(crate) fn state(&self) -> Option<u64> {
        self.readable_state().ok().flatten()
    }

    /// Does the same, and tells an error, or a text that is not a state, from a port that is not there.
    pub(crate) fn readable_state(&self) -> Result<Option<u64>, Errno> {
        match self.attribute("state") {
            Ok(text) => before_colon(&text).map(Some).ok_or(Errno::EBADMSG),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// `enum ib_port_phys_state` of `rdma/ib_verbs.h`, likewise.
    pub(crate) fn physical_state(&self) -> Option<u64> {
        self.text("phys_state").and_then(|text| before_colon(&text))
    }

    /// `200 Gb/sec (4X HDR)`.
    pub(crate) fn rate(&self) -> Option<String> {
        self.text("rate")
    }

    /// Returns an attribute of the port itself.
    fn text(&self, name: &str) -> Option<String> {
        self.attribute(name).ok()
    }

    fn attribute(&self, name: &str) -> Result<String, Errno> {
        let reader = self.looked.reader;
        reader.attribute(&reader.path(format!("{}/{name}", self.folder)))
    }

    /// Returns all counters of `counters`, by the kernel's names.
    pub(crate) fn all_of_port(&self) -> BTreeMap<String, u64> {
        all(&self.of_port)
    }

    /// Returns all counters of the hardware, by the driver's names.
    pub(crate) fn all_of_hardware(&self) -> BTreeMap<String, u64> {
        let mut all = all(&self.of_hardware);
        // The time between two readings of the device, which is not a count.
        all.remove("lifespan");
        if all.is_empty() { self.told().clone() } else { all }
    }

    fn told(&self) -> &BTreeMap<String, u64> {
        self.told.get_or_init(|| match self.of_hardware.is_there() {
            true => BTreeMap::new(),
            false => self.looked.told(&self.hca, self.port),
        })
    }
}

/// Of `4: ACTIVE`.
fn before_colon(text: &str) -> Option<u64> {
    text.split(':').next()?.trim().parse().ok()
}

fn count(folder: &AttributeFolder, name: &str) -> Option<u64> {
    folder.attribute(name).ok()?.trim().parse().ok()
}

fn all(folder: &AttributeFolder) -> BTreeMap<String, u64> {
    let names = folder.names().into_iter();
    names.filter_map(|name| count(folder, &name).map(|count| (name, count))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn what_is_no_count_is_left_out() {
        let root = FakeRoot::new();
        let files = [
            ("counters/link_downed", "3\n"),
            ("counters/port_rcv_errors", "N/A (no PMA)\n"),
            ("hw_counters/out_of_sequence", "18446744073709551615\n"),
            ("hw_counters/packet_seq_err", "-1\n"),
            ("hw_counters/lifespan", "10\n"),
        ];
        root.files("sys/class/infiniband/mlx5_0/ports/1", &files);
        let reader = root.reader();
        let counters = Counters::new(&reader);
        let of = counters.of("mlx5_0", 1);
        assert_eq!((of.of_port("link_downed"), of.of_port("port_rcv_errors")), (Some(3), None));
        assert_eq!(
            (of.of_hardware("out_of_sequence"), of.of_hardware("packet_seq_err")),
            (Some(u64::MAX), None)
        );
        assert_eq!(of.of_hardware("link_downed"), None, "that is another directory");
        let all: Vec<_> = of.all_of_hardware().into_iter().collect();
        assert_eq!(all, [("out_of_sequence".to_owned(), u64::MAX)]);
        drop(counters);
        assert!(reader.into_unreadable().is_empty());
    }

    #[test]
    fn a_port_that_is_not_there_has_no_counters() {
        for root in [Path::new("/"), tempfile::tempdir().unwrap().path()] {
            let reader = Reader::new(root);
            let counters = Counters::new(&reader);
            let of = counters.of("no such device", 1);
            assert_eq!((of.of_port("link_downed"), of.of_hardware("sent_pkts")), (None, None));
            assert!(of.all_of_hardware().is_empty());
        }
    }
}
