//! The arguments of torchrun in the command that is to be started.
//!
//! Its options are those of `get_args_parser` in torch/distributed/run.py of PyTorch 2.9, each of
//! which may be written with hyphens or underscores.

use super::launchers::{Said, of_nodes, of_number};
use super::{Seen, Told};

/// The modules that are torchrun, after `python -m`.
const MODULES: [&str; 2] = ["torch.distributed.run", "torch.distributed.launch"];

/// The options without a value.
const FLAGS: [&str; 7] =
    ["--standalone", "--module", "-m", "--no-python", "--run-path", "--use-env", "--virtual-local-rank"];

pub(super) fn arguments(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let Some(options) = options(seen.command) else { return Ok(false) };
    let find = |name: &str| options.iter().rev().find(|(option, _)| option == name);
    let value = |name: &str| find(name).map(|(_, value)| value.as_str());
    if find("--standalone").is_some() {
        said.nodes = Some(Told { value: 1, from: "torchrun --standalone".to_owned() });
        return Ok(true);
    }
    let from = |name: &str| format!("torchrun {name}");
    said.nodes = value("--nnodes").map(|text| of_nodes(&from("--nnodes"), text)).transpose()?;
    said.node = value("--node-rank").map(|text| of_number(&from("--node-rank"), text)).transpose()?;
    said.meet = value("--master-addr")
        .map(|host| Told::new(host.to_owned(), &from("--master-addr"), host))
        .or_else(|| {
            let place = value("--rdzv-endpoint")?;
            Some(Told::new(host_of(place)?, &from("--rdzv-endpoint"), place))
        });
    said.job = value("--rdzv-id").map(|id| Told::new(id.to_owned(), &from("--rdzv-id"), id));
    // Without an option and without its variable, torchrun starts one node.
    if said.nodes.is_none() && seen.variable("PET_NNODES").is_none() {
        said.nodes = Some(Told { value: 1, from: "torchrun without --nnodes".to_owned() });
    }
    Ok(true)
}

/// The options between torchrun and the script, each with its value; `None` if the command is not
/// torchrun. A shell's script is not looked into.
fn options(command: &[String]) -> Option<Vec<(String, String)>> {
    let is_torchrun = |word: &String| word.rsplit('/').next() == Some("torchrun");
    let is_module = |pair: &[String]| pair[0] == "-m" && MODULES.contains(&pair[1].as_str());
    let start = match command.windows(2).position(is_module) {
        Some(at) => at + 2,
        None => command.iter().position(is_torchrun)? + 1,
    };
    let mut words = command[start..].iter();
    let mut options = Vec::new();
    while let Some(word) = words.next().filter(|word| word.starts_with('-') && *word != "--") {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
            None => (word.replace('_', "-"), None),
        };
        let value = match value {
            Some(value) => value,
            None if FLAGS.contains(&name.as_str()) => String::new(),
            None => words.next()?.clone(),
        };
        options.push((name, value));
    }
    Some(options)
}

/// The host in a rendezvous endpoint of a variable. Its port is torchrun's own.
pub(super) fn rendezvous_host(seen: &Seen, variable: &str) -> Option<Told<String>> {
    let place = seen.variable(variable)?;
    Some(Told::new(host_of(place)?, variable, place))
}

/// `node0:29400`, `[fd00::1]:29400`; etcd has its address here, too, where no node is.
fn host_of(place: &str) -> Option<String> {
    let host = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => place.rsplit_once(':').map_or(place, |(host, _)| host),
    };
    (!host.is_empty()).then(|| host.to_owned())
}
