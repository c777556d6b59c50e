//! vLLM's list of the variables that it does not copy between nodes.

use crate::facts::node_list::Holds;
use crate::finding::{Finding, Id};
use crate::plan::Decided;

/// Reports that the file is not a list: in this case, vLLM copies the driver's variables to the workers on
/// all nodes, or exits.
pub(super) fn finding(decided: &Decided) -> Option<Finding> {
    let list = decided.facts.node_list.as_ref().filter(|list| list.holds == Holds::NoList)?;
    Some(
        Finding::warning(
            Id::VllmNodeList,
            format!(
                "{} is not a JSON list. vLLM ignores it or fails on it; if vLLM continues, the workers on other nodes get this node's variables. rdma-init does not change the file.",
                list.path
            ),
        )
        .with_fix(format!(
            "Make it a list of names, as [\"MY_VARIABLE\"], or remove it: at the next start, rdma-init writes {} itself.",
            list.path
        )),
    )
}
