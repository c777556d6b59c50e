//! UCX, and NIXL and MPI on it.

use super::Fabric;

pub fn value(variable: &str, fabric: &Fabric) -> Option<String> {
    if variable != "UCX_NET_DEVICES" || fabric.ports.is_empty() {
        return None;
    }
    // A list of HCAs alone takes TCP from UCX, and with it the way to a process itself and to
    // the first messages: NIXL ends with NIXL_ERR_BACKEND.
    Some(format!("{},{}", fabric.ports.join(","), fabric.interface?))
}
