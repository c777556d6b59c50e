//! Recommends NCCL's port failover to jobs whose NICs have several ports.

use crate::finding::{Finding, Id};
use crate::plan::Plan;
use crate::plan::failover::{self, SWITCH};
use crate::text::condensed;

/// Returns the finding, if the job's NCCL could continue over another port and may not.
pub(super) fn finding(plan: &Plan) -> Option<Finding> {
    let failover = failover::of(plan).filter(|failover| !failover.is_on)?;
    let ports: Vec<String> = failover.nics.concat();
    let nics = match failover.nics {
        [_] => "The NIC of the job has",
        _ => "NICs of the job have",
    };
    let nccl = plan.library.of_release(Some(plan.nccl?));
    let message = format!(
        "{nics} several ports ({}), but if the link of one port fails, the job fails: the port failover of {nccl} is off ({SWITCH}).",
        condensed(&ports)
    );
    let fix = format!("To let the job continue over the other ports, set {SWITCH}=1 on all nodes.");
    Some(Finding::info(Id::PortFailover, message).about_ports(ports).about_variables([SWITCH]).with_fix(fix))
}
