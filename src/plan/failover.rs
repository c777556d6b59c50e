//! Port failover: if a link of a NIC with several ports fails, NCCL continues over the other ports
//! (`src/transport/net_ib/p2p_resiliency.cc`). It is off by default.

use super::Plan;
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::predict::{Fused, Transport};
use crate::libraries::nccl::version::{FAILS_OVER, Version};

/// The variable that turns port failover on, on all nodes.
pub(crate) const SWITCH: &str = "NCCL_IB_RESILIENCY_PORT_FAILOVER";

/// The NICs that could fail over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failover<'p> {
    /// The ports of each NIC, as `mlx5_0:1`.
    pub nics: &'p [Vec<String>],
    pub is_on: bool,
}

/// Returns the NICs that could fail over; `None` if there is none, or if the job's NCCL is unknown, too old, or uses
/// another transport than its own.
pub(crate) fn of(plan: &Plan) -> Option<Failover<'_>> {
    let version = plan.nccl.filter(|version| *version >= FAILS_OVER && plan.library.is_nccl())?;
    let prediction = &plan.forecasts.last()?.prediction;
    match (&prediction.transport, &prediction.fused) {
        (Transport::Verbs(_), Fused::Nics(nics)) if !nics.is_empty() => {
            Some(Failover { nics, is_on: is_on(plan.value(SWITCH), version) })
        }
        _ => None,
    }
}

fn is_on(value: Option<&str>, version: Version) -> bool {
    value.and_then(|value| integer(value, version)).is_some_and(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_but_zero_turns_it_on() {
        let values = [None, Some("0"), Some(""), Some("1"), Some("2"), Some("on")];
        let on = |version| values.map(|value| is_on(value, version));
        assert_eq!(on(FAILS_OVER), [false, false, false, true, true, false]);
    }
}
