//! `NCCL_IB_TC` and `NCCL_GIN_IB_TC`: the class that the administrator has set on the ports, for queue pairs
//! that do not get it from the kernel.

use super::{Context, Setting};
use crate::fabric::Candidate;
use crate::facts::traffic_class::TrafficClass;
use crate::libraries::nccl::installed;
use crate::libraries::traffic_class::{dscp, for_nccl};

pub(super) fn propose(context: &Context, ports: &[Candidate]) -> Option<Setting> {
    // RCCL has no such queue pairs.
    if installed::is_rccl(context.facts) {
        return None;
    }
    let (variable, class) = for_nccl(ports, context.user.version())?;
    let of_port = |port: &Candidate| match port.port.traffic_class {
        Some(TrafficClass::Global(class)) => {
            Some(format!("{} Global tclass={class} (DSCP {})", port.name(), dscp(class)))
        }
        _ => None,
    };
    let evidence = ports.iter().filter(|port| port.is_used()).filter_map(of_port).collect();
    // Without this variable, NCCL's own queue pairs (GIN) would not have this class.
    let rule = format!(
        "the traffic class of the HCAs, for the queue pairs that {} connects itself (GIN)",
        context.library()
    );
    Some(Setting::from_facts(variable.name, class.to_string(), rule).because(evidence))
}
