//! What is wrong with libraries beside NCCL, and with their variables: a file for each kind of remark.

pub mod copies;
mod meeting;
mod own_verbs;
mod ucx;
mod vllm;

use crate::finding::Finding;
use crate::libraries::Remark;
use crate::plan::Decided;

pub fn findings(decided: &Decided) -> Vec<Finding> {
    let remarks = decided.of_libraries.iter().map(|remark| of_remark(decided, remark));
    let of_image = decided.facts.image.iter().flat_map(copies::findings);
    remarks.chain(vllm::node_list(decided)).chain(of_image).collect()
}

/// The finding for what deciding has shown about a library: each remark is told.
fn of_remark(decided: &Decided, remark: &Remark) -> Finding {
    match remark {
        Remark::Meeting(remark) => meeting::finding(decided, remark),
        Remark::Ucx(remark) => ucx::finding(decided, remark),
        Remark::OwnVerbs(remark) => own_verbs::finding(decided, remark),
        Remark::Vllm(remark) => vllm::finding(decided, remark),
    }
}

/// A variable as it is set, and where: `GLOO_SOCKET_IFNAME=^lo (environment)`.
fn shown(decided: &Decided, variable: &str) -> String {
    match decided.user.get(variable) {
        Some(setting) => super::values::shown(setting),
        None => format!("{variable}={}", decided.plan.value(variable).unwrap_or_default()),
    }
}
