//! Releases of libraries with a known fault that a job on this host can meet: one table, each row with the public report.

use crate::fabric::Candidate;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id, Severity};
use crate::image::Image;
use crate::libraries::nccl::version::Version;
use crate::libraries::nvshmem;
use crate::plan::Decided;

/// A fault of some releases of a library.
struct Fault {
    library: &'static str,
    /// The release in the image.
    release: fn(&Image) -> Option<Version>,
    /// The first release that is known to have the fault.
    first: Version,
    /// The first release that is known not to have it; `None` if there is none.
    mended: Option<Version>,
    /// How much it matters here; `None` if a job on this host cannot meet it.
    severity: fn(&Decided, &Image) -> Option<Severity>,
    /// What happens, for a sentence that begins with the library and its release.
    happens: &'static str,
    fix: &'static str,
    source: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        library: "NVSHMEM",
        release: nvshmem::release_in,
        first: Version::new(3, 3, 20),
        mended: Some(Version::new(3, 5, 19)),
        severity: |decided, image| (has_deepep(image) && uses_mlx5_roce(decided)).then_some(Severity::Info),
        happens: "IBGDA, which DeepEP uses, does not set the rate that it passes to ibv_create_ah. On RoCE, newer kernels may reject it, and NVSHMEM fails with \"Unable to create ah\".",
        fix: "If that happens, use NVSHMEM 3.5.19 or later, with a DeepEP that contains pull request 564.",
        source: "https://github.com/NVIDIA/nvshmem/issues/21",
    },
    Fault {
        library: "NVSHMEM",
        release: nvshmem::release_in,
        first: Version::new(3, 5, 19),
        mended: None,
        severity: |_, image| has_deepep(image).then_some(Severity::Info),
        happens: "it arranges its queue pairs differently than before. A DeepEP without pull request 564, such as the legacy Buffer of DeepEP 2, then ends between nodes with \"DeepEP error: timeout\".",
        fix: "If that happens, use a DeepEP that contains pull request 564, or NVSHMEM 3.4.5.",
        source: "https://github.com/deepseek-ai/DeepEP/issues/707",
    },
    Fault {
        library: "aws-ofi-nccl",
        release: |image| {
            Version::parse(image.net_plugins.iter().find_map(|plugin| plugin.version.as_deref())?)
        },
        first: Version::new(1, 18, 0),
        mended: Some(Version::new(1, 18, 1)),
        severity: |decided, _| uses_efa(decided).then(|| of_several_nodes(decided)),
        happens: "a large broadcast between nodes hangs.",
        fix: "Use aws-ofi-nccl 1.20.0 or later, which AWS's EFA installer 1.49.0 has.",
        source: "https://github.com/aws/deep-learning-containers/pull/6551",
    },
];

pub(super) fn findings(decided: &Decided, image: &Image) -> Vec<Finding> {
    FAULTS.iter().filter_map(|fault| fault.finding(decided, image)).collect()
}

impl Fault {
    fn finding(&self, decided: &Decided, image: &Image) -> Option<Finding> {
        let release = (self.release)(image).filter(|release| self.has(*release))?;
        let severity = (self.severity)(decided, image)?;
        let message = format!("{} {release}: {}", self.library, self.happens);
        let fix = format!("{} See {}.", self.fix, self.source);
        Some(Finding { severity, ..Finding::info(Id::FaultyRelease, message) }.with_fix(fix))
    }

    fn has(&self, release: Version) -> bool {
        release >= self.first && self.mended.is_none_or(|mended| release < mended)
    }
}

fn has_deepep(image: &Image) -> bool {
    image.packages("deep-ep").next().is_some()
}

fn used<'d>(decided: &'d Decided) -> impl Iterator<Item = &'d Candidate<'d>> {
    decided.ports.iter().filter(|port| port.is_used())
}

/// Returns whether the job uses RoCE HCAs that IBGDA can open.
fn uses_mlx5_roce(decided: &Decided) -> bool {
    used(decided).any(|port| {
        port.port.link_layer == LinkLayer::Ethernet && port.hca.driver.as_deref() == Some("mlx5_core")
    })
}

fn uses_efa(decided: &Decided) -> bool {
    used(decided).any(|port| port.hca.driver.as_deref() == Some("efa"))
}

/// A job of one node, or perhaps of one, does not meet it, or perhaps not.
fn of_several_nodes(decided: &Decided) -> Severity {
    match decided.facts.platform.nodes {
        Some(nodes) if nodes.count > 1 => Severity::Warning,
        _ => Severity::Info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_names_a_public_source() {
        for fault in FAULTS {
            assert!(fault.source.starts_with("https://"), "{}", fault.library);
            assert!(fault.has(fault.first) && !fault.mended.is_some_and(|mended| fault.has(mended)));
        }
    }
}
