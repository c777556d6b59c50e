//! Libraries of the image that are missing, or there twice.

use crate::facts::Facts;
use crate::facts::image::Image;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::installed;
use crate::plan::{Fabric, Plan, PortVerdict};
use crate::text::condensed;

pub fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(image) = installed::image(facts) else { return Vec::new() };
    let mut findings = Vec::new();
    findings.extend(several(facts, image));
    findings.extend(other_than_said(facts));
    if plan.fabric == Fabric::Verbs {
        findings.extend(no_libibverbs(image).or_else(|| no_provider(facts, image, plan)));
    }
    findings
}

/// NCCLs of different releases: it depends on the job which one it loads.
fn several(facts: &Facts, image: &Image) -> Option<Finding> {
    if image.nccl_versions().len() < 2 {
        return None;
    }
    let list: Vec<String> = image
        .nccl
        .iter()
        .map(|library| {
            format!(
                "{} in {}",
                library.version.as_deref().unwrap_or("of unknown version"),
                library.path.display()
            )
        })
        .collect();
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
    let without: Vec<_> =
        facts.rdma.iter().filter(|hca| is_used(&hca.name) && !installed::has_provider(facts, hca)).collect();
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
