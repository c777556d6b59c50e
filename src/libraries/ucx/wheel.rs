//! The UCX in NIXL's wheel, which has its own libibverbs; that one serves only the HCAs of its own providers.

use super::NIXL;
use super::release::NEWEST;
use super::taken::taken;
use crate::fabric::Candidate;
use crate::finding::{Finding, Id};
use crate::image::packages::Package;
use crate::libraries::LibraryContext;
use crate::libraries::nccl::installed::provider;
use crate::text::condensed;

/// Returns findings about the job's HCAs that a package's libibverbs cannot open.
pub(crate) fn unserved(subject: &LibraryContext) -> Vec<Finding> {
    subject.packages(NIXL).filter_map(|package| of(subject, package)).collect()
}

fn of(subject: &LibraryContext, package: &Package) -> Option<Finding> {
    let own = package.libibverbs.as_ref()?;
    let is_served = |port: &&Candidate| {
        provider(port.hca).is_none_or(|name| own.providers.iter().any(|provider| provider == name))
    };
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    let (served, lost): (Vec<&Candidate>, Vec<&Candidate>) = used.partition(is_served);
    if lost.is_empty() {
        return None;
    }
    let drivers = match own.providers.is_empty() {
        true => "no driver".to_owned(),
        false => format!("drivers only for {}", own.providers.join(", ")),
    };
    let has_tcp = || taken(subject, NEWEST).is_none_or(|taken| !taken.tcp.is_empty());
    let then = match served.is_empty() {
        false => "so NIXL does not use them",
        true if has_tcp() => "so NIXL uses TCP",
        true => "and has no TCP, so NIXL fails with a backend error",
    };
    let mut hcas: Vec<&str> = lost.iter().map(|port| port.hca.name.as_str()).collect();
    hcas.dedup();
    let message = format!(
        "The UCX in {} {} has its own libibverbs, with {drivers}: it cannot open {}, {then}.",
        package.name,
        package.version,
        condensed(&hcas)
    );
    let file = package.path.join(&own.path);
    let brought = ["ibverbs"].into_iter().chain(own.providers.iter().map(String::as_str));
    let brought: Vec<String> = brought.map(|name| format!("lib{name}")).collect();
    let fix = format!(
        "Build NIXL in this image, against its libibverbs; or put links to the image's libraries in place of {} in {}.",
        brought.join(" and "),
        file.parent().unwrap_or(&package.path).display()
    );
    let ports = lost.into_iter().map(Candidate::name);
    Some(Finding::warning(Id::LibraryOnTcp, message).about_ports(ports).with_fix(fix))
}
