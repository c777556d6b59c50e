//! Switches that NCCL compares with 1, so 2 counts as no.

use super::{Subject, conf_file, shown};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::number::strtoll;
use crate::libraries::nccl::variables;

/// The effect of a value that is neither 0 nor 1: `ncclGetLevel`, `ncclTopoCheckNet` and
/// `ncclTopoComputePaths` (`src/graph/paths.cc`), `shmCanConnect` (`src/transport/shm.cc`), `bootstrapInit`
/// (`src/bootstrap.cc`). (For other switches, such as `NCCL_IB_DISABLE`, any number except 0 counts as yes.)
const SWITCHES: [(&str, &str); 5] = [
    ("NCCL_NET_DISABLE_INTRA", "the network may still be used between the GPUs of a node"),
    ("NCCL_P2P_DISABLE", "P2P stays on"),
    ("NCCL_PXN_DISABLE", "PXN is not turned off"),
    ("NCCL_RAS_ENABLE", "RAS is off"),
    ("NCCL_SHM_DISABLE", "shared memory stays in use"),
];

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    let set = SWITCHES.iter().filter_map(|(variable, stays)| Some((subject.user.get(variable)?, stays)));
    let is_read = |variable: &str| {
        variables::find(variable).is_some_and(|variable| variable.is_known_to(subject.version()))
    };
    set.filter(|(setting, _)| is_read(&setting.variable) && !conf_file::is_cause(setting))
        // `numbers` reports a value that is not a number.
        .filter(|(setting, _)| strtoll(&setting.value).is_some_and(|number| !(0..=1).contains(&number)))
        .map(|(setting, stays)| {
            let library = subject.library();
            let message = format!("{}: {library} accepts only 1 as a yes here, so {stays}.", shown(setting));
            Finding::warning(Id::SwitchValue, message)
                .about_variables([&setting.variable])
                .with_fix(format!("Write {}=1, or remove it.", setting.variable))
        })
        .collect()
}
