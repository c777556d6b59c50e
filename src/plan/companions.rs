//! Variables of other libraries that follow the same decisions, when a profile
//! asks for them.

use super::devices::Candidate;
use super::gid::GidChoice;
use super::hcas;
use super::interface::InterfaceChoice;
use super::setting::Proposal;
use crate::profiles::Profile;

pub fn propose(
    ports: &[Candidate],
    gid: &GidChoice,
    interface: Option<&InterfaceChoice>,
    profile: &Profile,
) -> Vec<Proposal> {
    let devices = || {
        let list = hcas::device_list(ports, |_| true);
        (!list.is_empty()).then(|| list.join(","))
    };
    profile
        .companions
        .iter()
        .filter_map(|variable| {
            let value = match variable.as_str() {
                "GLOO_SOCKET_IFNAME" | "TP_SOCKET_IFNAME" => interface?.name.clone(),
                // A list of HCAs alone takes TCP from UCX, and with it the way to a process
                // itself and to the first messages: NIXL ends with NIXL_ERR_BACKEND.
                "UCX_NET_DEVICES" => format!("{},{}", devices()?, interface?.name),
                "NVSHMEM_HCA_LIST" => devices()?,
                "NVSHMEM_IB_GID_INDEX" => match gid {
                    GidChoice::Index { index, .. } => index.to_string(),
                    _ => return None,
                },
                _ => return None,
            };
            let rule = format!("follows NCCL's variable, as profile {} asks", profile.name);
            Some(Proposal::from_facts(variable, value, rule))
        })
        .collect()
}
