//! The UCX that NIXL's wheel brings, with a libibverbs of its own, which serves the HCAs of its own
//! providers alone.

use super::release::{NEWEST, is_nixl};
use super::taken::taken;
use crate::fabric::Candidate;
use crate::image::packages::Package;
use crate::libraries::LibraryContext;
use crate::libraries::nccl::installed::provider;

/// HCAs of the job that the libibverbs of a package cannot open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Name and version of the package.
    pub package: String,
    /// The folder that the library is in.
    pub folder: String,
    /// The providers that it has.
    pub providers: Vec<String>,
    /// The ports of the HCAs that it cannot open.
    pub ports: Vec<String>,
    pub left: Left,
}

/// What is left to a UCX that cannot open these HCAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Other HCAs of the job.
    Hcas,
    Tcp,
    Nothing,
}

/// By package, if there are some.
pub(crate) fn unserved(subject: &LibraryContext) -> Vec<Unserved> {
    let packages = subject.facts.image.iter().flat_map(|image| &image.packages);
    packages.filter(|package| is_nixl(package)).filter_map(|package| of(subject, package)).collect()
}

fn of(subject: &LibraryContext, package: &Package) -> Option<Unserved> {
    let own = package.libibverbs.as_ref()?;
    let is_served = |port: &&Candidate| {
        provider(port.hca).is_none_or(|name| own.providers.iter().any(|provider| provider == name))
    };
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    let (served, lost): (Vec<&Candidate>, Vec<&Candidate>) = used.partition(is_served);
    if lost.is_empty() {
        return None;
    }
    let has_tcp = || taken(subject, NEWEST).is_none_or(|taken| !taken.tcp.is_empty());
    let left = match served.is_empty() {
        false => Left::Hcas,
        true if has_tcp() => Left::Tcp,
        true => Left::Nothing,
    };
    let file = package.path.join(&own.path);
    Some(Unserved {
        package: format!("{} {}", package.name, package.version),
        folder: file.parent().unwrap_or(&package.path).display().to_string(),
        providers: own.providers.clone(),
        ports: lost.into_iter().map(Candidate::name).collect(),
        left,
    })
}
