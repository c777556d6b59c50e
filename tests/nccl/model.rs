//! Compares the program's model of NCCL with NCCL itself: the program's prediction, and what the library
//! then does on the same host.

use std::collections::BTreeMap;

use rdma_init::facts::Facts;
use rdma_init::libraries::nccl::log;
use rdma_init::libraries::nccl::predict::{Bootstrap, Fused, GidUse, predict};
use rdma_init::libraries::nccl::version::Version;

use super::case::{Ask, Case};
use super::host::Host;
use super::outcome::{Failure, Ib, Outcome};
use crate::support::nccl::Library;

pub type Environment = Vec<(String, String)>;

/// A decision in a form that both a prediction and the library's behavior can be converted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub bootstrap: String,
    /// The GID index of each port, such as `mlx5_0:1/RoCE`. The order of the ports does not matter.
    pub ports: BTreeMap<String, String>,
    /// The HCAs of each NIC that consists of several ports.
    pub nics: Nics,
}

/// An unknown value equals every value.
#[derive(Debug, Clone)]
pub enum Nics {
    Of(Vec<Vec<String>>),
    Fail(String),
    Unknown,
}

impl Nics {
    fn of(mut nics: Vec<Vec<String>>) -> Nics {
        nics.iter_mut().for_each(|nic| nic.sort());
        nics.sort();
        Nics::Of(nics)
    }
}

impl PartialEq for Nics {
    fn eq(&self, other: &Nics) -> bool {
        match (self, other) {
            (Nics::Unknown, _) | (_, Nics::Unknown) => true,
            (Nics::Of(a), Nics::Of(b)) => a == b,
            (Nics::Fail(a), Nics::Fail(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Nics {}

pub fn version(library: &Library) -> Version {
    Version::parse(&library.version).unwrap()
}

pub fn case(facts: &Facts, environment: &Environment) -> Case {
    Case {
        host: Host::of(facts),
        environment: environment.clone(),
        asks: vec![Ask::Bootstrap, Ask::Ib, Ask::Nics],
    }
}

/// Returns the program's prediction.
pub fn predicted(facts: &Facts, environment: &Environment, version: Version) -> Decision {
    // If a name occurs twice, the first value counts, as for getenv(3).
    let get =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let prediction = predict(facts, get, version);
    let bootstrap = match prediction.bootstrap {
        Bootstrap::On(endpoint) => format!("{} {}", endpoint.interface, endpoint.address),
        Bootstrap::Fails(message) => message,
        Bootstrap::DependsOnName(name) => panic!("no test can tell where {name} is"),
    };
    // The driver's image has no net plugin, so NCCL does what it does without the one that a host may have.
    let ports = prediction.transport.ports().unwrap_or_default().iter().map(|port| {
        let (layer, slot) = match &port.gid {
            None => ("IB", "any".to_owned()),
            Some(GidUse::Slot { index, .. }) => ("RoCE", index.to_string()),
            Some(GidUse::Fails(why)) if why.contains("crashes") => ("RoCE", "crashes".to_owned()),
            Some(GidUse::Fails(_)) => ("RoCE", "fails".to_owned()),
        };
        (format!("{}:{}/{layer}", port.hca, port.port), slot)
    });
    let nics = match prediction.fused {
        Fused::Nics(nics) => {
            Nics::of(nics.iter().map(|nic| nic.iter().map(|port| hca_of(port)).collect()).collect())
        }
        Fused::Fails(message) => Nics::Fail(message),
        Fused::Unknown => Nics::Unknown,
    };
    Decision { bootstrap, ports: ports.collect(), nics }
}

/// Returns the HCA of a port, because NCCL's names of NICs have no port numbers.
fn hca_of(port: &str) -> String {
    port.split(':').next().unwrap_or_default().to_owned()
}

/// Returns what NCCL did, in the same form.
pub fn observed(outcome: &Outcome) -> Decision {
    let bootstrap = match outcome.bootstrap.as_ref().expect("asked for") {
        Ok((interface, address)) => format!("{interface} {address}"),
        Err(failure) => message(failure),
    };
    let using = outcome.ib.iter().flat_map(|ib: &Ib| &ib.using);
    let ports = using.map(|used| {
        let slot = match &used.gid {
            // NCCL needs no GID index on InfiniBand.
            _ if used.link_layer == "IB" => "any".to_owned(),
            Some(Ok(index)) => index.to_string(),
            Some(Err(_)) => "fails".to_owned(),
            None => "crashes".to_owned(),
        };
        (format!("{}:{}/{}", used.hca, used.port, used.link_layer), slot)
    });
    let nics = match &outcome.nics {
        Some(Ok(nics)) => Nics::of(nics.clone()),
        Some(Err(failure)) => Nics::Fail(message(failure)),
        // NCCL crashed before this question, or was not asked.
        None => Nics::Unknown,
    };
    Decision { bootstrap, ports: ports.collect(), nics }
}

/// Returns the start of NCCL's own line about its HCAs, if the model predicts it.
pub fn predicted_line(facts: &Facts, environment: &Environment, version: Version) -> Option<String> {
    let of_case =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    // The harness makes NCCL log everything.
    let get = |name: &str| if name == "NCCL_DEBUG" { Some("INFO") } else { of_case(name) };
    log::using(facts, &predict(facts, get, version), get, version)
}

/// Returns whether NCCL has logged this line. After the HCAs, NCCL's list tells how it orders writes.
pub fn has_logged(outcome: &Outcome, line: &str) -> bool {
    let told = outcome.log.lines().find_map(|told| Some(&told[told.find("NET/IB : Using ")?..]));
    let list = told.map(|told| told.split(';').next().unwrap_or_default());
    list.and_then(|list| list.strip_prefix(line)).is_some_and(|rest| !rest.contains('/'))
}

/// Returns the last of several warnings, because it names the failure.
fn message(failure: &Failure) -> String {
    failure.warnings.last().cloned().unwrap_or_else(|| format!("result {}", failure.code))
}
