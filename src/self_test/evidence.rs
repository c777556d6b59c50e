//! What each quick check looks at, and what it has to say that no finding says.

mod address;
mod count;
mod counters;
mod gpu_nic;
mod image;
mod limits;
mod mtu;
mod pci;
mod ports;

use super::check::Outcome;
use super::obstacle::{self, Certain};
use crate::check::memlock::{self, Pinning, amount};
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;
use crate::nccl::libraries;
use crate::nccl::predict::{Bootstrap, Transport};
use crate::plan::{self, Fabric, Plan, own_slots};
use crate::report::style::counted;
use crate::state::FOLDER;
use limits::{few, limits};
use ports::{each_used, unused};

pub use mtu::of_roce;
pub use ports::{rails, used};

/// What was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    pub lines: Vec<String>,
    /// Why there is nothing to check here.
    pub skip: Option<String>,
    /// What is wrong, with the fix.
    pub wrong: Option<(Outcome, String, String)>,
}

impl Evidence {
    fn of(lines: impl IntoIterator<Item = String>) -> Evidence {
        Evidence { lines: lines.into_iter().collect(), ..Evidence::default() }
    }

    fn skip(why: &str) -> Evidence {
        Evidence { skip: Some(why.to_owned()), ..Evidence::default() }
    }

    fn fail(self, message: String) -> Evidence {
        Evidence { wrong: Some((Outcome::Failed, message, String::new())), ..self }
    }

    fn warn(self, message: String, fix: &str) -> Evidence {
        Evidence { wrong: Some((Outcome::Warning, message, fix.to_owned())), ..self }
    }
}

/// Open files for each rank of a large job.
const FEW_FILES: u64 = 4096;

/// Bytes; what threads of NCCL and of frameworks are known to be short of.
const SMALL_STACK: u64 = 1024 * 1024;

pub fn of(id: &str, facts: &Facts, plan: &Plan) -> Evidence {
    let evidence = found(id, facts, plan);
    let obstacles = obstacle::all(plan).into_iter();
    match obstacles.filter(|obstacle| obstacle.check == id).map(|obstacle| obstacle.why).next() {
        Some(why) if id == "fabric" => evidence.fail(format!("The job will run on TCP: {why}.")),
        Some(why) => evidence.fail(format!("{why}.")),
        None => evidence,
    }
}

