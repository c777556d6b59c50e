//! Programs that give other nodes an address of this one.

use super::shown;
use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::may_fill;
use crate::libraries::node_address::{Remark, TARGET, What, Wrong};
use crate::plan::Decided;

pub(super) fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let Remark { library, variable, what, right } = remark;
    let set = variable.map(|variable| shown(decided, variable)).unwrap_or_default();
    let name = variable.unwrap_or_default();
    let right = right.map_or("ADDRESS".to_owned(), |address| address.to_string());
    let mend = match may_fill(name) {
        true => format!("Remove {name}: rdma-init fills in the right address if {library} needs it."),
        false => format!("Set {name}={right}, on each node with its own address."),
    };
    let finding = match what {
        What::Value(wrong) => {
            let otherwise = format!("name the right interface in NCCL_SOCKET_IFNAME, or remove {name}.");
            of_address(decided, library, wrong, &set, &mend, &otherwise)
        }
        What::Option { option, value, wrong } => {
            let set = format!("{option}={value}");
            let mend = format!("Start {library} with {option}={right}, on each node with its own address.");
            let otherwise =
                format!("name the right interface in NCCL_SOCKET_IFNAME, or start {library} with {option}={right}.");
            of_address(decided, library, wrong, &set, &mend, &otherwise)
        }
        What::NoInterface(_) => Finding::warning(
            Id::LibraryInterface,
            format!("{set}: no interface here has this name and an address, so {library} ignores it."),
        )
        .with_fix(mend),
        What::RayElsewhere { takes, interface, meets } => Finding::info(
            Id::NodeAddress,
            format!(
                "vLLM and Ray (without --node-ip-address) take {takes} on {interface}, the source of the route to {TARGET}, but NCCL bootstraps on {meets}. rdma-init does not fill in {name}: it must be the address by which Ray knows this node, and Ray reads no variable for that."
            ),
        )
        .about_interfaces([interface.clone(), meets.clone()])
        .with_fix(format!(
            "If {interface} reaches all nodes, do nothing. Otherwise start Ray with --node-ip-address={right} and set {name}={right}, on each node with its own address."
        )),
        What::RayDiffers { known_by, is_named } => {
            let by = if *is_named { "--node-ip-address" } else { "by the route, as --node-ip-address is not set" };
            Finding::warning(
                Id::NodeAddress,
                format!(
                    "{set}: Ray knows this node as {known_by} ({by}), so vLLM requests a placement on a node that Ray does not have, and waits forever."
                ),
            )
            .with_fix(format!("Set {name} and --node-ip-address of ray start to the same address, on each node to its own."))
        }
        What::NotRead { takes } => {
            let message = format!("{set}: Ray does not read this variable.");
            let fix = format!("Start Ray with --node-ip-address={right}, on each node with its own address, and remove {name}.");
            match takes {
                Some(takes) => {
                    Finding::warning(Id::NodeAddress, format!("{message} It takes {takes} for this node."))
                }
                None => Finding::info(
                    Id::NodeAddress,
                    format!("{message} Ray takes the address of this node only from --node-ip-address of ray start."),
                ),
            }
            .with_fix(fix)
        }
        What::NotInside(address) => Finding::warning(
            Id::NodeAddress,
            format!("{set}: no interface of this container has {address}, so the processes of {library} on this node cannot connect there."),
        )
        .with_fix(format!("Remove {name}: {library} then takes the loopback.")),
        What::RayOnLoopback(takes) => on_loopback(
            decided.facts,
            format!(
                "No route leads to {TARGET}, so Ray, if it is started without --node-ip-address, takes {takes}, the address of the host's name in /etc/hosts as the address of this node: no other node can reach it there."
            ),
        )
        .with_fix(format!("Start Ray with --node-ip-address={right}, on each node with its own address.")),
    };
    finding.about_variables(*variable)
}

/// What is wrong with an address, as it is set. `otherwise` is what helps if it does not lead to all nodes.
fn of_address(
    decided: &Decided,
    library: &str,
    wrong: &Wrong,
    set: &str,
    mend: &str,
    otherwise: &str,
) -> Finding {
    match wrong {
        Wrong::Foreign => Finding::warning(
            Id::NodeAddress,
            format!(
                "{set}: no interface of this container has this address. {library} cannot listen on it, and gives it to the other nodes."
            ),
        )
        .with_fix(mend),
        Wrong::Loopback => on_loopback(
            decided.facts,
            format!("{set}: {library} gives this address to the other nodes, and they look for it on themselves."),
        )
        .with_fix(mend),
        Wrong::Elsewhere { interface, meets } => Finding::info(
            Id::NodeAddress,
            format!("{set} is an address of {interface}, but NCCL bootstraps on {meets}: both must reach all nodes."),
        )
        .about_interfaces([interface.clone(), meets.clone()])
        .with_fix(format!("If both reach all nodes, do nothing. Otherwise {otherwise}")),
    }
}

/// On the loopback nothing is wrong if the job has one node, which is mostly not known.
fn on_loopback(facts: &Facts, message: String) -> Finding {
    match facts.platform.nodes {
        Some(nodes) if nodes.count > 1 => Finding::warning(Id::NodeAddress, message),
        _ => Finding::info(Id::NodeAddress, format!("{message} On a single node, nothing is wrong.")),
    }
}
