//! The watcher of the job's ports. What they show before the job is noted for the init of the command: for the watcher,
//! and for the account when the command has ended.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::metrics_file::MetricsFile;
use crate::config::{Config, TOKEN_VARIABLE, WatchOption};
use crate::facts::congestion::{self, Congestion};
use crate::facts::device_identity::DeviceIdentity;
use crate::facts::environment::Environment;
use crate::facts::port_counters::Counters;
use crate::facts::port_look::{self, KnownPort, Looker, PortLook, UsedGid};
use crate::facts::rdma::LinkLayer;
use crate::facts::start::SupervisedBy;
use crate::facts::{Facts, Reader};
use crate::finding::{Finding, Phase};
use crate::findings::port_name::{RailId, has_several};
use crate::findings::traffic::Expected;
use crate::init::Left;
use crate::json;
use crate::libraries::nccl::gid::INDEX;
use crate::libraries::nccl::predict::GidUse;
use crate::libraries::nccl::ras::{Ras, ras};
use crate::libraries::nccl::version::SEARCHES_GIDS;
use crate::log::{Format, Level, Log};
use crate::plan::{Outcome, Plan, PortVerdict, failover};
use crate::report::start;
use crate::state::run::Unwatched;
use crate::sys::environ;
use crate::watch::job::JobOrders;
use crate::watch::{self, History, Standing, Surroundings, WatchOrders, WatchedPort};

/// What the command's init keeps until the end.
#[derive(Serialize, Deserialize)]
pub(super) struct Note {
    pub format: Format,
    pub level: Level,
    /// The ports that the job will use, with their state before the job.
    pub ports: Vec<WatchedPort>,
    pub watch: WatchOrders,
    /// The file for node_exporter.
    metrics: Option<PathBuf>,
}

/// Returns the counters of the ports that the job will use, and how to speak of them. Empty if
/// there is nothing to tell: no such port, or none that shows anything.
///
/// `job` is how the watcher speaks with those of the job's other nodes; `command` is the command's words.
pub(super) fn note(
    config: &Config,
    facts: &Facts,
    plan: &Plan,
    job: Option<JobOrders>,
    command: &[CString],
) -> Vec<u8> {
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let failing_over = failover::of(plan).filter(|failover| failover.is_on);
    let failing_over = failing_over.map(|failover| failover.nics.concat()).unwrap_or_default();
    let used = plan.ports.iter().filter(|port| port.used);
    let ports: Vec<WatchedPort> = used
        .clone()
        .map(|port| {
            let gid = used_gid(plan, port);
            let device = facts.rdma.iter().find(|hca| hca.name == port.hca);
            let mut ports = device.iter().flat_map(|hca| &hca.ports).filter(|one| one.number == port.port);
            let netdev = ports.find_map(|port| port.gids.slots.iter().find_map(|gid| gid.netdev.as_deref()));
            let mut interfaces = facts.net.interfaces.iter();
            let interface = interfaces.find(|interface| Some(interface.name.as_str()) == netdev);
            WatchedPort {
                rail: RailId {
                    is_one_of_several: has_several(&port.hca, used.clone().map(|used| used.hca.as_str())),
                    ..RailId::new(&port.hca, port.port)
                },
                is_infiniband: port.link_layer == LinkLayer::InfiniBand,
                is_bond: interface.is_some_and(|interface| interface.driver.as_deref() == Some("bonding")),
                first: port_look::first(&reader, &counters, &port.hca, port.port, gid.as_ref()),
                gid,
                device: device.map(|hca| DeviceIdentity::of(hca, &facts.rdma)).unwrap_or_default(),
                congestion: congestion::read(&counters.of(&port.hca, port.port)),
                fails_over: failing_over.contains(&format!("{}:{}", port.hca, port.port)),
            }
        })
        .collect();
    match ports.iter().any(|port| !port.first.errors.is_gone()) {
        true => {
            let watch = WatchOrders {
                interval: config.watch_interval,
                after: config.watch_after,
                ras: ras_address(config, facts, plan),
                on_finding: config.on_finding.clone(),
                expected: expected(facts, plan, job.as_ref()),
                job,
                is_server: is_server(command),
            };
            let metrics = config.watch_metrics.clone();
            json::line(&Note { format: config.log_format, level: config.log_level, ports, watch, metrics })
        }
        false => Vec::new(),
    }
}

/// Returns whether the job is to move data over the ports: it is known to have several nodes, and the plan does not say
/// itself that NCCL will use TCP, unless an env plugin may decide otherwise.
fn expected(facts: &Facts, plan: &Plan, job: Option<&JobOrders>) -> Expected {
    let of_launcher = facts.platform.nodes.as_ref().map(|nodes| nodes.count);
    let nodes = job.map(|job| job.nodes).or(of_launcher);
    match nodes {
        _ if !plan.has_env_plugin() && matches!(plan.outcome(), Outcome::AsksForTcp | Outcome::NotUsed) => {
            Expected::Nothing
        }
        Some(1) => Expected::Nothing,
        Some(_) => Expected::Traffic,
        None => Expected::Unknown,
    }
}

/// Returns whether the command is a server of requests (vLLM, SGLang, TensorRT-LLM, Triton), which rests for as long as
/// none come.
fn is_server(command: &[CString]) -> bool {
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str().ok()).collect();
    let names: Vec<&str> = words.iter().map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
    let is_program = |name: &str| {
        matches!(name, "trtllm-serve" | "tritonserver")
            || name.starts_with("vllm.entrypoints")
            || name.starts_with("sglang.launch_server")
    };
    names.windows(2).any(|pair| pair == ["vllm", "serve"]) || names.into_iter().any(is_program)
}

