//! The addresses of the rails.

use super::Evidence;
use super::ports::{each_used, used};
use crate::fabric::own_slots;
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;
use crate::finding::Id;
use crate::plan::Plan;
use crate::self_test::check::Outcome;
use crate::text::counted;

pub(crate) fn addresses(facts: &Facts, plan: &Plan) -> Evidence {
    if !used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::Ethernet) {
        return Evidence::skip("no RoCE port is in use");
    }
    let evidence = each_used(facts, plan, &|_, port| {
        let gid = own_slots(facts, port).into_iter().next()?;
        let interface = facts
            .net
            .interfaces
            .iter()
            .find(|interface| interface.addresses.iter().any(|address| address.addr() == gid.address()));
        let on = interface.map(|interface| format!(" on {}", interface.name)).unwrap_or_default();
        Some(format!("{}{on}", gid.address()))
    });
    let rails = used(facts, plan).count();
    let gpus = facts.gpu.count.unwrap_or(0) as usize;
    let some_have_none = plan.findings.iter().any(|finding| finding.id == Id::NoAddress);
    if !some_have_none || rails >= gpus {
        return evidence;
    }
    let are = if rails == 1 { "is" } else { "are" };
    let message = format!("Only {} {are} left for {}.", counted(rails, "rail"), counted(gpus, "GPU"));
    Evidence { wrong: Some((Outcome::Failed, message, String::new())), ..evidence }
}
