//! A made-up host below a directory, in which the fuzzers replace the content of some files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::facts::Reader;
use crate::facts::kept_files::KeptFiles;
use crate::facts::reader::Unreadable;

/// A file and its text; if the text starts with `-> `, a link and its target.
type Entry = (&'static str, &'static str);

const IB: &str = "sys/class/infiniband/mlx5_0";

/// The directory for files that an input has removed.
const ASIDE: &str = "aside";

/// The starts of the paths below which links lead.
const BEHIND_LINKS: [&str; 2] = ["sys/devices/pci", "sys/bus/pci/drivers"];

/// The places of files that are closed stay free in the list of open files, so it is made anew after so many.
const MOST_MOVES: usize = 256;

/// `IB/` stands for the directory of the HCA.
pub(super) const SYSFS: &[Entry] = &[
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/numa_node", "0\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/vendor", "0x15b3\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/device", "0x1021\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/current_link_speed", "32.0 GT/s PCIe\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/current_link_width", "16\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/max_link_speed", "32.0 GT/s PCIe\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/max_link_width", "16\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/vpd", "\u{2}SW_MNG\n"),
    ("sys/devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0/driver", "-> ../../../../bus/pci/drivers/mlx5_core"),
    ("sys/bus/pci/drivers/mlx5_core/module", ""),
    ("sys/bus/pci/drivers/mlx5_ib/0000:0e:00.0", ""),
    ("sys/bus/pci/devices/0000:0e:00.0", "-> ../../../devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0"),
    ("sys/bus/pci/devices/0000:10:00.0", "-> ../../../devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0"),
    ("IB/device", "-> ../../../devices/pci0000:0c/0000:0c:00.0/0000:0e:00.0"),
    ("IB/node_type", "1: CA\n"),
    ("IB/node_guid", "b859:9f03:00d4:0001\n"),
    ("IB/sys_image_guid", "b859:9f03:00d4:0001\n"),
    ("IB/fw_ver", "28.39.1002\n"),
    ("IB/tc/1/traffic_class", "Global tclass=106\n"),
    ("IB/ports/1/link_layer", "Ethernet\n"),
    ("IB/ports/1/state", "4: ACTIVE\n"),
    ("IB/ports/1/phys_state", "5: LinkUp\n"),
    ("IB/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
    ("IB/ports/1/lid", "0x1\n"),
    ("IB/ports/1/gids/0", "fe80:0000:0000:0000:ba59:9fff:fed4:0001\n"),
    ("IB/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
    ("IB/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
    ("IB/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
    ("IB/ports/1/gid_attrs/types/1", "RoCE v2\n"),
    ("IB/ports/1/gid_attrs/ndevs/1", "eth1\n"),
    ("IB/ports/1/pkeys/0", "0xffff\n"),
    ("IB/ports/1/pkeys/1", "0x0000\n"),
    ("IB/ports/1/counters/port_xmit_data", "123456\n"),
    ("IB/ports/1/counters/port_rcv_data", "N/A (no PMA)\n"),
    ("IB/ports/1/counters/symbol_error", "0\n"),
    ("IB/ports/1/hw_counters/out_of_sequence", "7\n"),
    ("IB/ports/1/hw_counters/ip4OutOctets", "7\n"),
    ("IB/ports/1/hw_counters/roce_adp_retrans", "18446744073709551615\n"),
    ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
    ("sys/class/infiniband_verbs/uverbs0/abi_version", "1\n"),
    ("dev/infiniband/uverbs0", ""),
    ("dev/nvidiactl", ""),
    ("dev/nvidia0", ""),
    ("sys/class/dmi/id/sys_vendor", "Alibaba Cloud\n"),
    ("sys/class/dmi/id/product_name", "Alibaba Cloud ECS\n"),
    ("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n"),
    ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"),
    ("proc/driver/nvidia/params", "RegistryDwords: \"PeerMappingOverride=1;\"\nImexChannelCount: 2048\n"),
    (
        "proc/driver/nvidia/gpus/0000:10:00.0/information",
        "Model: \t\t NVIDIA GB200\nBus Location: \t 0000:10:00.0\nDevice Minor: \t 0\n",
    ),
    ("proc/driver/nvidia/gpus/0000:10:00.0/numa_status", "Node:      4\nStatus:    online\n"),
    ("proc/devices", "Character devices:\n234 nvidia-caps-imex-channels\n"),
    ("dev/nvidia-caps-imex-channels/channel0", ""),
    ("sys/devices/system/node/has_memory", "0-1,4\n"),
    ("sys/devices/system/node/has_cpu", "0-1\n"),
    ("dev/kfd", ""),
    (
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "simd_count 1216\ngfx_target_version 90402\ndomain 0\n",
    ),
];

pub(super) const PROC: &[Entry] = &[
    (
        "proc/net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
         eth0\t00000000\t010AF40A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
    ),
    (
        "proc/net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
         fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n",
    ),
    ("proc/self/net/dev", "Inter-| Receive\n face |bytes\n  eth0: 1 2 3\n"),
    (
        "proc/self/status",
        "Name:\trdma-init\nCapInh:\t0000000000000000\nCapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\n\
         CapBnd:\t00000000a80425fb\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n",
    ),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\n"),
];

pub(super) struct Tree {
    root: PathBuf,
    entries: &'static [Entry],
    /// The texts that the last input put into files, by their place among the entries.
    texts: RefCell<Texts>,
    kept: RefCell<Option<KeptFiles>>,
    /// How many files have been moved beside these open ones.
    moves: Cell<usize>,
}

type Texts = BTreeMap<usize, Vec<u8>>;

/// The files that an input changes.
pub(super) struct Changed(Vec<&'static str>);

impl Changed {
    /// Returns whether the input changes a file whose path in the list starts like one of these, or no file at all.
    pub(super) fn any(&self, starts: &[&str]) -> bool {
        self.0.is_empty() || self.0.iter().any(|path| starts.iter().any(|start| path.starts_with(start)))
    }
}

impl Tree {
    pub(super) fn new(entries: &'static [Entry]) -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rdma-init-fuzz-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        let tree = Tree {
            root,
            entries,
            texts: RefCell::default(),
            kept: RefCell::default(),
            moves: Cell::default(),
        };
        fs::create_dir_all(tree.root.join(ASIDE)).expect("a directory of the tree");
        for (place, (_, text)) in entries.iter().enumerate() {
            let path = tree.path(place);
            fs::create_dir_all(path.parent().expect("it is in a directory"))
                .expect("a directory of the tree");
            match target(text) {
                Some(target) => symlink(target, &path),
                None => fs::write(&path, text),
            }
            .expect("a file of the tree");
        }
        tree
    }

    /// Reads the host with these bytes in its files. The bytes 0xff separate the parts; the first byte of
    /// each part selects a file, and the rest is its new content. A part with only the first byte removes the
    /// file.
    pub(super) fn with<T>(
        &self,
        data: &[u8],
        read: impl FnOnce(&Reader, &Changed) -> T,
    ) -> (T, Vec<Unreadable>) {
        let parts = data.split(|byte| *byte == 0xff).filter_map(<[u8]>::split_first);
        let texts = parts.take(self.entries.len());
        let texts =
            texts.map(|(place, text)| (usize::from(*place) % self.entries.len(), text.to_vec())).collect();
        let moved = self.change(&texts);
        let mut reader = Reader::new(&self.root);
        reader.kept = Some(self.kept_beside(&moved));
        let changed = Changed(texts.keys().filter_map(|place| Some(self.entries.get(*place)?.0)).collect());
        let found = read(&reader, &changed);
        if let Some(kept) = reader.kept.take() {
            self.kept.replace(Some(kept));
        }
        self.texts.replace(texts);
        (found, reader.into_unreadable())
    }

    /// Returns the files that are still open, and are read again from their start, as the watcher does. Those that have
    /// been put aside or brought back are opened anew, and so are all if one of them may be open below another name.
    fn kept_beside(&self, moved: &[usize]) -> KeptFiles {
        let is_behind_link = |place: &usize| {
            self.is_link(*place) || BEHIND_LINKS.iter().any(|s| self.entries[*place].0.starts_with(s))
        };
        self.moves.set(self.moves.get() + moved.len());
        match self.kept.take() {
            Some(kept) if self.moves.get() < MOST_MOVES && !moved.iter().any(is_behind_link) => {
                moved.iter().for_each(|place| kept.forget_below(&self.path(*place)));
                kept
            }
            _ => {
                self.moves.set(0);
                KeptFiles::new()
            }
        }
    }

    /// Changes only the files that the last input has left in another state. Each stays the same file, because it may
    /// be open, unless it is put aside or brought back: returns the places of those.
    fn change(&self, texts: &Texts) -> Vec<usize> {
        let before = self.texts.borrow();
        let mut moved = Vec::new();
        for place in before.keys().filter(|place| !texts.contains_key(place)) {
            let (_, text) = self.entries[*place];
            moved.extend(self.put_back(*place));
            if !self.is_link(*place) {
                self.write(*place, text.as_bytes());
            }
        }
        for (place, text) in texts.iter().filter(|(place, text)| before.get(place) != Some(text)) {
            moved.extend(self.put_back(*place));
            if text.is_empty() || self.is_link(*place) {
                moved.push(self.put_aside(*place));
            }
            if !text.is_empty() {
                self.write(*place, text);
            }
        }
        moved
    }

    fn write(&self, place: usize, text: &[u8]) {
        fs::write(self.path(place), text).expect("a file of the tree");
    }

    fn put_aside(&self, place: usize) -> usize {
        fs::rename(self.path(place), self.aside(place)).expect("a file of the tree");
        place
    }

    /// Brings back a file that was put aside, in place of what is there now. Returns its place if it was.
    fn put_back(&self, place: usize) -> Option<usize> {
        fs::symlink_metadata(self.aside(place)).ok()?;
        fs::rename(self.aside(place), self.path(place)).expect("a file of the tree");
        Some(place)
    }

    fn is_link(&self, place: usize) -> bool {
        target(self.entries[place].1).is_some()
    }

    fn aside(&self, place: usize) -> PathBuf {
        self.root.join(ASIDE).join(place.to_string())
    }

    fn path(&self, place: usize) -> PathBuf {
        let (path, _) = self.entries[place];
        self.root.join(path.strip_prefix("IB/").map_or(path.into(), |rest| Path::new(IB).join(rest)))
    }
}

fn target(text: &str) -> Option<&str> {
    text.strip_prefix("-> ")
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_finds_the_usual_files_whatever_the_last_one_has_changed() {
        let tree = Tree::new(SYSFS);
        let place =
            |path: &str| u8::try_from(SYSFS.iter().position(|(known, _)| *known == path).unwrap()).unwrap();
        let (lid, device) = (place("IB/ports/1/lid"), place("IB/device"));
        let read = |parts: &[&[u8]]| {
            let look = |reader: &Reader, _: &Changed| {
                let lid = reader.folder("/sys/class/infiniband/mlx5_0/ports/1").text("lid");
                (lid, reader.text("/sys/class/infiniband/mlx5_0/device/vendor"))
            };
            tree.with(&parts.join(&0xff), look)
        };
        let found = |lid: Option<&str>, vendor: Option<&str>| {
            ((lid.map(str::to_owned), vendor.map(str::to_owned)), Vec::new())
        };
        let usual = found(Some("0x1"), Some("0x15b3"));
        assert_eq!(read(&[]), usual);
        for _ in 0..2 {
            assert_eq!(read(&[&[lid, b'7']]), found(Some("7"), Some("0x15b3")));
            assert_eq!(read(&[&[lid, b'8']]), found(Some("8"), Some("0x15b3")));
            assert_eq!(read(&[&[lid]]), found(None, Some("0x15b3")));
            assert_eq!(read(&[&[lid, b'9']]), found(Some("9"), Some("0x15b3")));
            assert_eq!(read(&[]), usual);
            assert_eq!(read(&[&[device, b'x']]), found(Some("0x1"), None));
            assert_eq!(read(&[&[device]]), found(Some("0x1"), None));
            assert_eq!(read(&[&[device, b'y'], &[lid]]), found(None, None));
            assert_eq!(read(&[]), usual);
            assert_eq!(read(&[&[lid]]), found(None, Some("0x15b3")));
            assert_eq!(read(&[]), usual);
        }
    }
}