fn found(id: &str, facts: &Facts, plan: &Plan) -> Evidence {
    let image = libraries::image(facts);
    match id {
        "memlock" => Evidence::of(facts.limits.memlock.map(|limit| {
            let lifted = match memlock::pinning(limit, &facts.process) {
                Pinning::Capability => ", and CAP_IPC_LOCK lifts it",
                Pinning::Limited(_) | Pinning::Unlimited => "",
            };
            format!("{}{lifted}", limits(limit, amount))
        })),
        "nofile" => few(
            facts.limits.nofile,
            FEW_FILES,
            "Only {} files may be open at once. A large job needs more, or ends with \"Too many open files\".",
            "Docker: --ulimit nofile=1048576:1048576. containerd: LimitNOFILE=infinity in its unit.",
            |count| count.to_string(),
        ),
        "stack" => few(
            facts.limits.stack,
            SMALL_STACK,
            "The stack cannot grow beyond {}: threads of NCCL and of the framework may end with a segmentation fault.",
            "Docker: --ulimit stack=67108864:67108864.",
            amount,
        ),
        "shared-memory" => match facts.shm {
            Some(shm) => Evidence::of([format!("{}, {} free", amount(shm.size), amount(shm.available))]),
            None => Evidence::skip("there is no /dev/shm"),
        },
        "shared-memory-writable" => match facts.shm.and_then(|shm| shm.writable) {
            None => Evidence::skip("the facts do not say"),
            Some(true) => Evidence::of(["this user may write to it".to_owned()]),
            Some(false) => Evidence {
                wrong: Some((
                    Outcome::Failed,
                    "This user may not create files in /dev/shm, and NCCL needs them between the GPUs of a node."
                        .to_owned(),
                    "Mount it with mode 1777, or run as another user.".to_owned(),
                )),
                ..Evidence::default()
            },
        },
        "state" => match facts.state_writable {
            None => Evidence::skip("the facts do not say"),
            Some(true) => Evidence::of([format!("this user may write to {FOLDER}")]),
            Some(false) => Evidence::default().warn(
                format!(
                    "This user may not create files in {FOLDER}, so rdma-init keeps its state in /dev/shm or /tmp, where it can."
                ),
                "Let the container write to its root file system, or mount at /run a file system that its user may write to and that no other container has (docker run --tmpfs /run; Kubernetes: an emptyDir).",
            ),
        },
        "libibverbs" => match image {
            None => Evidence::skip("no NCCL was found in the image"),
            Some(image) => Evidence::of(image.libibverbs_of_the_job().map(|l| l.path.display().to_string())),
        },
        "librdmacm" => match image {
            None => Evidence::skip("no NCCL was found in the image"),
            // NCCL does without it; some plugins and MPI do not.
            Some(image) if image.librdmacm.is_empty() => {
                Evidence::skip("not in the image, and NCCL does without it")
            }
            Some(image) => Evidence::of(image.librdmacm.iter().map(|l| l.path.display().to_string())),
        },
        "provider" if image.is_none() => Evidence::skip("no NCCL was found in the image"),
        "provider" => each_used(facts, plan, &|hca, _| libraries::provider(hca).map(str::to_owned)),
        "nccl" => image::nccl(facts, plan),
        "cuda" => image::cuda(facts, plan),
        "plugin" => match image.map(|image| &image.net_plugins) {
            Some(found) if !found.is_empty() => {
                Evidence::of(found.iter().map(|l| l.path.display().to_string()))
            }
            _ => Evidence::skip("no net plugin was found in the image"),
        },
        "unused" => unused(plan),
        "uverbs" => {
            each_used(facts, plan, &|hca, _| hca.uverbs.as_ref().map(|_| "the uverbs node can be opened".to_owned()))
        }
        "port" => each_used(facts, plan, &|_, port| Some(format!("{}, {}", port.state, port.physical_state))),
        "device" => each_used(facts, plan, &|hca, port| {
            let driver = hca.driver.as_deref().unwrap_or("no driver");
            Some(format!("{driver}, {}", String::from(port.link_layer.clone())))
        }),
        "rate" => each_used(facts, plan, &|_, port| Some(port.rate.clone())),
        "pci-link" => pci::pci_links(facts, plan),
        "counters" => counters::counters(facts, plan),
        "gpu-nic" => gpu_nic::gpu_nic(facts, plan),
        "gid" => match used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::Ethernet) {
            false => Evidence::skip("no RoCE port is in use"),
            true => each_used(facts, plan, &|_, port| {
                let gid = own_slots(facts, port).into_iter().next()?;
                Some(format!("slot {}, {}", gid.index, String::from(gid.kind.clone())))
            }),
        },
        "pkey" => match used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::InfiniBand) {
            false => Evidence::skip("no InfiniBand port is in use"),
            true => each_used(facts, plan, &|_, port| port.pkeys.as_ref().map(ToString::to_string)),
        },
        "address" => address::addresses(facts, plan),
        "mtu" => mtu::mtus(facts, plan),
        "route" => match rails(facts, plan).next() {
            None => Evidence::skip("no RoCE port with an interface of this container is in use"),
            Some(_) => Evidence::of(
                rails(facts, plan).map(|(hca, interface, _)| format!("{}: {interface}", hca.name)),
            ),
        },
        "gpudirect" => match (facts.gpu.count, &facts.gpu.peer_memory) {
            (None, _) => Evidence::skip("no NVIDIA GPU"),
            (_, Some(path)) => Evidence::of([path.clone()]),
            (_, None) if facts.gpu.driver.is_none() => Evidence::skip("the facts do not name the NVIDIA driver"),
            (_, None) => Evidence::of(facts.gpu.driver.clone()),
        },
        "interface" => match plan.forecasts.last().map(|forecast| &forecast.prediction.bootstrap) {
            Some(Bootstrap::On(endpoint)) => {
                Evidence::of([format!("{} {}", endpoint.interface, endpoint.address)])
            }
            Some(Bootstrap::DependsOnName(name)) => Evidence::of([format!("in the subnet of {name}")]),
            Some(Bootstrap::Fails(_)) => Evidence::default(),
            None => Evidence::skip("there is no RDMA here"),
        },
        "nccl-decides" => nccl(plan),
        "count" => count::count(facts, plan),
        "variables" => variables(plan),
        "signals" => match &facts.parent {
            None => Evidence::skip("PID 1 did not start rdma-init"),
            Some(parent) => Evidence::of([format!("PID 1 is {}", parent.program)]),
        },
        "fabric" => match &plan.fabric {
            Fabric::Verbs => Evidence::of(["InfiniBand or RoCE through verbs".to_owned()]),
            Fabric::Interface(name) => Evidence::of([format!("behind the interface {name}")]),
            Fabric::Plugin(count) => Evidence::of([format!("{count} devices for a net plugin")]),
            Fabric::None(_) => Evidence::default(),
        },
        _ => Evidence::default(),
    }
}

