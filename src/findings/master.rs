//! Where the processes of the job meet: `MASTER_ADDR`, which leads each node but the first to another
//! one.

use std::net::IpAddr;

use crate::facts::Facts;
use crate::finding::{Finding, Id};

/// The finding, on a node other than the first.
pub fn finding(facts: &Facts) -> Option<Finding> {
    let nodes = facts.platform.nodes.filter(|nodes| nodes.this > 0)?;
    let master = facts.platform.master_addr.as_deref()?;
    let literal = master.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let of_file = || facts.names.as_ref().and_then(|names| names.master_addresses.first().copied());
    let (address, from) = match literal {
        Some(address) => (address, ""),
        None if is_localhost(master) => (IpAddr::from([127, 0, 0, 1]), ""),
        None => (of_file()?, " in /etc/hosts"),
    };
    if !address.is_loopback() {
        return None;
    }
    let what = if literal.is_some() { String::new() } else { format!(", which is {address}{from}") };
    let message = format!(
        "MASTER_ADDR={master}{what}: that is this node itself, and it is number {} of {} (counted from 0). Its processes will wait for a master that is not here, and the job does not start.",
        nodes.this, nodes.count
    );
    Some(Finding::warning(Id::MasterLoopback, message).about_variables(["MASTER_ADDR"]).with_fix(
        "Set MASTER_ADDR to an address of the first node, or to a name that leads there from each node.",
    ))
}

/// The name of this host itself, whatever a file says (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
}
