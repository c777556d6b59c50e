//! `NCCL_NET`, where RDMA is required. Without it, NCCL that finds no HCA when the job starts, or
//! whose plugin gives up, runs on TCP and does not say so.

use super::rule::Rule;
use super::setting::Proposal;
use super::{Context, Forecast};
use crate::libraries::nccl::installed;
use crate::libraries::nccl::network::{VARIABLE, name};

/// The name of what will carry the traffic, where that is sure: the image is known, and each
/// release that the job may have does the same. With a name, NCCL takes nothing else, so a guess
/// would keep a plugin from its work.
pub fn propose(context: &Context, forecasts: &[Forecast]) -> Option<Proposal> {
    if !context.options.require_rdma || context.leaves_alone(VARIABLE) {
        return None;
    }
    installed::image(context.facts)?;
    let mut names = forecasts.iter().map(|forecast| name(&forecast.prediction.transport));
    let first = names.next()??;
    let is_sure = names.all(|other| other == Some(first));
    is_sure.then(|| Proposal::from_facts(VARIABLE, first, Rule::FallbackIsAnError))
}
