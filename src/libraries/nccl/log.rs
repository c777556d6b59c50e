//! What NCCL writes to its log, so that reports can quote it.

use super::fusion::in_order;
use super::predict::{Fused, Prediction, Transport};
use super::version::{FUSES_BY_TOPOLOGY, Version};
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};

/// The levels of `NCCL_DEBUG` at which NCCL names its devices.
const LEVELS: [&str; 2] = ["INFO", "TRACE"];

/// Returns the start of NCCL's log line about the HCAs that it uses, `NET/IB : Using [0]erdma_0:1/RoCE`
/// (`ncclIbInitDevices` in `src/transport/net_ib.cc`); `None` if NCCL logs less or the line's format is
/// uncertain.
pub fn using<'a>(
    facts: &Facts,
    prediction: &Prediction,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Option<String> {
    get("NCCL_DEBUG").filter(|level| LEVELS.iter().any(|known| level.eq_ignore_ascii_case(known)))?;
    let Transport::Verbs(ports) = &prediction.transport else { return None };
    // Releases that have already merged ports at this moment write them in braces.
    let is_plain =
        version >= FUSES_BY_TOPOLOGY || matches!(&prediction.fused, Fused::Nics(nics) if nics.is_empty());
    // With these, more text follows the port.
    let has_more = !facts.data_direct.is_empty()
        || get("NCCL_IB_HCA").is_some_and(|list| list.split(',').any(|entry| entry.matches(':').count() > 1));
    if !is_plain || has_more {
        return None;
    }
    let ports: Option<Vec<(&Hca, &Port)>> =
        ports.iter().map(|used| facts.port(&used.hca, used.port)).collect();
    let numbered = in_order(&ports?, &get, version).into_iter().enumerate();
    let shown: Option<Vec<String>> = numbered.map(|(index, (hca, port))| shown(index, hca, port)).collect();
    Some(format!("NET/IB : Using {}", shown?.join(" ")))
}

fn shown(index: usize, hca: &Hca, port: &Port) -> Option<String> {
    let link_layer = match port.link_layer {
        LinkLayer::InfiniBand => "IB",
        LinkLayer::Ethernet => "RoCE",
        _ => return None,
    };
    Some(format!("[{index}]{}:{}/{link_layer}", hca.name, port.number))
}
