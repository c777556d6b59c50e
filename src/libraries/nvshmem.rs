//! NVSHMEM.

use crate::fabric::Rails;

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    match variable {
        "NVSHMEM_HCA_LIST" => Some(rails.port_names().join(",")).filter(|list| !list.is_empty()),
        "NVSHMEM_IB_GID_INDEX" => rails.gid_index.map(|index| index.to_string()),
        _ => None,
    }
}
