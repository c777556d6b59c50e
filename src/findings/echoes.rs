//! Each cause gets one finding: drops findings that only repeat another one, and makes the finding that knows
//! the cause state the consequence.

use crate::finding::{Finding, Id, Severity};
use crate::libraries::nccl::{devices, network};

/// The findings about `NCCL_IB_HCA` that know why it selects no HCA, and whether each of them states the
/// consequence itself.
const CAUSES: [(Id, bool); 4] =
    [(Id::StaleHca, true), (Id::ListSeparator, false), (Id::RepeatedSign, false), (Id::ConfLine, false)];

/// Returns the findings without those that only repeat another one.
pub(super) fn without(mut findings: Vec<Finding>) -> Vec<Finding> {
    no_hca_selected(&mut findings);
    no_network(&mut findings);
    no_rdma(&mut findings);
    findings
}

/// Drops the finding about a list that selects no HCA, if another finding knows what is wrong with the list.
fn no_hca_selected(findings: &mut Vec<Finding>) {
    if !findings.iter().any(|finding| finding.id == Id::NoHcaSelected) {
        return;
    }
    let is_cause = |finding: &Finding, id: Id| finding.id == id && is_about(finding, devices::LIST);
    for (id, says_it) in CAUSES {
        let Some(cause) = findings.iter_mut().find(|finding| is_cause(finding, id)) else { continue };
        cause.severity = Severity::Error;
        if !says_it {
            cause.message += " So no HCA is selected, and the job will run on TCP.";
        }
        findings.retain(|finding| finding.id != Id::NoHcaSelected);
        return;
    }
}

/// Drops the finding about `NCCL_NET=IB` without an HCA, if the finding about the fabric states how NCCL
/// reacts to it.
fn no_network(findings: &mut Vec<Finding>) {
    let says_it = |finding: &Finding| {
        matches!(finding.id, Id::NoFabric | Id::NoUsableHca) && is_about(finding, network::VARIABLE)
    };
    if findings.iter().any(says_it) {
        findings.retain(|finding| finding.id != Id::NoNetwork);
    }
}

/// Drops the finding about a list of HCAs in a container without any, if a warning states both this and the
/// consequence.
fn no_rdma(findings: &mut Vec<Finding>) {
    if findings.iter().any(|finding| finding.id == Id::NoRdma && finding.severity == Severity::Warning) {
        findings.retain(|finding| finding.id != Id::StaleHca || !is_about(finding, devices::LIST));
    }
}

fn is_about(finding: &Finding, variable: &str) -> bool {
    finding.about.variables.iter().any(|name| name == variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_replaces_its_consequence() {
        let about = |finding: Finding, variable| finding.about_variables([variable]);
        let consequence = || about(Finding::error(Id::NoHcaSelected, "None."), devices::LIST);
        let stale = || about(Finding::warning(Id::StaleHca, "Stale."), devices::LIST);
        let found = without(vec![consequence(), stale()]);
        assert_eq!(found, [Finding { severity: Severity::Error, ..stale() }]);
        let quoted = about(Finding::warning(Id::ListSeparator, "Quotes."), devices::LIST);
        let found = without(vec![consequence(), quoted]);
        assert_eq!(found[0].message, "Quotes. So no HCA is selected, and the job will run on TCP.");
        // A list of correct names may exclude all usable HCAs, and a fault in another list is not the cause.
        let other = about(Finding::warning(Id::ListSeparator, "Quotes."), "NCCL_SOCKET_IFNAME");
        assert_eq!(without(vec![consequence(), other.clone()]), [consequence(), other]);

        let fabric = about(Finding::error(Id::NoUsableHca, "None."), network::VARIABLE);
        let network = about(Finding::error(Id::NoNetwork, "No network."), network::VARIABLE);
        assert_eq!(without(vec![fabric.clone(), network.clone()]), [fabric]);
        assert_eq!(without(vec![network.clone()]), [network]);

        let no_rdma = Finding::warning(Id::NoRdma, "None.");
        assert_eq!(without(vec![no_rdma.clone(), stale()]), [no_rdma]);
        // With NVLink between the nodes, missing RDMA is only a note.
        let note = Finding::info(Id::NoRdma, "None.");
        assert_eq!(without(vec![note.clone(), stale()]), [note, stale()]);
    }
}
