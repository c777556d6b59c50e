//! What NCCL can load from the image, by the dynamic loader's rules. If no NCCL was found, a program may
//! contain the job's NCCL, or the job may run in another image.

use std::borrow::Cow;
use std::path::PathBuf;

use super::version::Version;
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::image::Image;
use crate::image::flavor::Flavor;
use crate::image::library::Library;
use crate::image::providers;

/// Returns the NCCL release that the job loads, as far as the image shows: from the library itself, else from
/// the image's own statement (`NCCL_VERSION`).
pub(crate) fn release(facts: &Facts) -> Option<Version> {
    let parse = |text: &str| Version::parse(text);
    found(facts)
        .and_then(|(version, _)| parse(version))
        .or_else(|| facts.platform.nccl_version.as_deref().and_then(parse))
}

/// Returns the releases of all copies of NCCL, or of RCCL if the job uses it, in the image, without
/// duplicates and the oldest first: a process may load any of them. The list is empty if the job's own copy
/// is not among them, because the image's statement (`NCCL_VERSION`) may be about another one. That statement
/// applies only if no file was searched.
///
/// # Errors
/// Returns the first file whose release cannot be determined.
pub(crate) fn releases(facts: &Facts) -> Result<Vec<Version>, PathBuf> {
    let Some(image) = &facts.image else { return Ok(release(facts).into_iter().collect()) };
    if found(facts).is_none() {
        return Ok(Vec::new());
    }
    let of =
        |copy: &Library| copy.version.as_deref().and_then(Version::parse).ok_or_else(|| copy.path.clone());
    let copies = if is_rccl(facts) { &image.rccl } else { &image.nccl };
    let mut all = copies.iter().map(of).collect::<Result<Vec<Version>, PathBuf>>()?;
    all.sort();
    all.dedup();
    Ok(all)
}

/// Returns whether the job uses RCCL instead of NCCL.
pub(crate) fn is_rccl(facts: &Facts) -> bool {
    Flavor::of(facts) == Flavor::Rccl
}

/// Returns the version of the library that was found for the job, and its path. The version of an RCCL is the
/// version of the NCCL that it is based on ([`crate::libraries::rccl`]).
pub(crate) fn found(facts: &Facts) -> Option<(&str, String)> {
    let image = facts.image.as_ref()?;
    if is_rccl(facts) {
        let library = image.rccl_of_the_job()?;
        return Some((library.version.as_deref()?, library.path.display().to_string()));
    }
    let library = image.nccl_of_the_job().or_else(|| {
        // If all copies have the same version, it does not matter which one the job loads.
        image.nccl.first().filter(|_| image.nccl_versions().len() == 1)
    })?;
    Some((library.version.as_deref()?, library.path.display().to_string()))
}

/// Returns the image if an NCCL job runs in it.
pub(crate) fn image(facts: &Facts) -> Option<&Image> {
    facts.image.as_ref().filter(|image| image.has_nccl())
}

/// Returns the name of the provider for an HCA's kernel driver (rdma-core, `providers/`); `None` for an
/// unknown driver.
pub(crate) fn provider(hca: &Hca) -> Option<&'static str> {
    providers::of_driver(hca.driver.as_deref()?)
}

/// Returns the file of the plugin with this name if the dynamic loader can load it.
pub(crate) fn plugin(facts: &Facts, name: &str) -> Option<String> {
    let library = plugin_file(facts, name).filter(|library| library.missing.is_empty())?;
    Some(library.path.display().to_string())
}

/// Returns the network plugin with this name, even if libraries that it needs are missing. With RCCL,
/// replaces NCCL's prefix by RCCL's.
pub(crate) fn plugin_file<'a>(facts: &'a Facts, name: &str) -> Option<&'a Library> {
    let image = facts.image.as_ref()?;
    let of_rccl = name.strip_prefix("libnccl-net").filter(|_| is_rccl(facts));
    let name = of_rccl.map_or(Cow::Borrowed(name), |rest| format!("librccl-net{rest}").into());
    let name = name.as_ref();
    let is_it = |library: &&Library| match name.contains('/') {
        true => library.reached.iter().any(|reach| reach.path.as_os_str() == name),
        false => library.loads_as(name),
    };
    let by_variable = || image.named_plugins.iter().find(|named| named.name == name)?.library.as_ref();
    image.net_plugins.iter().find(is_it).or_else(by_variable)
}

/// Returns the library of the plugin with this name, of any kind. Returns `Some(None)` if the dynamic loader
/// cannot load it, and `None` if the image's readers did not look for the name.
pub(crate) fn named_plugin<'a>(facts: &'a Facts, name: &str) -> Option<Option<&'a Library>> {
    let image = facts.image.as_ref()?;
    let families = [&image.gin_plugins, &image.tuner_plugins, &image.env_plugins, &image.net_plugins];
    let by_name = families.into_iter().flatten().find(|library| library.loads_as(name));
    let named = || image.named_plugins.iter().find(|named| named.name == name);
    let found = match by_name {
        Some(library) => Some(library),
        None => named()?.library.as_ref(),
    };
    Some(found.filter(|library| library.missing.is_empty()))
}
