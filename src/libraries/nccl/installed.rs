//! What NCCL can load from the image, by the rules of the dynamic loader and of
//! libibverbs. Where nobody has looked, or no NCCL was found, everything counts as
//! there but plugins: then the image is not what the job runs in.

use std::borrow::Cow;

use super::version::Version;
use crate::facts::Facts;
use crate::facts::gpu::Make;
use crate::facts::image::Image;
use crate::facts::image::kernel_abi::KernelAbi;
use crate::facts::image::library::Library;
use crate::facts::image::providers::Provider;
use crate::facts::rdma::Hca;

/// The release of NCCL that the job loads, as far as the image tells: by the library
/// itself, else by what it says of itself (`NCCL_VERSION`).
pub fn release(facts: &Facts) -> Option<Version> {
    let parse = |text: &str| Version::parse(text);
    found(facts)
        .and_then(|(version, _)| parse(version))
        .or_else(|| facts.platform.nccl_version.as_deref().and_then(parse))
}

/// Whether the job's NCCL is RCCL.
pub fn is_rccl(facts: &Facts) -> bool {
    let has =
        |image: &Image| !image.rccl.is_empty() && (image.nccl.is_empty() || facts.gpu.make == Make::Amd);
    facts.image.as_ref().is_some_and(has)
}

/// The version of the library that was found for the job, and its path. The version of an RCCL is
/// that of the NCCL that it is made from ([`crate::libraries::rccl`]).
pub fn found(facts: &Facts) -> Option<(&str, String)> {
    let image = facts.image.as_ref()?;
    if is_rccl(facts) {
        let library = image.rccl_of_the_job()?;
        return Some((library.version.as_deref()?, library.path.display().to_string()));
    }
    let library = image.nccl_of_the_job().or_else(|| {
        // Which of them does not matter where all are the same.
        image.nccl.first().filter(|_| image.nccl_versions().len() == 1)
    })?;
    Some((library.version.as_deref()?, library.path.display().to_string()))
}

/// The image, where it is one that a job with NCCL runs in.
pub fn image(facts: &Facts) -> Option<&Image> {
    let has_one = |image: &&Image| !image.nccl.is_empty() || !image.rccl.is_empty() || image.torch.is_some();
    facts.image.as_ref().filter(has_one)
}

pub fn has_libibverbs(facts: &Facts) -> bool {
    image(facts).is_none_or(|image| image.libibverbs_of_the_job().is_some())
}

/// Whether libibverbs has a provider for an HCA that it accepts.
pub fn has_provider(facts: &Facts, hca: &Hca) -> bool {
    match (image(facts), provider(hca)) {
        (Some(image), Some(name)) => image.provider(name).is_some() && other_abi(image, hca).is_none(),
        _ => true,
    }
}

/// What an HCA's provider supports, where the kernel's driver speaks another ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherAbi<'a> {
    pub provider: &'a Provider,
    pub spoken: u32,
    pub supported: KernelAbi,
}

/// Why libibverbs leaves an HCA out although it loads its provider (`libibverbs/init.c`,
/// `match_device`). `None` if the provider supports what the kernel speaks, or it is not known.
pub fn other_abi<'a>(image: &'a Image, hca: &Hca) -> Option<OtherAbi<'a>> {
    let spoken = hca.uverbs.as_ref()?.abi?;
    let provider = image.provider(provider(hca)?)?;
    let supported = provider.kernel_abi.filter(|supported| !supported.has(spoken))?;
    Some(OtherAbi { provider, spoken, supported })
}

/// The provider that serves the HCAs of a kernel driver (rdma-core, `providers/`);
/// `None` for a driver that is not known.
pub fn provider(hca: &Hca) -> Option<&'static str> {
    Some(match hca.driver.as_deref()? {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "bnxt_en" => "bnxt_re",
        "ionic" => "ionic",
        "erdma" => "erdma",
        "efa" => "efa",
        "ice" | "i40e" | "irdma" => "irdma",
        "qede" => "qedr",
        "hns3" => "hns",
        "mana" => "mana",
        "hfi1" => "hfi1verbs",
        "cxgb4" => "cxgb4",
        "vmw_pvrdma" => "vmw_pvrdma",
        _ => return None,
    })
}

/// The file that a plugin's name leads to, if the dynamic loader can load it.
pub fn plugin(facts: &Facts, name: &str) -> Option<String> {
    let library = plugin_file(facts, name).filter(|library| library.missing.is_empty())?;
    Some(library.path.display().to_string())
}

/// The plugin for networks that a name leads to, whether or not what it needs is there.
/// The name that RCCL looks for in place of NCCL's: it begins with another word.
pub fn plugin_file<'a>(facts: &'a Facts, name: &str) -> Option<&'a Library> {
    let image = facts.image.as_ref()?;
    let of_rccl = name.strip_prefix("libnccl-net").filter(|_| is_rccl(facts));
    let name = of_rccl.map_or(Cow::Borrowed(name), |rest| format!("librccl-net{rest}").into());
    let name = name.as_ref();
    let is_it = |library: &&Library| match name.contains('/') {
        true => library.reached.iter().any(|reach| reach.path.as_os_str() == name),
        false => library.loads_as(name),
    };
    image.net_plugins.iter().find(is_it)
}
