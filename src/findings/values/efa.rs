//! Variables of EFA that AWS once asked for, and asks for no longer (aws-samples/awsome-distributed-training,
//! `1.architectures/efa-cheatsheet.md`), and a provider of libfabric other than EFA's. [`super::costs`] reports those
//! that slow the job. `FI_EFA_USE_HUGE_PAGE=0` is not among them: the presets for the newest releases have it.

use super::{Subject, costs, shown};
use crate::finding::{Finding, Id, Source};
use crate::libraries::nccl::number::strtoll;

/// An old advice.
struct Old {
    variable: &'static str,
    is_it: fn(&str) -> bool,
    /// What AWS limits the value to, after "only".
    limit: &'static str,
}

/// Limits libfabric to these providers, or with `^` to all others (libfabric, `fi_provider(7)`).
const PROVIDER: &str = "FI_PROVIDER";

/// The provider for EFA; libfabric ignores case.
const OF_EFA: &str = "efa";

const OLD: [Old; 4] = [
    Old {
        variable: "NCCL_PROTO",
        is_it: |text| text.eq_ignore_ascii_case("simple"),
        limit: "for aws-ofi-nccl 1.5.0 and earlier, and later releases choose the protocols themselves",
    },
    Old {
        variable: PROVIDER,
        is_it: |text| text.eq_ignore_ascii_case(OF_EFA),
        limit: "for aws-ofi-nccl 1.5.0 and earlier, and later releases ask for EFA themselves",
    },
    Old {
        variable: "FI_EFA_USE_DEVICE_RDMA",
        is_it: |text| strtoll(text) == Some(1),
        limit: "for releases before libfabric 1.18 and aws-ofi-nccl 1.7, and later ones use RDMA on each device that can",
    },
    Old {
        variable: "FI_EFA_SET_CUDA_SYNC_MEMOPS",
        is_it: |text| strtoll(text) == Some(0),
        limit: "for releases of the EFA installer before 1.29.1",
    },
];

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    if !costs::has_efa(subject) {
        return Vec::new();
    }
    let old = OLD
        .iter()
        .filter_map(|old| Some((old, subject.user.get(old.variable)?)))
        .filter(|(old, setting)| (old.is_it)(&setting.value) && setting.origin != Source::AtStart)
        .map(|(old, setting)| {
            let message = format!(
                "{} stands; AWS advises it only {} (efa-cheatsheet.md of awsome-distributed-training).",
                shown(setting),
                old.limit
            );
            Finding::info(Id::NotAsPublished, message)
                .about_variables([old.variable])
                .with_fix(format!("Remove {}, unless that is the case here.", old.variable))
        });
    old.chain(without_efa(subject)).collect()
}

/// Reports a list of providers without that of EFA.
fn without_efa(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get(PROVIDER).filter(|setting| !setting.value.is_empty())?;
    let (list, is_excluded) = match setting.value.strip_prefix('^') {
        Some(list) => (list, true),
        None => (setting.value.as_str(), false),
    };
    // A layered provider, such as `efa;ofi_rxd`, names EFA's as well.
    let has_efa = list
        .split(',')
        .any(|name| name.trim().split(';').any(|part| part.trim().eq_ignore_ascii_case(OF_EFA)));
    (has_efa == is_excluded).then(|| {
        let message = format!(
            "{}: libfabric then offers no EFA device, so {} uses TCP, or fails.",
            shown(setting),
            subject.nccl()
        );
        Finding::warning(Id::RunsOnTcp, message)
            .about_variables([PROVIDER])
            .with_fix(format!("Remove {PROVIDER}: aws-ofi-nccl asks for EFA itself."))
    })
}
