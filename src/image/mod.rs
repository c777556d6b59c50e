//! Finds the libraries of the container's image without loading them and without a GPU.

pub(crate) mod architecture;
mod bytes;
mod cache;
mod collect;
pub(crate) mod elf;
#[cfg(test)]
mod fake;
pub(crate) mod flavor;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod kernel_abi;
pub mod library;
mod loader;
pub mod named;
pub(crate) mod packages;
mod programs;
pub(crate) mod providers;
mod python;
mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod torch;
mod tree;
mod ucx;
mod wheel;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::facts::reader::Reader;
use crate::facts::settings::Settings;
use crate::facts::start::Start;
use architecture::Foreign;
use collect::{Collector, loaded};
use library::{Library, LibraryFamily, Way};
use loader::Loader;
use named::{Named, NamedVerbs};
use packages::{IsPackage, Package};
use providers::Provider;
use torch::{Linkage, Torch};
use tree::Tree;

/// The libraries that matter to an NCCL job. Each list starts with the libraries that the dynamic loader
/// finds, in its order, and ends with the ones that it would not find.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    pub nccl: Vec<Library>,
    /// RCCL, which replaces NCCL on AMD GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rccl: Vec<Library>,
    /// The PyTorch that Python would import.
    pub torch: Option<Torch>,
    pub libibverbs: Vec<Library>,
    /// The N of `-rdmavN.so` in the names of the providers that `libibverbs.so.1` loads, if known.
    pub provider_abi: Option<u32>,
    pub providers: Vec<Provider>,
    /// The directory whose files name the providers, if it is not `/etc/libibverbs.d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_folder: Option<PathBuf>,
    pub librdmacm: Vec<Library>,
    /// The plugins of NCCL and RCCL for networks: `libnccl-net*.so`, `librccl-net*.so`,
    /// `librccl-anp.so`.
    pub net_plugins: Vec<Library>,
    /// The CUDA runtime, `libcudart`.
    pub cuda_runtime: Vec<Library>,
    /// UCX, found by its `libucp`.
    pub ucx: Vec<Library>,
    /// The job's programs and the libraries of NCCL, RCCL, PyTorch and libibverbs that are for another
    /// architecture than this program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Foreign>,
    /// libfabric, which AWS's plugin for EFA needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libfabric: Vec<Library>,
    /// NCCL's plugins for GPU-initiated traffic, `libnccl-gin*.so`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gin_plugins: Vec<Library>,
    /// NCCL's plugins that choose algorithms, `libnccl-tuner*.so`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tuner_plugins: Vec<Library>,
    /// NCCL's plugins that supply the values of its variables, `libnccl-env*.so`, and RCCL's,
    /// `librccl-env*.so`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_plugins: Vec<Library>,
    /// What the dynamic loader finds for the plugin names that variables contain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_plugins: Vec<Named>,
    /// What the dynamic loader finds for the libibverbs names that variables contain, each with its own
    /// providers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_verbs: Vec<NamedVerbs>,
    /// NVSHMEM, found by its `libnvshmem_host`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvshmem: Vec<Library>,
    /// Python packages that move data alongside NCCL or start the job's processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
}

/// The name under which programs load NCCL.
const NCCL: &str = "libnccl.so.2";

impl Image {
    /// Returns the NCCL that the job uses, as far as the files show: PyTorch's NCCL if there is a PyTorch
    /// with CUDA; else the one that the dynamic loader finds; else the only one in Python's directories.
    /// Returns `None` if the files do not show it.
    pub fn nccl_of_the_job(&self) -> Option<&Library> {
        if let Some(torch) = self.torch.as_ref().filter(|torch| torch.linkage != Linkage::None) {
            return self.nccl.iter().find(|library| Some(&library.path) == torch.nccl.as_ref());
        }
        loaded(&self.nccl, NCCL).or_else(|| {
            let of_python = |l: &&Library| l.is_reached(Way::SitePackages) || l.is_reached(Way::TorchLib);
            let mut libraries = self.nccl.iter().filter(of_python);
            libraries.next().filter(|_| libraries.next().is_none())
        })
    }

    /// Returns the RCCL that the job uses, as far as the files show: the one in PyTorch's package, else the
    /// one that the dynamic loader finds, else the only one.
    pub fn rccl_of_the_job(&self) -> Option<&Library> {
        let of_torch = self.torch.as_ref().and_then(|torch| {
            let lib = torch.path.join("lib");
            self.rccl.iter().find(|library| library.path.starts_with(&lib))
        });
        of_torch
            .or_else(|| loaded(&self.rccl, "librccl.so.1"))
            .or_else(|| self.rccl.first().filter(|_| self.rccl.len() == 1))
    }

