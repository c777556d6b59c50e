//! NVIDIA GPUs, as far as they show without a driver library.

use serde::{Deserialize, Serialize};

use super::reader::Reader;
use crate::sorted;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// Device nodes `/dev/nvidiaN`; `None` where there are none, because GPUs of
    /// another make would not show.
    pub count: Option<u32>,
    /// Models in `/proc/driver/nvidia/gpus`, each once.
    pub models: Vec<String>,
    /// The first line of `/proc/driver/nvidia/version`, which names the kind of the
    /// kernel module.
    pub driver: Option<String>,
    /// The file that shows that NICs can be given the memory of GPUs by the driver's
    /// own module, among those that NCCL asks for (`ncclIbGdrSupport`).
    pub peer_memory: Option<String>,
}

/// `src/transport/net_ib.cc`, `ncclIbGdrSupport`.
const PEER_MEMORY: &[&str] = &[
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/sys/module/nvidia_peermem/version",
];

pub fn read(reader: &Reader) -> Gpus {
    let mut nodes = 0u32;
    // Every driver library opens this one first; without it, the rest of /dev tells nothing.
    if reader.may_be_there("/dev/nvidiactl") {
        reader.each_name("/dev", |name| nodes += u32::from(is_gpu(name)));
    }
    let folder = "/proc/driver/nvidia/gpus";
    let mut models: Vec<String> = reader
        .names(folder)
        .iter()
        .filter_map(|gpu| reader.text(format!("{folder}/{gpu}/information")))
        .filter_map(|text| {
            let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
            Some(model.trim().to_owned())
        })
        .collect();
    sorted::by(&mut models, Ord::cmp);
    models.dedup();
    if nodes == 0 {
        return Gpus { models, ..Gpus::default() };
    }
    let driver = reader.text("/proc/driver/nvidia/version");
    Gpus {
        count: Some(nodes),
        models,
        driver: driver.and_then(|text| text.lines().next().map(str::to_owned)),
        peer_memory: PEER_MEMORY.iter().find(|path| reader.may_be_there(path)).map(|path| (*path).to_owned()),
    }
}

/// `nvidia0`, and not `nvidiactl`.
fn is_gpu(node: &str) -> bool {
    node.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
