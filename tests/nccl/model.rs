//! Compares the program's model of NCCL with NCCL: what the program predicts, and what the
//! library then does on the same host.

use std::collections::BTreeMap;

use rdma_init::facts::Facts;
use rdma_init::libraries::nccl::predict::{Bootstrap, GidUse, Transport, predict};
use rdma_init::libraries::nccl::version::Version;

use super::case::{Ask, Case};
use super::host::Host;
use super::outcome::{Failure, Ib, Outcome};
use crate::support::nccl::Library;

pub type Environment = Vec<(String, String)>;

/// A decision in a form to which a prediction and the library's behaviour can both be brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub bootstrap: String,
    /// The slot of each port, such as `mlx5_0:1/RoCE`. The order of the ports does not count.
    pub ports: BTreeMap<String, String>,
}

pub fn version(library: &Library) -> Version {
    Version::parse(&library.version).unwrap()
}

pub fn case(facts: &Facts, environment: &Environment) -> Case {
    Case { host: Host::of(facts), environment: environment.clone(), asks: vec![Ask::Bootstrap, Ask::Ib] }
}

/// Returns what the program predicts.
pub fn predicted(facts: &Facts, environment: &Environment, version: Version) -> Decision {
    // If a name comes twice, the first value counts, as for getenv(3).
    let get =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let prediction = predict(facts, get, version);
    let bootstrap = match prediction.bootstrap {
        Bootstrap::On(endpoint) => format!("{} {}", endpoint.interface, endpoint.address),
        Bootstrap::Fails(message) => message,
        Bootstrap::DependsOnName(name) => panic!("no test can tell where {name} is"),
    };
    let ports = match prediction.transport {
        Transport::Verbs(ports) => ports,
        _ => Vec::new(),
    };
    let ports = ports.into_iter().map(|port| {
        let (layer, slot) = match port.gid {
            None => ("IB", "any".to_owned()),
            Some(GidUse::Slot { index, .. }) => ("RoCE", index.to_string()),
            Some(GidUse::Fails(why)) if why.contains("crashes") => ("RoCE", "crashes".to_owned()),
            Some(GidUse::Fails(_)) => ("RoCE", "fails".to_owned()),
        };
        (format!("{}:{}/{layer}", port.hca, port.port), slot)
    });
    Decision { bootstrap, ports: ports.collect() }
}

/// Returns what NCCL did.
pub fn observed(outcome: &Outcome) -> Decision {
    let bootstrap = match outcome.bootstrap.as_ref().expect("asked for") {
        Ok((interface, address)) => format!("{interface} {address}"),
        Err(failure) => message(failure),
    };
    let using = outcome.ib.iter().flat_map(|ib: &Ib| &ib.using);
    let ports = using.map(|used| {
        let slot = match &used.gid {
            // NCCL needs no slot on InfiniBand.
            _ if used.link_layer == "IB" => "any".to_owned(),
            Some(Ok(index)) => index.to_string(),
            Some(Err(_)) => "fails".to_owned(),
            None => "crashes".to_owned(),
        };
        (format!("{}:{}/{}", used.hca, used.port, used.link_layer), slot)
    });
    Decision { bootstrap, ports: ports.collect() }
}

/// Returns the last of several warnings, because it names the failure.
fn message(failure: &Failure) -> String {
    failure.warnings.last().cloned().unwrap_or_else(|| format!("result {}", failure.code))
}
