//! Turns silent losses into errors if RDMA is required, with `NCCL_NET` and `NCCL_IGNORE_NET_MISMATCH`.
//! Without the first variable, NCCL silently runs on TCP if it finds no HCA when the job starts, or if its
//! plugin gives up. Without the second, a node with fewer NICs slows down the whole job, and only a line in
//! the log reports it.

use super::{Context, Forecast, Setting};
use crate::fabric::Candidate;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::network::{VARIABLE, name};
use crate::libraries::nccl::predict::Transport;
use crate::libraries::nccl::version::COMPARES_NICS;

/// Unless this is 0, NCCL only logs a line if a node has fewer NICs than others (`src/init.cc`).
pub(crate) const MISMATCH: &str = "NCCL_IGNORE_NET_MISMATCH";

/// Proposes the name of the network that will carry the traffic, if it is certain: the image is known, and
/// every release that the job may use does the same. With a name, NCCL uses no other network, so a wrong
/// guess would disable a plugin.
pub(super) fn propose(context: &Context, forecasts: &[Forecast], ports: &[Candidate]) -> Option<Setting> {
    if !context.options.require_rdma || context.leaves_alone(VARIABLE) {
        return None;
    }
    installed::image(context.facts)?;
    // If NCCL's own transport uses other ports than the plan's, it is not RDMA to insist on.
    let used: Vec<String> = ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect();
    let is_of_plan = |transport: &Transport| match transport {
        Transport::Verbs(taken) => taken.iter().any(|port| used.contains(&port.name())),
        _ => true,
    };
    if !forecasts.iter().all(|forecast| is_of_plan(&forecast.prediction.transport)) {
        return None;
    }
    let mut names = forecasts.iter().map(|forecast| name(&forecast.prediction.transport));
    let first = names.next()??;
    let has_plugin = forecasts.iter().any(|forecast| forecast.prediction.env_plugin.is_some());
    let is_sure = names.all(|other| other == Some(first)) && !has_plugin;
    let rule = format!(
        "what {} will use; with its name, a fallback to TCP is an error, as require-rdma demands",
        context.library()
    );
    is_sure.then(|| Setting::from_facts(VARIABLE, first, rule))
}

/// Returns whether the job's NCCL is known to compare the nodes' numbers of NICs.
pub(crate) fn compares_nics(context: &Context) -> bool {
    context.user.version().is_some_and(|version| version >= COMPARES_NICS)
}

/// Proposes 0, if the release compares the numbers of NICs, and its own transport finds them.
pub(super) fn propose_mismatch(context: &Context, forecasts: &[Forecast]) -> Option<Setting> {
    if !context.options.require_rdma || !compares_nics(context) || context.leaves_alone(MISMATCH) {
        return None;
    }
    installed::image(context.facts)?;
    let is_own = |forecast: &Forecast| matches!(forecast.prediction.transport, Transport::Verbs(_));
    let is_sure = !forecasts.is_empty() && forecasts.iter().all(is_own);
    let rule = "a node with fewer NICs than the others is an error, as require-rdma demands";
    is_sure.then(|| Setting::from_facts(MISMATCH, "0", rule))
}
