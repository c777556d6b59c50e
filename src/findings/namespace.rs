//! RDMA devices in another network namespace.

use super::fabric::asks_for_tcp;
use crate::fabric::claims::sees_those_of_others;
use crate::finding::{Finding, Id};
use crate::plan::{Context, uverbs_nodes};

/// How to get a device into the container.
const MOVE: &str = "Kubernetes: add the RDMA CNI plugin (rdma) to the network's chain, or use a DRA driver such as DRANET. Docker: `rdma dev set NAME netns PID` on the node. Or let all containers see it: `rdma system set netns shared` on the node, before it has containers.";

/// Reports uverbs nodes of this container whose devices it cannot use.
pub(super) fn finding(context: &Context) -> Option<Finding> {
    let facts = context.facts;
    let nodes = &facts.rdma_elsewhere;
    if nodes.is_empty() || asks_for_tcp(context) {
        return None;
    }
    let (exists, device, it, along) = match nodes.len() {
        1 => (
            "exists",
            "its RDMA device is",
            "the device",
            "the RDMA device into the container along with its interface",
        ),
        _ => (
            "exist",
            "their RDMA devices are",
            "these devices",
            "the RDMA devices into the container along with their interfaces",
        ),
    };
    let start = format!(
        "{} {exists}, but {device} in another network namespace (`rdma system` of the node: netns exclusive): no library can open {it}",
        uverbs_nodes(nodes)
    );
    let fix = format!("Move {along}. {MOVE}");
    Some(if facts.rdma.is_empty() {
        Finding::error(Id::RdmaNamespace, format!("{start}, and the job will run on TCP.")).with_fix(fix)
    } else if sees_those_of_others(facts) {
        let message = format!(
            "{start}. A privileged container has the nodes of all devices of its machine, so {it} may belong to other containers."
        );
        Finding::info(Id::RdmaNamespace, message)
            .with_fix(format!("If this container should use {it}, move {along}. {MOVE}"))
    } else {
        Finding::warning(Id::RdmaNamespace, format!("{start}, and the job has only the other devices here."))
            .with_fix(fix)
    })
}