/// Returns why no watcher will run beside the command.
pub(super) fn unwatched(config: &Config, plan: &Plan, keeper: SupervisedBy) -> Option<Unwatched> {
    match () {
        () if !plan.ports.iter().any(|port| port.used) => Some(Unwatched::NoPort),
        () if config.watch == Some(WatchOption::Off) => Some(Unwatched::Off),
        () if keeper == SupervisedBy::NoProcess => Some(Unwatched::NoInit),
        () => None,
    }
}

/// Returns where NCCL's RAS answers. RCCL has none.
fn ras_address(config: &Config, facts: &Facts, plan: &Plan) -> Option<String> {
    let of_environment = |name: &str| facts.settings.get(name).map(|setting| setting.value.as_str());
    let get = |name: &str| config.set.get(name).map(String::as_str).or_else(|| of_environment(name));
    match ras(get, plan.nccl) {
        Ras::At(address) if plan.library.is_nccl() => Some(address.to_owned()),
        _ => None,
    }
}

/// Returns the GID that NCCL will use on a port, according to the last forecast: that of the job's NCCL
/// release, or of a recent one if the release is unknown.
fn used_gid(plan: &Plan, port: &PortVerdict) -> Option<UsedGid> {
    let mut ports = plan.forecasts.last()?.prediction.transport.ports()?.iter();
    let used = ports.find(|used| (used.hca.as_str(), used.port) == (port.hca.as_str(), port.port))?;
    let Some(GidUse::Slot { index, gid: Some(gid) }) = &used.gid else { return None };
    // A negative index makes NCCL search.
    let is_pinned = plan.value(INDEX).is_some_and(|value| !value.is_empty() && !value.starts_with('-'));
    let is_searched = match is_pinned {
        true => Some(false),
        false => plan.nccl.map(|version| version >= SEARCHES_GIDS),
    };
    Some(UsedGid { index: u32::try_from(*index).ok()?, gid: gid.gid, kind: gid.kind.clone(), is_searched })
}

/// Watches the ports of the note until the command ends, or this process is killed. `ran`: how long ago the supervisor
/// was started; `leave` keeps what is seen for the account. Call this in a process of its own.
pub(crate) fn watch(note: &[u8], ran: Duration, leave: &dyn Fn(Left)) {
    let Ok(Note { format, level, ports, watch, metrics }) = json::read(note) else { return };
    let mut watching = Watching {
        log: Log::start(format, level, Log::patient()),
        looker: Looker::new(Path::new("/")),
        metrics: metrics.map(MetricsFile::new),
        looks: ports.iter().map(|port| port.first.clone()).collect(),
        ports: ports.clone(),
        leave,
    };
    watching.publish(&Standing { rested: None, findings: &BTreeMap::new() }, true);
    // The note is in memory that other processes of this user can read; the environment is this process's own.
    let environment = watch.job.as_ref().map(|_| Environment::new(&environ::entries()));
    let token =
        environment.as_ref().and_then(|environment| environment.get(TOKEN_VARIABLE)).unwrap_or_default();
    watch::run(ports, watch, ran, token, &mut watching);
}

/// The process of a watcher.
struct Watching<'l> {
    log: Log,
    looker: Looker,
    metrics: Option<MetricsFile>,
    /// The last look at the ports, for the metrics.
    looks: Vec<PortLook>,
    ports: Vec<WatchedPort>,
    leave: &'l dyn Fn(Left),
}

impl Surroundings for Watching<'_> {
    fn look(&mut self, ports: &[WatchedPort], is_after_event: bool) -> Vec<PortLook> {
        if is_after_event {
            self.looker.look_at_all();
        }
        let looks = look_again(&mut self.looker, ports);
        if self.metrics.is_some() {
            self.looks.clone_from(&looks);
        }
        looks
    }

    fn say(&self, finding: &Finding) {
        start::finding(&self.log, finding, Phase::Run);
    }

    fn remember(&mut self, at: Duration, history: Option<&History>) {
        (self.leave)(Left::Looked(at, history.map(json::line).as_deref()));
    }

    fn publish(&mut self, standing: &Standing, is_up: bool) {
        let failed =
            self.metrics.as_mut().and_then(|file| file.renew(&self.ports, &self.looks, standing, is_up));
        failed.iter().for_each(|message| self.log.warn(message));
    }

    fn publishes(&self) -> bool {
        self.metrics.is_some()
    }

    fn warn(&self, message: &str) {
        self.log.warn(message);
    }

    fn await_end(&self, awaits: bool) {
        (self.leave)(Left::AwaitsEnd(awaits));
    }
}

/// Looks at the ports once.
pub(super) fn looks(ports: &[WatchedPort]) -> Vec<PortLook> {
    look_again(&mut Looker::new(Path::new("/")), ports)
}

/// Returns what the ports have counted of congestion by now, under the names that they have now.
pub(super) fn congestion(ports: &[WatchedPort], looks: Option<&[PortLook]>) -> Vec<Congestion> {
    let reader = Reader::new(Path::new("/"));
    let counters = Counters::new(&reader);
    let of = |(index, port): (usize, &WatchedPort)| {
        let renamed = looks.and_then(|looks| looks.get(index)?.renamed.as_deref());
        congestion::read(&counters.of(renamed.unwrap_or(&port.rail.hca), port.rail.port))
    };
    ports.iter().enumerate().map(of).collect()
}

fn look_again(looker: &mut Looker, ports: &[WatchedPort]) -> Vec<PortLook> {
    looker.look(ports.iter().map(|WatchedPort { rail, gid, device, first, .. }| KnownPort {
        hca: &rail.hca,
        port: rail.port,
        gid: gid.as_ref(),
        device,
        before: first,
    }))
}