    /// Returns whether the image contains a job with NCCL, as far as the files show.
    pub fn has_nccl(&self) -> bool {
        !self.nccl.is_empty() || !self.rccl.is_empty() || self.torch.is_some()
    }

    /// Returns the NCCL versions in the image, without duplicates; more than one is a risk.
    pub fn nccl_versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = Vec::new();
        for version in self.nccl.iter().filter_map(|library| library.version.as_deref()) {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        versions
    }

    /// Returns the libibverbs that NCCL loads: `libibverbs.so`, or `libibverbs.so.1` if there is none
    /// (`src/misc/ibvsymbols.cc`).
    pub fn libibverbs_of_the_job(&self) -> Option<&Library> {
        loaded(&self.libibverbs, "libibverbs.so").or_else(|| loaded(&self.libibverbs, "libibverbs.so.1"))
    }

    /// Returns the packages with this name ([`packages::is_listed`]). The first is the one that Python imports.
    pub fn packages<'i>(&'i self, listed: &'static str) -> impl Iterator<Item = &'i Package> {
        self.packages.iter().filter(move |package| packages::is_listed(&package.name, listed))
    }

    /// Returns the provider with this name that libibverbs loads.
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        providers::of_name(&self.providers, self.provider_abi, name)
    }
}

/// Vendor directories of NCCL plugins: AWS (EFA), Google (gIB), NVIDIA (HPC-X), AMD.
const PLUGIN_FOLDERS: &[&str] = &[
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    #[cfg(target_arch = "x86_64")]
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/opt/aws-ofi-nccl/install/lib",
    "/usr/local/gib/lib64",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/opt/hpcx/nccl_spectrum-x_plugin/lib",
    "/opt/rocm/lib",
];

/// NVSHMEM's directories outside wheels: those of NVIDIA's packages and of its archive.
const NVSHMEM_FOLDERS: &[&str] = &[
    "/opt/nvshmem/lib",
    "/usr/local/nvshmem/lib",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/nvshmem/12",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/nvshmem/13",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/nvshmem/12",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/nvshmem/13",
];

/// libfabric's directories outside the distribution's: those of AWS's EFA installer.
const LIBFABRIC_FOLDERS: &[&str] = &[
    "/opt/amazon/efa/lib",
    "/opt/amazon/efa/lib64",
    #[cfg(target_arch = "x86_64")]
    "/opt/amazon/efa/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/opt/amazon/efa/lib/aarch64-linux-gnu",
];

