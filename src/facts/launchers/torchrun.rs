//! The arguments of torchrun in the command to start.

mod options;

use self::options::TorchrunOptions;
use super::{Said, Seen, Sourced, parse_nodes, parse_number};
use crate::text::{shortened, visible};

/// The modules that are torchrun, if they follow `python -m`.
const MODULES: [&str; 2] = ["torch.distributed.run", "torch.distributed.launch"];

pub(super) fn arguments(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let Some(words) = words(seen.command) else { return Ok(false) };
    let options = TorchrunOptions::of(words);
    let value = |name: &str| options.value(name);
    if value("--standalone").is_some() {
        // This is a separate job on each node, regardless of which launcher started the nodes.
        said.is_part = false;
        said.nodes = Some(Sourced { value: 1, from: "torchrun --standalone".to_owned() });
        said.node = Some(Sourced { value: 0, from: String::new() });
        return Ok(true);
    }
    let from = |name: &str| format!("torchrun {name}");
    said.nodes = value("--nnodes").map(|text| parse_nodes(&from("--nnodes"), text)).transpose()?;
    said.node = value("--node-rank").map(|text| parse_number(&from("--node-rank"), text)).transpose()?;
    said.meet = value("--master-addr")
        .map(|host| Sourced::new(host.to_owned(), &from("--master-addr"), host))
        .or_else(|| {
            let place = value("--rdzv-endpoint")?;
            Some(Sourced::new(host_of(place)?, &from("--rdzv-endpoint"), place))
        });
    said.job = value("--rdzv-id").map(|id| Sourced::new(id.to_owned(), &from("--rdzv-id"), id));
    match &options.unclear {
        Some(option) => {
            said.uncounted = Some(format!(
                "rdma-init does not know torchrun's option {}, so the next word may be its value or the script",
                visible(&shortened(option))
            ));
        }
        // Without the option and its variable, torchrun starts one node.
        None if said.nodes.is_none() && seen.variable("PET_NNODES").is_none() => {
            said.nodes_by_default = Some(Sourced { value: 1, from: "torchrun without --nnodes".to_owned() });
        }
        None => {}
    }
    Ok(true)
}

/// Returns the words after torchrun; `None` if the command is not torchrun. Does not look into shell scripts.
fn words(command: &[String]) -> Option<&[String]> {
    let is_torchrun = |word: &String| word.rsplit('/').next() == Some("torchrun");
    let is_module = |pair: &[String]| pair[0] == "-m" && MODULES.contains(&pair[1].as_str());
    let start = match command.windows(2).position(is_module) {
        Some(at) => at + 2,
        None => command.iter().position(is_torchrun)? + 1,
    };
    command.get(start..)
}

/// Returns the host in a variable's rendezvous endpoint. Its port belongs to torchrun.
pub(super) fn rendezvous_host(seen: &Seen, variable: &str) -> Option<Sourced<String>> {
    let place = seen.variable(variable)?;
    Some(Sourced::new(host_of(place)?, variable, place))
}

/// Returns the host of `node0:29400` or `[fd00::1]:29400`. For etcd, this is the address of the etcd server,
/// which is not a node.
fn host_of(place: &str) -> Option<String> {
    let host = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => place.rsplit_once(':').map_or(place, |(host, _)| host),
    };
    (!host.is_empty()).then(|| host.to_owned())
}
