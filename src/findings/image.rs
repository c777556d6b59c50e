//! Libraries of the image that are missing, or there twice.

use super::kernel_abi;
use super::libraries::copies::with_path;
use crate::facts::Facts;
use crate::facts::image::Image;
use crate::facts::image::architecture::{Foreign, Kind};
use crate::facts::rdma::Hca;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::installed;
use crate::plan::{Fabric, Plan, PortVerdict};
use crate::text::condensed;

pub fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.image.as_ref().and_then(other_architecture).into_iter().collect();
    let Some(image) = installed::image(facts) else { return findings };
    findings.extend(several(facts, image));
    findings.extend(other_than_said(facts));
    if plan.fabric == Fabric::Verbs {
        match no_libibverbs(image) {
            Some(finding) => findings.push(finding),
            None => {
                findings.extend(no_provider(facts, image, plan));
                findings.extend(kernel_abi::findings(facts, image, plan));
            }
        }
    }
    findings
}

/// Programs and libraries of the job that are for another architecture. A copy of NCCL, RCCL or
/// libibverbs matters only where the dynamic loader finds no other one for this architecture; and
/// a job that has NCCL needs no RCCL, nor one that has RCCL an NCCL.
fn other_architecture(image: &Image) -> Option<Finding> {
    let matters = |foreign: &&Foreign| match foreign.kind {
        Kind::Nccl | Kind::Rccl => image.nccl_of_the_job().is_none() && image.rccl_of_the_job().is_none(),
        Kind::Libibverbs => image.libibverbs_of_the_job().is_none(),
        Kind::Command | Kind::Python | Kind::Torch => true,
        Kind::Other => false,
    };
    let found: Vec<&Foreign> = image.foreign.iter().filter(matters).collect();
    let first = found.first()?;
    let what = |foreign: &&Foreign| {
        let name = match foreign.kind {
            Kind::Command => "the command",
            Kind::Python => "Python",
            Kind::Nccl => "NCCL",
            Kind::Rccl => "RCCL",
            Kind::Torch => "PyTorch",
            Kind::Libibverbs => "libibverbs",
            Kind::Other => "another file",
        };
        format!("{name} ({}, {})", foreign.path.display(), foreign.architecture)
    };
    let list: Vec<String> = found.iter().map(what).collect();
    let is_program = |foreign: &&Foreign| matches!(foreign.kind, Kind::Command | Kind::Python);
    let consequence = if found.iter().any(is_program) {
        "a program of another architecture does not start, or only under an emulator, which is slow and has neither GPUs nor RDMA"
    } else {
        "the dynamic loader passes over a library of another architecture"
    };
    let message = format!(
        "rdma-init is for {}, and this is for another architecture: {}; {consequence}.",
        first.wanted,
        list.join(", ")
    );
    // The command may use another Python, or none.
    let finding = match found.iter().all(|foreign| foreign.kind == Kind::Python) {
        true => Finding::warning(Id::OtherArchitecture, message),
        false => Finding::error(Id::OtherArchitecture, message),
    };
    Some(finding.with_fix("Build the whole image for the architecture of the node (docker build --platform), and copy the rdma-init of that architecture into it."))
}

/// NCCLs of different releases: it depends on the job which one it loads.
fn several(facts: &Facts, image: &Image) -> Option<Finding> {
    if image.nccl_versions().len() < 2 {
        return None;
    }
    let list: Vec<String> = image.nccl.iter().map(with_path).collect();
    let taken = match installed::found(facts) {
        Some((version, path)) => format!("the job seems to load {version} ({path})"),
        None => "it is not known which one the job loads".to_owned(),
    };
    Some(
        Finding::warning(Id::NcclVersionsDiffer, format!("The image has several NCCLs: {}; {taken}.", list.join(", ")))
            .with_fix("Keep one of them: processes that load different releases cannot form one job, and LD_LIBRARY_PATH decides which release a process loads."),
    )
}

/// `NCCL_VERSION` of the image is not the version of the NCCL in it.
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

fn no_libibverbs(image: &Image) -> Option<Finding> {
    if image.libibverbs_of_the_job().is_some() {
        return None;
    }
    let elsewhere = match image.libibverbs.first() {
        Some(library) => {
            format!(" (the dynamic loader does not search where {} is)", library.path.display())
        }
        None => String::new(),
    };
    Some(
        Finding::error(
            Id::NoLibibverbs,
            format!("The image has no libibverbs that NCCL can load{elsewhere}: NCCL says \"Failed to open libibverbs.so[.1]\", and the job runs on TCP."),
        )
        .with_fix("Install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core and libibverbs in the image."),
    )
}

/// HCAs that libibverbs does not show, because it cannot load their provider.
fn no_provider(facts: &Facts, image: &Image, plan: &Plan) -> Option<Finding> {
    let is_used = |name: &str| plan.ports.iter().any(|port| port.used && port.hca == name);
    let has_none =
        |hca: &&Hca| installed::provider(hca).is_some_and(|provider| image.provider(provider).is_none());
    let without: Vec<_> = facts.rdma.iter().filter(|hca| is_used(&hca.name) && has_none(hca)).collect();
    let first = without.first()?;
    let provider = installed::provider(first)?;
    let names: Vec<&str> = without.iter().map(|hca| hca.name.as_str()).collect();
    let there = image.providers.iter().find(|known| known.name == provider);
    let what = match there {
        None => "is not in the image".to_owned(),
        Some(known) if known.path.is_none() => {
            "is named in /etc/libibverbs.d, but its library is not in the image".to_owned()
        }
        Some(known) if known.named_by.is_empty() => {
            format!("is in the image, but no file in /etc/libibverbs.d names it (\"driver {provider}\")")
        }
        Some(known) => format!(
            "is built for another libibverbs (for rdmav{}, but the libibverbs of the image loads rdmav{})",
            known.abi.unwrap_or(0),
            image.provider_abi.unwrap_or(0)
        ),
    };
    let all = plan.ports.iter().filter(|port| port.used).all(|port| names.contains(&port.hca.as_str()));
    let consequence = if all { "the job runs on TCP" } else { "the job runs on the other HCAs" };
    let fix = match provider {
        "ionic" => {
            "Install in the image AMD's libionic1 of the same release as the node's driver, or ibverbs-providers of rdma-core 61 or later where the node has the driver of the Linux kernel."
        }
        "erdma" => {
            "Install the vendor's eRDMA packages in the image: libibverbs1 and ibverbs-providers of the same rdma-core."
        }
        _ => {
            "Install ibverbs-providers in the image, from the same rdma-core as libibverbs1 and with its files in /etc/libibverbs.d."
        }
    };
    Some(
        Finding::error(
            Id::NoProvider,
            format!(
                "The provider {provider} of libibverbs {what}: NCCL does not see {}, and {consequence}.",
                condensed(&names)
            ),
        )
        .about_ports(
            plan.ports.iter().filter(|port| names.contains(&port.hca.as_str())).map(PortVerdict::full_name),
        )
        .with_fix(fix),
    )
}
