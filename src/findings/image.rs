//! Libraries that are missing from the image, or that it contains twice.

use super::libraries::copies::with_path;
use super::verbs;
use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::image::Image;
use crate::image::architecture::{Foreign, ForeignKind};
use crate::libraries::nccl::installed;
use crate::plan::{Fabric, Plan, User};

pub(super) fn findings(facts: &Facts, user: &User, plan: &Plan) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.image.as_ref().and_then(other_architecture).into_iter().collect();
    if let Some(image) = installed::image(facts) {
        findings.extend(several(facts, image, plan));
        findings.extend(other_than_said(facts));
    }
    if plan.fabric == Fabric::Verbs {
        findings.extend(verbs::findings(facts, user, plan));
    }
    findings
}

/// Reports the job's programs and libraries that are built for another architecture. A copy of NCCL, RCCL, or
/// libibverbs matters only if the dynamic loader finds no other copy for this architecture. A job with NCCL
/// does not need RCCL, and a job with RCCL does not need NCCL.
fn other_architecture(image: &Image) -> Option<Finding> {
    let matters = |foreign: &&Foreign| match foreign.kind {
        ForeignKind::Nccl | ForeignKind::Rccl => {
            image.nccl_of_the_job().is_none() && image.rccl_of_the_job().is_none()
        }
        ForeignKind::Libibverbs => image.libibverbs_of_the_job().is_none(),
        ForeignKind::Command | ForeignKind::Python | ForeignKind::Torch => true,
        ForeignKind::Other => false,
    };
    let found: Vec<&Foreign> = image.foreign.iter().filter(matters).collect();
    let first = found.first()?;
    let what = |foreign: &&Foreign| {
        let name = match foreign.kind {
            ForeignKind::Command => "the command",
            ForeignKind::Python => "Python",
            ForeignKind::Nccl => "NCCL",
            ForeignKind::Rccl => "RCCL",
            ForeignKind::Torch => "PyTorch",
            ForeignKind::Libibverbs => "libibverbs",
            ForeignKind::Other => "another file",
        };
        format!("{name} ({}, {})", foreign.path.display(), foreign.architecture)
    };
    let list: Vec<String> = found.iter().map(what).collect();
    let is_program = |foreign: &&Foreign| matches!(foreign.kind, ForeignKind::Command | ForeignKind::Python);
    let consequence = if found.iter().any(is_program) {
        "a program of another architecture does not start, or only under an emulator, which is slow and has neither GPUs nor RDMA"
    } else {
        "the dynamic loader skips a library of another architecture"
    };
    let message = format!(
        "rdma-init is for {}, and this is for another architecture: {}; {consequence}.",
        first.wanted,
        list.join(", ")
    );
    // The command may use another Python, or no Python.
    let finding = match found.iter().all(|foreign| foreign.kind == ForeignKind::Python) {
        true => Finding::warning(Id::OtherArchitecture, message),
        false => Finding::error(Id::OtherArchitecture, message),
    };
    Some(finding.with_fix("Build the whole image for the architecture of the node (docker build --platform), and copy the rdma-init of that architecture into it."))
}

/// Reports copies of NCCL in different releases: it depends on the job which one it loads. For RCCL,
/// [`copies`] has a finding.
fn several(facts: &Facts, image: &Image, plan: &Plan) -> Option<Finding> {
    if !plan.library.is_nccl() || image.nccl_versions().len() < 2 {
        return None;
    }
    let list: Vec<String> = image.nccl.iter().map(with_path).collect();
    let taken = match installed::found(facts) {
        Some((version, path)) => format!("the job seems to load {version} ({path})"),
        None => "rdma-init cannot tell which one the job loads".to_owned(),
    };
    Some(
        Finding::warning(Id::NcclVersionsDiffer, format!("The image has several NCCLs: {}; {taken}.", list.join(", ")))
            .with_fix("Keep one of them: processes that load different releases cannot form one job, and LD_LIBRARY_PATH decides which release a process loads."),
    )
}

/// Reports that the image's `NCCL_VERSION` is not the version of the NCCL in it.
fn other_than_said(facts: &Facts) -> Option<Finding> {
    let said = facts.platform.nccl_version.as_deref()?;
    let (version, path) = installed::found(facts)?;
    let plain = said.split('-').next().unwrap_or(said);
    (plain != version).then(|| {
        Finding::info(
            Id::NcclVersion,
            format!(
                "NCCL_VERSION says {said}, but the job loads {version} ({path}); rdma-init decides for {version}."
            ),
        )
        .about_variables(["NCCL_VERSION"])
    })
}
