//! A value of the user that hides a node with fewer NICs, although RDMA is required.

use crate::finding::{Finding, Id, Source};
use crate::libraries::nccl::number::integer;
use crate::plan::network::{self, MISMATCH};
use crate::plan::{Context, Fabric, Plan};

/// Returns the finding if rdma-init would have set 0.
pub(super) fn finding(context: &Context, plan: &Plan) -> Option<Finding> {
    if !context.options.require_rdma || !network::compares_nics(context) || plan.fabric != Fabric::Verbs {
        return None;
    }
    let setting = context.user.get(MISMATCH).filter(|setting| setting.origin != Source::AtStart)?;
    integer(&setting.value, context.version()).filter(|value| *value != 0)?;
    let message = format!(
        "{setting} stands: if a node has fewer NICs than the others, {} only logs a line, and the whole job is slower, although require-rdma is set.",
        plan.library.of_release(context.user.version())
    );
    let fix = format!("Remove {MISMATCH}: rdma-init then sets 0, and such a node is an error.");
    Some(Finding::info(Id::IgnoredMismatch, message).about_variables([MISMATCH]).with_fix(fix))
}
