//! What NCCL can load from the image, by the rules of the dynamic loader. If no NCCL was found,
//! the job's may be linked into a program, or the image is not what the job runs in.

use std::borrow::Cow;
use std::path::PathBuf;

use super::version::Version;
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::image::Image;
use crate::image::flavor::Flavor;
use crate::image::library::Library;
use crate::image::providers;

/// Returns the release of NCCL that the job loads, as far as the image tells: by the library
/// itself, else by what it says of itself (`NCCL_VERSION`).
pub(crate) fn release(facts: &Facts) -> Option<Version> {
    let parse = |text: &str| Version::parse(text);
    found(facts)
        .and_then(|(version, _)| parse(version))
        .or_else(|| facts.platform.nccl_version.as_deref().and_then(parse))
}

/// Returns the releases of all copies of NCCL in the image, or of RCCL if that is the job's, of which a
/// process may load any: each once, the oldest first. None if the job's own is not among them: what the image
/// says about itself (`NCCL_VERSION`) may be about another one. It applies if no file was searched.
///
/// # Errors
/// The file whose release does not show.
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

/// Returns whether the job's NCCL is RCCL.
pub(crate) fn is_rccl(facts: &Facts) -> bool {
    Flavor::of(facts) == Flavor::Rccl
}

/// Returns the version of the library that was found for the job, and its path. The version of an RCCL is
/// that of the NCCL that it is made from ([`crate::libraries::rccl`]).
pub(crate) fn found(facts: &Facts) -> Option<(&str, String)> {
    let image = facts.image.as_ref()?;
    if is_rccl(facts) {
        let library = image.rccl_of_the_job()?;
        return Some((library.version.as_deref()?, library.path.display().to_string()));
    }
    let library = image.nccl_of_the_job().or_else(|| {
        // Which of them does not matter if all are the same.
        image.nccl.first().filter(|_| image.nccl_versions().len() == 1)
    })?;
    Some((library.version.as_deref()?, library.path.display().to_string()))
}

/// Returns the image, if a job with NCCL runs in it.
pub(crate) fn image(facts: &Facts) -> Option<&Image> {
    facts.image.as_ref().filter(|image| image.has_nccl())
}

/// Returns the provider that serves the HCAs of a kernel driver (rdma-core, `providers/`);
/// `None` for a driver that is not known.
pub(crate) fn provider(hca: &Hca) -> Option<&'static str> {
    providers::of_driver(hca.driver.as_deref()?)
}

/// Returns the file that a plugin's name leads to, if the dynamic loader can load it.
pub(crate) fn plugin(facts: &Facts, name: &str) -> Option<String> {
    let library = plugin_file(facts, name).filter(|library| library.missing.is_empty())?;
    Some(library.path.display().to_string())
}

/// Returns the plugin for networks that a name leads to, whether or not what it needs is there.
/// The name that RCCL looks for in place of NCCL's: it begins with another word.
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

/// Returns the library that a name leads to, of a plugin of any kind. `Some(None)` if the dynamic loader
/// cannot load it, `None` if the name was not looked for.
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
