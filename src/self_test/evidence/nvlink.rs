//! NVLink to other nodes: the IMEX channels, and what NCCL does with them.

use super::Evidence;
use crate::facts::Facts;
use crate::libraries::nccl::mnnvl::{MODELS, Mnnvl, Nvls, WithoutChannel, mnnvl, nvls};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::Plan;
use crate::self_test::report::Nvlink;

/// NCCL takes the clique of this node from these variables instead of NVML, if they are set (`fillInfo`
/// in `src/init.cc`).
const CLIQUE: &str = "NCCL_MNNVL_CLIQUE_ID";
const CLUSTER: &str = "NCCL_MNNVL_UUID";

/// Returns what the nodes of one NVLink domain must have in common; `None` if there is no sign that
/// this node is in one.
pub(crate) fn of_node(facts: &Facts, plan: &Plan) -> Option<Nvlink> {
    if facts.imex.count == 0 && facts.gpu.model_of(MODELS).is_none() {
        return None;
    }
    let usable: Vec<String> = facts.imex.usable().map(|channel| channel.number.to_string()).collect();
    let overrides = [CLUSTER, CLIQUE].iter().filter_map(|name| Some(format!("{name}={}", plan.value(name)?)));
    let overrides: Vec<String> = overrides.collect();
    Some(Nvlink {
        channels: if usable.is_empty() { "none".to_owned() } else { usable.join(", ") },
        clique: (!overrides.is_empty()).then(|| overrides.join(" ")),
    })
}

pub(crate) fn nvlink(facts: &Facts, plan: &Plan) -> Evidence {
    let Some(found) = of_node(facts, plan) else {
        return Evidence::skip(
            "no IMEX channel, and no GPU that is made for an NVLink domain of several nodes",
        );
    };
    let (version, nccl) = (plan.nccl.unwrap_or(NEWEST), plan.library.of_release(plan.nccl));
    let get = |name: &str| plan.value(name);
    let of_nccl = match mnnvl(get, version) {
        Mnnvl::Unknown => format!("{nccl} does not use NVLink between nodes"),
        Mnnvl::Off(variable) => format!("{variable} turns NVLink between nodes off"),
        Mnnvl::Wanted(WithoutChannel::Network) => {
            format!("{nccl} uses NVLink between nodes if it can, else the network")
        }
        Mnnvl::Wanted(WithoutChannel::CudaError | WithoutChannel::SystemError) => {
            format!("{nccl} uses NVLink between the nodes of a clique")
        }
    };
    let multicast = match nvls(get, version) {
        Nvls::Off => Some("NCCL_NVLS_ENABLE turns NVLink SHARP off"),
        Nvls::Forced => Some("NCCL_NVLS_ENABLE turns NVLink SHARP on, whether or not the GPUs have it"),
        Nvls::Automatic => None,
    };
    let clique = match found.clique {
        Some(overrides) => format!("the clique is that of {overrides}"),
        None => "only NVML knows the state of the fabric and the clique: see Fabric in the output of nvidia-smi -q"
            .to_owned(),
    };
    let channels = match facts.imex.usable().next() {
        None => "no usable IMEX channel".to_owned(),
        Some(_) => format!("IMEX channel {}", found.channels),
    };
    Evidence::of([channels, of_nccl].into_iter().chain(multicast.map(str::to_owned)).chain([clique]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::imex::{Imex, ImexChannel};
    use crate::self_test::evidence::tests::host;

    #[test]
    fn what_is_known_is_shown_and_what_is_not_is_said() {
        let (mut facts, plan) = host(1, 1);
        assert!(nvlink(&facts, &plan).skip.is_some() && of_node(&facts, &plan).is_none());
        facts.gpu.models = vec!["NVIDIA GB200".to_owned()];
        let lines = nvlink(&facts, &plan).lines;
        assert_eq!(lines[0], "no usable IMEX channel");
        assert!(lines.last().unwrap().contains("only NVML knows"), "{lines:?}");
        let channel = |number| ImexChannel { number, ..ImexChannel::default() };
        facts.imex = Imex { channels: vec![channel(0), channel(7)], count: 2, ..Imex::default() };
        assert_eq!(nvlink(&facts, &plan).lines[0], "IMEX channel 0, 7");
        assert_eq!(of_node(&facts, &plan).unwrap().clique, None);
    }
}
