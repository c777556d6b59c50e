//! `NCCL_IB_TC` and `NCCL_GIN_IB_TC`: the class that the administrator has set on the ports, for queue pairs
//! that do not get it from the kernel.

use super::Context;
use super::rule::{Rule, RuleEvidence};
use super::setting::Proposal;
use crate::fabric::Candidate;
use crate::facts::traffic_class::TrafficClass;
use crate::libraries::nccl::installed;
use crate::libraries::traffic_class::for_nccl;

pub(super) fn propose(context: &Context, ports: &[Candidate]) -> Option<Proposal> {
    // RCCL has no such queue pairs.
    if installed::is_rccl(context.facts) {
        return None;
    }
    let (variable, class) = for_nccl(ports, context.user.version())?;
    let of_port = |port: &Candidate| match port.port.traffic_class {
        Some(TrafficClass::Global(class)) => Some(RuleEvidence::TrafficClass { port: port.name(), class }),
        _ => None,
    };
    let evidence = ports.iter().filter(|port| port.is_used()).filter_map(of_port).collect();
    Some(Proposal::from_facts(variable.name, class.to_string(), Rule::ClassOfPorts).because(evidence))
}
