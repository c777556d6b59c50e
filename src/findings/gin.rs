//! GIN, with which GPUs start transfers themselves, and what keeps NCCL from offering it: `NCCL_CROSS_NIC=0`, and merged
//! ports. DeepEP 2 needs it (`csrc/kernels/backend/nccl.cu`).

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::fusion::SWITCH;
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::predict::Fused;
use crate::libraries::nccl::version::{GIN_OVER_MERGED, GIN_WITHIN_RAILS, RESTRICTS_GIN, Version};
use crate::plan::Plan;
use crate::text::condensed;

const CROSS_NIC: &str = "NCCL_CROSS_NIC";

/// The first DeepEP that uses GIN.
const DEEPEP: Version = Version::new(2, 0, 0);

/// Reports what DeepEP 2 lacks, if the image has it and NCCL's release is known.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let is_nccl = plan.library == Flavor::Nccl;
    let version = plan.nccl.filter(|version| is_nccl && *version >= RESTRICTS_GIN)?;
    let package = facts.image.as_ref()?.packages("deep-ep").next()?;
    Version::parse(&package.version).filter(|release| *release >= DEEPEP)?;
    let nccl = plan.library.of_release(Some(version));
    let fails = "DeepEP 2 then fails with \"NCCL GIN is unavailable\".";
    // `globalNicFused` in `src/init.cc`.
    if version < GIN_OVER_MERGED
        && let Fused::Nics(nics) = &plan.forecasts.last()?.prediction.fused
        && let Some(nic) = nics.first()
    {
        let message = format!(
            "{nccl} merges {} into one NIC, and offers no GIN over merged ports. {fails}",
            condensed(nic)
        );
        return Some(
            Finding::warning(Id::LibraryDevices, message)
                .about_ports(nic)
                .with_fix(format!("Set {SWITCH}=0 on all nodes, or use NCCL {GIN_OVER_MERGED} or later.")),
        );
    }
    let value = plan.value(CROSS_NIC).filter(|value| integer(value, version) == Some(0))?;
    let fix = format!("Remove {CROSS_NIC}, unless the rails do not reach each other.");
    let finding = match version < GIN_WITHIN_RAILS {
        true => Finding::warning(
            Id::LibraryDevices,
            format!("{CROSS_NIC}={value}: {nccl} offers no GIN with it. {fails}"),
        )
        .with_fix(format!("{fix} NCCL {GIN_WITHIN_RAILS} and later offer GIN within each rail.")),
        false => Finding::info(
            Id::LibraryDevices,
            format!(
                "{CROSS_NIC}={value}: {nccl} offers GIN only within each rail. DeepEP 2 uses that in its hybrid mode; without it (allow_hybrid_mode=False), DeepEP fails with \"NCCL GIN is unavailable\"."
            ),
        )
        .with_fix(format!("{fix} Otherwise, let DeepEP use its hybrid mode.")),
    };
    Some(finding.about_variables([CROSS_NIC]))
}