/// What the release that is known does, or the newest.
fn nccl(plan: &Plan) -> Evidence {
    let Some(forecast) = plan.forecasts.last() else { return Evidence::skip("there is no RDMA here") };
    if let Certain::Perhaps(why) = obstacle::of_network(plan) {
        let message = format!(
            "It is not known which NCCL the job will load, and of some releases this is true: {why}."
        );
        return Evidence::default().warn(message, "See what each release does: `rdma-init plan`.");
    }
    match &forecast.prediction.transport {
        Transport::Verbs(ports) => Evidence::of([format!("NCCL will use {}", counted(ports.len(), "port"))]),
        Transport::Plugin { file, .. } => Evidence::of([format!("NCCL will load {file}")]),
        Transport::Sockets { .. } if !plan.fabric.is_there() => Evidence::skip("there is no RDMA here"),
        Transport::Sockets { interfaces, .. } if !plan.fabric.pins_memory() => {
            Evidence::of([format!("NCCL will use sockets on {}", interfaces.join(", "))])
        }
        Transport::Sockets { .. } | Transport::Fails(_) => Evidence::default(),
    }
}

/// How many the user has set, for NCCL and its neighbours.
fn variables(plan: &Plan) -> Evidence {
    let set = plan.settings.iter().filter(|setting| setting.outcome == plan::Outcome::User).count();
    match set {
        0 => Evidence::skip("you have set none, and rdma-init fills in the rest"),
        _ => Evidence::of([format!("{} set by you", counted(set, "variable"))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::rdma::{Hca, Port};
    use crate::plan::PortVerdict;

    /// HCAs with one port each, the first of them in use.
    pub fn host(hcas: usize, used: usize) -> (Facts, Plan) {
        let name = |number: usize| format!("mlx5_{number}");
        let port = Port { number: 1, link_layer: LinkLayer::Ethernet, ..Port::default() };
        let hca = |number| Hca { name: name(number), ports: vec![port.clone()], ..Hca::default() };
        let verdict = |number| PortVerdict {
            hca: name(number),
            port: 1,
            used: number < used,
            left_idle: false,
            of_several: false,
            link_layer: LinkLayer::Ethernet,
            rate: String::new(),
            reason: (number >= used).then(|| "the port is DOWN".to_owned()),
        };
        let facts = Facts { rdma: (0..hcas).map(hca).collect(), ..Facts::default() };
        let plan = Plan {
            profile: None,
            fabric: Fabric::Verbs,
            ports: (0..hcas).map(verdict).collect(),
            settings: Vec::new(),
            nccl: None,
            forecasts: Vec::new(),
            findings: Vec::new(),
            tried: Vec::new(),
        };
        (facts, plan)
    }
}
