//! `MASTER_ADDR`, through which the processes of the job find each other: on every node except the first, it
//! must resolve to another node.

use std::net::IpAddr;

use crate::facts::Facts;
use crate::facts::hosts::is_localhost;
use crate::facts::names::{self, Master};
use crate::finding::{Finding, Id};

const FIX: &str =
    "Set MASTER_ADDR to an address of the first node, or to a name that resolves to it on each node.";

/// Returns the finding, if the name resolves to loopback, or does not resolve.
pub(super) fn finding(facts: &Facts) -> Option<Finding> {
    let name = facts.platform.master_addr.as_deref()?;
    let node = facts.platform.nodes;
    if let Some(node) = node.filter(|node| node.this == 0) {
        return on_first(name, node.count);
    }
    let found = facts.names.as_ref().and_then(|names| names.master.as_ref());
    if let Some(Master::Unknown(why)) = found {
        return Some(unknown(name, why));
    }
    let (address, what) = on_loopback(name, found)?;
    let lost = match node {
        Some(node) => format!(
            "that is this node, which has index {} of {} nodes (counted from 0). Its processes will wait for a master that is not here, and the job does not start.",
            node.this, node.count
        ),
        // A user who sets a loopback address, or this host's own name, may intend this.
        None if found.is_none() || is_own(facts, name, address) => return None,
        None => "the processes of this node look for the master on their own node. On every node but the master's, torch.distributed times out.".to_owned(),
    };
    let message = format!("MASTER_ADDR={name}{what}: {lost}");
    Some(Finding::warning(Id::MasterLoopback, message).about_variables(["MASTER_ADDR"]).with_fix(FIX))
}

/// Returns the finding for the first node. This node listens on all of its addresses, and operators set
/// `localhost` on it alone (Kubeflow's training operator). An address, however, is the same on all nodes.
fn on_first(name: &str, count: u32) -> Option<Finding> {
    let address: IpAddr = name.trim_matches(['[', ']']).parse().ok()?;
    let message = format!(
        "MASTER_ADDR={name}: this is the first of {count} nodes, and no other node can reach it there. A node with the same value looks for the master on itself, and the job does not start."
    );
    let finding = Finding::warning(Id::MasterLoopback, message).about_variables(["MASTER_ADDR"]);
    (address.is_loopback() && count > 1).then(|| finding.with_fix(FIX))
}

/// Returns the loopback address that the name resolves to, and a clause about how.
fn on_loopback(name: &str, found: Option<&Master>) -> Option<(IpAddr, String)> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address.is_loopback().then(|| (address, String::new()));
    }
    let (all, from) = match found {
        _ if is_localhost(name) => return Some((IpAddr::from([127, 0, 0, 1]), String::new())),
        Some(Master::InFile(all)) => (all, "in /etc/hosts"),
        Some(Master::ByDns(all)) => (all, "in DNS"),
        _ => return None,
    };
    // c10d tries every address.
    let first = all.first().filter(|_| all.iter().all(IpAddr::is_loopback))?;
    Some((*first, format!(", which is {first} {from}")))
}

fn is_own(facts: &Facts, name: &str, address: IpAddr) -> bool {
    let is_this = |names: &names::Names| {
        names::is_same_host(name, &names.host) || names.host_addresses.contains(&address)
    };
    is_localhost(name) || facts.names.as_ref().is_some_and(is_this)
}

/// Reports that the name does not resolve. The processes keep looking it up until their timeout
/// (`SocketConnectOp::tryConnect` in `torch/csrc/distributed/c10d/socket.cpp`, PyTorch 1.12 and later).
fn unknown(name: &str, why: &str) -> Finding {
    let message = format!(
        "This node cannot resolve MASTER_ADDR={name} yet: {why}. The processes of torch.distributed retry until their timeout."
    );
    Finding::info(Id::MasterUnknown, message).about_variables(["MASTER_ADDR"]).with_fix(
        "If the first node is still starting, do nothing. Otherwise correct the name, or create its DNS entry: in Kubernetes, a headless Service.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::launchers::Nodes;
    use crate::facts::names::Names;
    use crate::facts::platform::Platform;

    /// Returns the id of the finding on a node with the host name `node-1`, which its /etc/hosts resolves to
    /// 127.0.1.1.
    fn said(name: &str, this: Option<u32>, master: Option<Master>) -> Option<&'static str> {
        let nodes = this.map(|this| Nodes { count: 2, this });
        let platform = Platform { master_addr: Some(name.to_owned()), nodes, ..Platform::default() };
        let host_addresses = vec!["127.0.1.1".parse().unwrap()];
        let names = Some(Names { host: "node-1".to_owned(), host_addresses, master, ..Names::default() });
        finding(&Facts { names, platform, ..Facts::default() }).map(|finding| finding.id.name())
    }

    #[test]
    fn a_master_that_leads_to_this_node_is_lost_unless_this_is_the_master() {
        let all = |addresses: &[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        let file = |addresses: &[&str]| Some(Master::InFile(all(addresses)));
        let lost = Some("master-loopback");
        for (name, this, master, expected) in [
            ("node-0", None, file(&["127.0.0.1"]), lost),
            ("node-0.local", None, file(&["127.0.0.1", "::1"]), lost),
            ("node-0", None, Some(Master::ByDns(all(&["127.0.0.1"]))), lost),
            ("node-0", Some(1), file(&["127.0.0.1"]), lost),
            ("node-1", Some(1), file(&["127.0.1.1"]), lost),
            ("localhost", Some(1), file(&["127.0.0.1"]), lost),
            ("127.0.0.1", Some(1), None, lost),
            ("[::1]", Some(1), None, lost),
            // The value is the same on all nodes.
            ("127.0.0.1", Some(0), None, lost),
            ("[::1]", Some(0), None, lost),
            ("10.0.0.1", Some(0), None, None),
            // This is the first node, or may be the first node.
            ("node-0", Some(0), file(&["127.0.0.1"]), None),
            ("localhost", Some(0), file(&["127.0.0.1"]), None),
            ("localhost", None, file(&["127.0.0.1"]), None),
            ("127.0.0.1", None, None, None),
            ("node-1.local", None, file(&["127.0.0.1"]), None),
            ("alias", None, file(&["127.0.1.1"]), None),
            // The name belongs to another node.
            ("node-0", Some(1), file(&["10.0.0.1"]), None),
            ("node-0", Some(1), file(&["127.0.0.1", "10.0.0.1"]), None),
            ("10.0.0.1", Some(1), None, None),
            ("node-0", Some(1), Some(Master::Unknown("no".to_owned())), Some("master-unknown")),
            ("node-0", None, Some(Master::Unknown("no".to_owned())), Some("master-unknown")),
        ] {
            assert_eq!(said(name, this, master), expected, "{name} {this:?}");
        }
    }
}
