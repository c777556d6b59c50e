//! Memory in NUMA nodes without a CPU, such as the memory of GPUs that share the CPU's address space over C2C
//! links (`drivers/base/node.c`; `nv_procfs_read_numa_status` in NVIDIA's driver).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::reader::Reader;

const NODES: &str = "/sys/devices/system/node";

/// The most GPUs to read the state of; no machine has as many.
const MOST: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoherentMemory {
    /// The NUMA nodes that have memory but no CPU, in the kernel's list format: `2-9`. This is memory of
    /// GPUs, CXL devices, and similar devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_cpu: Option<String>,
    /// The number of GPUs whose memory is in a NUMA node (`numa_status` of the driver). The driver's files
    /// may be hidden in a container.
    #[serde(skip_serializing_if = "is_zero")]
    pub of_gpus: usize,
    /// In bytes: the free memory in CMA pageblocks that belongs to no CMA area (`CmaFree` above `CmaTotal` in
    /// `/proc/meminfo`). Kexec handover (KHO) gives its scratch memory to the page allocator in this form
    /// (`kho_init`, kernel/liveupdate/kexec_handover.c).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cma_outside_areas: Option<u64>,
}

impl CoherentMemory {
    pub fn is_empty(&self) -> bool {
        *self == CoherentMemory::default()
    }

    /// Returns whether a NUMA node has memory but no CPU.
    pub fn is_without_cpu(&self, node: u32) -> bool {
        self.without_cpu
            .as_deref()
            .is_some_and(|list| runs(list).any(|(first, last)| (first..=last).contains(&node)))
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Reads the memory of a machine with GPUs. What can be pinned matters only if there is an HCA.
pub(crate) fn read(reader: &Reader, has_hca: bool) -> CoherentMemory {
    let list = |file: &str| reader.text_if_readable(format!("{NODES}/{file}")).unwrap_or_default();
    let with_cpu = numbers(&list("has_cpu"));
    let mut without: Vec<u32> = numbers(&list("has_memory"));
    // If the kernel does not report which nodes have a CPU, no node counts as one without a CPU.
    without.retain(|node| !with_cpu.is_empty() && !with_cpu.contains(node));
    let gpus = reader.names("/proc/driver/nvidia/gpus");
    let has_node = |gpu: &&String| {
        let path = format!("/proc/driver/nvidia/gpus/{gpu}/numa_status");
        reader.text_if_readable(path).is_some_and(|text| {
            text.lines()
                .any(|line| line.strip_prefix("Status:").is_some_and(|status| status.trim() == "online"))
        })
    };
    CoherentMemory {
        without_cpu: (!without.is_empty()).then(|| ranges(&without)),
        of_gpus: gpus.iter().take(MOST).filter(has_node).count(),
        cma_outside_areas: has_hca
            .then(|| reader.text_if_readable("/proc/meminfo"))
            .flatten()
            .and_then(|text| outside_areas(&text)),
    }
}

/// Returns the difference of `CmaFree` and `CmaTotal`, which the kernel gives in KiB.
fn outside_areas(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let outside = kib("CmaFree")?.checked_sub(kib("CmaTotal")?)?;
    outside.checked_mul(1024).filter(|bytes| *bytes > 0)
}

/// The most NUMA nodes that a kernel supports (`MAX_NUMNODES`).
const MOST_NODES: u32 = 1024;

/// Returns the runs of a list such as `0-1,4` (`lib/bitmap.c`), each with its first and last number.
fn runs(list: &str) -> impl Iterator<Item = (u32, u32)> {
    let runs = list.trim().split(',').take(MOST_NODES as usize);
    runs.filter_map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        Some((first.parse().ok()?, last.parse::<u32>().ok()?.min(MOST_NODES)))
    })
}

/// Returns all numbers of a list, in their order.
fn numbers(list: &str) -> Vec<u32> {
    let numbers: BTreeSet<u32> = runs(list).flat_map(|(first, last)| first..=last).collect();
    numbers.into_iter().collect()
}

/// Formats a sorted list of numbers as the kernel does: `0-1,4`.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number == *last + 1 => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn cma_memory_outside_of_areas_is_more_than_the_areas_have() {
        for (text, bytes) in [
            (
                "MemTotal: 1 kB\nCmaTotal:              0 kB\nCmaFree:         9752576 kB\n",
                Some(9_752_576 * 1024),
            ),
            ("CmaTotal:          32768 kB\nCmaFree:           32768 kB\n", None),
            ("CmaTotal:          65536 kB\nCmaFree:            1024 kB\n", None),
            ("CmaFree:            1024 kB\n", None),
            ("CmaTotal: odd\nCmaFree: 18446744073709551615 kB\n", None),
            ("CmaTotal: 0 kB\nCmaFree: 18446744073709551615 kB\n", None),
        ] {
            assert_eq!(outside_areas(text), bytes, "{text}");
        }
    }

    #[test]
    fn nodes_with_memory_and_no_cpu_are_named() {
        for (memory, cpu, without) in [
            ("0-1,4,12,20,28", "0-1", Some("4,12,20,28")),
            ("0-9", "0", Some("1-9")),
            ("0-1", "0-1", None),
            ("2,0-1,2", "0-1", Some("2")),
            ("0-1", "", None),
            ("0-4294967295", "0", Some("1-1024")),
            ("word,3-x", "0", None),
        ] {
            let root = FakeRoot::new();
            root.file("sys/devices/system/node/has_memory", format!("{memory}\n"));
            root.file("sys/devices/system/node/has_cpu", format!("{cpu}\n"));
            assert_eq!(read(&root.reader(), true).without_cpu.as_deref(), without, "{memory} {cpu}");
        }
        assert!(read(&Reader::nowhere(), true).is_empty());
    }

    #[test]
    fn a_gpu_has_a_node_if_the_driver_says_that_it_is_online() {
        let root = FakeRoot::new();
        for (gpu, status) in [("0008:06:00.0", "online"), ("0009:06:00.0", "offline")] {
            let status = format!("Node:      4\nStatus:    {status}\n");
            root.file(&format!("proc/driver/nvidia/gpus/{gpu}/numa_status"), status);
        }
        root.folder("proc/driver/nvidia/gpus/0018:06:00.0");
        assert_eq!(read(&root.reader(), true).of_gpus, 1);
    }
}
