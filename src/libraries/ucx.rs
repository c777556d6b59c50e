//! UCX, and NIXL and MPI on it.

use crate::fabric::Rails;

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    let ports = rails.port_names();
    if variable != "UCX_NET_DEVICES" || ports.is_empty() {
        return None;
    }
    // A list of HCAs alone takes TCP from UCX, and with it the way to a process itself and to
    // the first messages: NIXL ends with NIXL_ERR_BACKEND.
    Some(format!("{},{}", ports.join(","), rails.interface?))
}