/// Reads the libraries below the reader's root for a command that starts like this, without loading or
/// running anything. The settings may name libraries. `served` contains the names of the libibverbs providers
/// that this host's HCAs need. Without `is_package`, reads only NCCL and what it needs, not the libraries that move a job's
/// data alongside it.
pub fn read(
    reader: &Reader,
    start: Start,
    is_package: Option<IsPackage>,
    settings: &Settings,
    served: &[&str],
) -> Image {
    let (plugins, of_verbs) = (named::names(settings), named::ibverbs_names(settings));
    let matters = |name: &str| matters(name, is_package);
    let tree = &Tree::new(reader, &matters);
    let loader = &Loader::new(reader, tree, start, &[&plugins, &of_verbs]);
    let sites = python::site_packages(tree, start);
    let family = |family| Collector::new(tree, loader, family);

    let mut nccl = family(LibraryFamily::Nccl);
    let mut rccl = family(LibraryFamily::Rccl);
    let mut cuda_runtime = family(LibraryFamily::CudaRuntime);
    for site in sites.iter().filter(|site| !tree.names(site).is_empty()) {
        nccl.wheel(site, "nvidia/nccl/lib", "nvidia_nccl_cu");
        cuda_runtime.wheel(site, "nvidia/cuda_runtime/lib", "nvidia_cuda_runtime");
        // From CUDA 13 on, one directory holds all libraries of the toolkit.
        for toolkit in tree.names(&site.join("nvidia")).iter().filter(|name| is_toolkit(name)) {
            cuda_runtime.wheel(site, &format!("nvidia/{toolkit}/lib"), "nvidia_cuda_runtime");
        }
        let torch = site.join("torch/lib");
        nccl.folder(Way::TorchLib, &torch);
        rccl.folder(Way::TorchLib, &torch);
        cuda_runtime.folder(Way::TorchLib, &torch);
    }
    let torch = torch::read(tree, &sites, &mut nccl);
    let (local, opt) = (Path::new("/usr/local"), Path::new("/opt"));
    for release in tree.names(opt).iter().filter(|name| is_rocm(name)) {
        rccl.folder(Way::Vendor, &opt.join(release).join("lib"));
    }
    for toolkit in tree.names(local).iter().filter(|name| is_toolkit(name)) {
        cuda_runtime.folder(Way::Vendor, &local.join(toolkit).join("lib64"));
    }
    let with_folders = |of: LibraryFamily, folders: &[&str]| {
        let mut libraries = family(of);
        folders.iter().for_each(|folder| libraries.folder(Way::Vendor, Path::new(folder)));
        libraries.finish()
    };
    let packages = is_package.map_or_else(Vec::new, |is_package| packages::read(tree, &sites, is_package));
    let mut ucx = ucx::read(family(LibraryFamily::Ucp), tree, start, &packages);
    let mut nvshmem = family(LibraryFamily::Nvshmem);
    NVSHMEM_FOLDERS.iter().for_each(|folder| nvshmem.folder(Way::Vendor, Path::new(folder)));
    for package in packages.iter().filter(|package| packages::is_listed(&package.name, "nvidia-nvshmem-")) {
        nvshmem.wheel(&package.path, "nvidia/nvshmem/lib", "nvidia_nvshmem");
    }
    let mut nvshmem = nvshmem.finish();
    if is_package.is_some() {
        ucx::look_into(tree, start, &mut ucx);
        collect::add_versions(tree, LibraryFamily::Nvshmem, &mut nvshmem);
    }
    let mut net_plugins = with_folders(LibraryFamily::NetPlugin, PLUGIN_FOLDERS);
    let is_of_aws = |library: &&mut Library| library.path.to_str().is_some_and(|path| path.contains("ofi"));
    if is_package.is_some() {
        for library in net_plugins.iter_mut().filter(is_of_aws) {
            collect::add_versions(tree, LibraryFamily::NetPlugin, std::slice::from_mut(library));
        }
    }
    let verbs = family(LibraryFamily::Verbs);
    let mut foreign = programs::foreign(tree, start);
    foreign.extend([&nccl, &rccl, &verbs].into_iter().flat_map(|found| found.foreign.iter().cloned()));
    let libibverbs = verbs.finish();
    let built = providers::built(tree, &libibverbs);
    Image {
        nccl: nccl.finish(),
        rccl: rccl.finish(),
        torch,
        providers: providers::read(tree, loader, &built, start.environment, served),
        provider_abi: built.abi,
        provider_folder: built.configuration,
        libibverbs,
        librdmacm: family(LibraryFamily::Rdmacm).finish(),
        net_plugins,
        gin_plugins: with_folders(LibraryFamily::GinPlugin, PLUGIN_FOLDERS),
        tuner_plugins: with_folders(LibraryFamily::TunerPlugin, PLUGIN_FOLDERS),
        env_plugins: with_folders(LibraryFamily::EnvPlugin, PLUGIN_FOLDERS),
        named_plugins: named::read(tree, loader, start, &plugins),
        named_verbs: named::verbs(tree, loader, start, &of_verbs, served),
        libfabric: with_folders(LibraryFamily::Fabric, LIBFABRIC_FOLDERS),
        cuda_runtime: cuda_runtime.finish(),
        ucx,
        nvshmem,
        packages,
        foreign,
    }
}

/// Returns whether any reader looks for a directory entry with this name. Its first letter rejects many of an image's
/// thousands of names.
fn matters(name: &str, is_package: Option<IsPackage>) -> bool {
    let concerns_nccl = match name.as_bytes() {
        [b'l', ..] => LibraryFamily::any_has(name) || providers::is_file(name),
        [b'p', ..] => name.starts_with("python3"),
        [b'n', ..] => name.starts_with("nvidia"),
        [b't', ..] => name == "torch" || name.starts_with("torch-"),
        [b'c', ..] => is_toolkit(name),
        [b'r', ..] => is_rocm(name),
        _ => false,
    };
    let concerns_others = |is_package| packages::is_note(name, is_package) || ucx::is_module(name);
    concerns_nccl || is_package.is_some_and(concerns_others)
}

/// Returns whether this is the name of a ROCm directory: `rocm`, `rocm-6.2.0`.
fn is_rocm(name: &str) -> bool {
    name == "rocm" || name.starts_with("rocm-")
}

/// Returns whether this is the name of a CUDA toolkit directory: `cuda`, `cuda-12.4`, `cu13`.
fn is_toolkit(name: &str) -> bool {
    let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    name == "cuda"
        || name.strip_prefix("cuda-").is_some_and(number)
        || name.strip_prefix("cu").is_some_and(number)
}
