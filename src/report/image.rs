//! Writes the libraries in the container's image, for people.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::line;
use crate::image::Image;
use crate::image::library::{Library, MissingLibrary, Way};
use crate::image::packages::Package;
use crate::image::torch::{Linkage, Torch};
use crate::libraries::rccl;
use crate::text::visible;

/// Writes a line for each library that was found; nothing if there is none.
///
/// # Errors
/// The sink's errors.
pub(super) fn write(out: &mut impl Write, image: &Image) -> io::Result<()> {
    if *image == Image::default() {
        return Ok(());
    }
    line!(out, "Image")?;
    let of_the_job = image.nccl_of_the_job();
    for library in &image.nccl {
        let mark = if Some(library) == of_the_job { ", for the job" } else { "" };
        write_library(out, "NCCL", library, mark)?;
    }
    let of_the_job = image.rccl_of_the_job();
    for library in &image.rccl {
        let rocm = library.version.as_deref().and_then(rccl::rocm);
        let rocm = rocm.map(|release| format!(", of ROCm {release}")).unwrap_or_default();
        let mark = if Some(library) == of_the_job { ", for the job" } else { "" };
        write_library(out, "RCCL", library, &format!("{rocm}{mark}"))?;
    }
    if let Some(torch) = &image.torch {
        write_torch(out, torch, !image.rccl.is_empty())?;
    }
    for (name, libraries) in [
        ("NCCL network plugin", &image.net_plugins),
        ("NCCL GIN plugin", &image.gin_plugins),
        ("NCCL tuner plugin", &image.tuner_plugins),
        ("NCCL env plugin", &image.env_plugins),
        ("libfabric", &image.libfabric),
        ("libibverbs", &image.libibverbs),
        ("librdmacm", &image.librdmacm),
        ("CUDA runtime", &image.cuda_runtime),
        ("UCX", &image.ucx),
        ("NVSHMEM", &image.nvshmem),
    ] {
        libraries.iter().try_for_each(|library| write_library(out, name, library, ""))?;
    }
    write_providers(out, image)?;
    image.packages.iter().try_for_each(|package| write_package(out, package))?;
    image.foreign.iter().try_for_each(|foreign| {
        let architecture = visible(&foreign.architecture);
        line!(out, "  for another architecture: {} ({architecture})", shown(&foreign.path))
    })
}

fn write_library(out: &mut impl Write, name: &str, library: &Library, mark: &str) -> io::Result<()> {
    let version = library.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let mut ways: Vec<&str> = library.reached.iter().map(|reach| shown_way(reach.way)).collect();
    ways.dedup();
    let missing = match library.missing.as_slice() {
        [] => String::new(),
        missing => {
            let missing: Vec<String> = missing.iter().map(MissingLibrary::to_string).collect();
            format!(", cannot be loaded without {}", visible(&missing.join(", ")))
        }
    };
    line!(out, "  {name}{version}: {} ({}){mark}{missing}", shown(&library.path), ways.join(", "))
}

fn write_torch(out: &mut impl Write, torch: &Torch, has_rccl: bool) -> io::Result<()> {
    let version = torch.version.as_ref().map(|version| format!(" {}", visible(version))).unwrap_or_default();
    let nccl = match (torch.linkage, &torch.nccl) {
        (Linkage::Static, _) => "has NCCL built in".to_owned(),
        (Linkage::Dynamic, Some(path)) => format!("loads NCCL from {}", shown(path)),
        (Linkage::Dynamic, None) => "loads NCCL, but finds none".to_owned(),
        (Linkage::None, _) if has_rccl => "without NVIDIA's NCCL".to_owned(),
        (Linkage::None, _) => "without CUDA".to_owned(),
        (Linkage::Unknown, _) => "its NCCL is unknown".to_owned(),
    };
    line!(out, "  PyTorch{version}: {}, {nccl}", shown(&torch.path))
}

fn write_package(out: &mut impl Write, package: &Package) -> io::Result<()> {
    let Package { name, version, path, missing, replaced, libibverbs } = package;
    let own = match libibverbs {
        Some(own) => format!(", its own libibverbs: {}", shown(&own.path)),
        None => String::new(),
    };
    let lost = |files: &[PathBuf], what: &str| match files {
        [] => String::new(),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            format!(", {what}: {}{more}", shown(first))
        }
    };
    line!(
        out,
        "  package {} {}: {}{}{}{own}",
        visible(name),
        visible(version),
        shown(path),
        lost(missing, "not there"),
        lost(replaced, "of another package, or changed")
    )
}

/// Writes the providers that can be loaded, then those that are present or named without effect.
fn write_providers(out: &mut impl Write, image: &Image) -> io::Result<()> {
    let (loaded, idle): (Vec<_>, Vec<_>) =
        image.providers.iter().partition(|provider| image.provider(&provider.name) == Some(provider));
    for (title, providers) in [("providers", loaded), ("providers that are not loaded", idle)] {
        let names: Vec<String> = providers
            .iter()
            .map(|provider| match (&provider.path, provider.abi) {
                (None, _) => format!("{} (no file)", visible(&provider.name)),
                (_, abi) if abi == image.provider_abi => visible(&provider.name),
                (_, Some(abi)) => format!("{} (rdmav{abi})", visible(&provider.name)),
                (_, None) => visible(&provider.name),
            })
            .collect();
        if !names.is_empty() {
            line!(out, "  {title}: {}", names.join(", "))?;
        }
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    visible(&path.to_string_lossy())
}

fn shown_way(way: Way) -> &'static str {
    match way {
        Way::LdPreload => "LD_PRELOAD",
        Way::LdLibraryPath => "LD_LIBRARY_PATH",
        Way::Cache => "ld.so.cache",
        Way::Standard => "the loader's directories",
        Way::SitePackages => "site-packages",
        Way::TorchLib => "torch/lib",
        Way::TorchRpath => "PyTorch's RPATH",
        Way::TorchStatic => "in PyTorch",
        Way::Vendor => "not searched by the loader",
        Way::Variable => "by a variable",
        Way::Other => "otherwise",
    }
}
