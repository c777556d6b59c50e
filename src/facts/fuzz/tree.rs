//! A made-up host below a directory, in which the fuzzers replace the content of some files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::facts::Reader;

/// A file and its text; if the text starts with `-> `, a link and its target.
type Entry = (&'static str, &'static str);

const IB: &str = "sys/class/infiniband/mlx5_0";

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
    ("proc/self/status", "Name:\trdma-init\nNoNewPrivs:\t1\nSeccomp:\t2\nCapEff:\t00000000a80425fb\n"),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\n"),
];

pub(super) struct Tree {
    root: PathBuf,
    entries: &'static [Entry],
}

impl Tree {
    pub(super) fn new(entries: &'static [Entry]) -> Tree {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("rdma-init-fuzz-{}-{number}", std::process::id());
        let tree = Tree { root: std::env::temp_dir().join(name), entries };
        (0..entries.len()).for_each(|place| tree.restore(place));
        tree
    }

    /// Reads the host with these bytes in its files. The bytes 0xff separate the parts; the first byte of
    /// each part selects a file, and the rest is its new content. A part with only the first byte removes the
    /// file.
    pub(super) fn with<T>(&self, data: &[u8], read: impl FnOnce(Reader) -> T) -> T {
        let parts = data.split(|byte| *byte == 0xff).filter_map(<[u8]>::split_first);
        let mut changed = Vec::new();
        for (place, text) in parts.take(self.entries.len()) {
            let place = usize::from(*place) % self.entries.len();
            let path = self.path(place);
            let _ = fs::remove_file(&path);
            if !text.is_empty() {
                fs::write(&path, text).expect("a file of the tree");
            }
            changed.push(place);
        }
        let found = read(Reader::new(&self.root));
        changed.into_iter().for_each(|place| self.restore(place));
        found
    }

    fn path(&self, place: usize) -> PathBuf {
        let (path, _) = self.entries[place];
        self.root.join(path.strip_prefix("IB/").map_or(path.into(), |rest| Path::new(IB).join(rest)))
    }

    fn restore(&self, place: usize) {
        let (path, (_, text)) = (self.path(place), self.entries[place]);
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory of the tree");
        match text.strip_prefix("-> ") {
            Some(target) => symlink(target, &path),
            None => fs::write(&path, text),
        }
        .expect("a file of the tree");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
