//! NVIDIA GPUs, as far as they show without a driver library.

use serde::{Deserialize, Serialize};

use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// Device nodes `/dev/nvidiaN`; `None` where there are none, because GPUs of
    /// another make would not show.
    pub count: Option<u32>,
    /// Models in `/proc/driver/nvidia/gpus`, each once.
    pub models: Vec<String>,
}

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
    models.sort();
    models.dedup();
    Gpus { count: (nodes > 0).then_some(nodes), models }
}

/// `nvidia0`, and not `nvidiactl`.
fn is_gpu(node: &str) -> bool {
    node.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
