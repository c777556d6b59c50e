//! NVSHMEM.

use super::Fabric;

pub fn value(variable: &str, fabric: &Fabric) -> Option<String> {
    match variable {
        "NVSHMEM_HCA_LIST" if !fabric.ports.is_empty() => Some(fabric.ports.join(",")),
        "NVSHMEM_IB_GID_INDEX" => fabric.gid_index.map(|index| index.to_string()),
        _ => None,
    }
}
