//! Finds the libibverbs providers, which are its user-space drivers, as libibverbs finds them (rdma-core,
//! `libibverbs/dynamic_driver.c`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::collect::loaded;
use super::elf::Elf;
use super::kernel_abi::{self, KernelAbi};
use super::library::Library;
use super::loader::Loader;
use super::scan::scan;
use super::tree::Tree;
use crate::facts::environment::Environment;

/// `IBV_CONFIG_DIR`, for a libibverbs without a path of its own. All regular files in this directory count,
/// whatever their names.
pub(crate) const CONFIGURATION: &str = "/etc/libibverbs.d";

/// The most bytes of libibverbs' texts to search; it has a few tens of thousands.
const TEXTS: u64 = 4 * 1024 * 1024;

/// The limit for each: providers, configuration files, and names in all of those files.
const MOST: usize = 256;

/// In bytes: the longest name, which may be a path.
const LONGEST_NAME: usize = 4096;

/// A provider. libibverbs loads only the providers that are named. It takes them from its own directory
/// (`VERBS_PROVIDER_DIR`) or, if they are not there, through the dynamic loader's search. It never loads a
/// file that no configuration names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provider {
    /// A name such as `mlx5`; if it starts with `/`, a path without `-rdmavN.so`.
    pub name: String,
    /// The file, with links resolved; `None` if the name resolves to no file.
    pub path: Option<PathBuf>,
    /// The N of `-rdmavN.so`: the version of the private ABI between libibverbs and its providers
    /// (`IBVERBS_PABI_VERSION`). libibverbs loads only providers with its own version.
    pub abi: Option<u32>,
    /// Where the provider is named: the configuration files (`driver mlx5`), then the variable, which is
    /// `RDMAV_DRIVERS` or, if that is not set, `IBV_DRIVERS`.
    pub named_by: Vec<String>,
    /// The kernel driver ABIs that the provider states; `None` if it states none, if libibverbs does not load
    /// it, or if no HCA of this host needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_abi: Option<KernelAbi>,
}

/// A libibverbs and its providers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verbs {
    /// The file, with links resolved.
    pub path: PathBuf,
    /// As in [`super::Image::provider_abi`].
    pub provider_abi: Option<u32>,
    /// As in [`super::Image::provider_folder`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_folder: Option<PathBuf>,
    pub providers: Vec<Provider>,
}

/// Returns the name of the provider for the HCAs of a kernel driver (rdma-core, `providers/`); `None` for an
/// unknown driver.
pub(crate) fn of_driver(driver: &str) -> Option<&'static str> {
    Some(match driver {
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

/// Returns the provider with this name that a libibverbs with this ABI loads.
pub(crate) fn of_name<'p>(providers: &'p [Provider], abi: Option<u32>, name: &str) -> Option<&'p Provider> {
    let fits = |provider: &&Provider| {
        provider.name == name
            && provider.path.is_some()
            && !provider.named_by.is_empty()
            && (abi.is_none() || abi == provider.abi)
    };
    providers.iter().find(fits)
}

/// The build settings of a libibverbs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Built {
    /// `VERBS_PROVIDER_DIR`.
    pub folder: Option<PathBuf>,
    /// The N of `VERBS_PROVIDER_SUFFIX`, `-rdmavN.so`.
    pub abi: Option<u32>,
    /// `IBV_CONFIG_DIR`, if it is not [`CONFIGURATION`]: conda's library has its own.
    pub configuration: Option<PathBuf>,
}

/// Returns the build settings of the libibverbs that the loader takes for `libibverbs.so.1`.
pub(crate) fn built(tree: &Tree, libraries: &[Library]) -> Built {
    loaded(libraries, "libibverbs.so.1").map(|library| built_of(tree, &library.path)).unwrap_or_default()
}

/// Returns the libibverbs in this file and its providers.
pub(crate) fn verbs(
    tree: &Tree,
    loader: &Loader,
    real: &Path,
    environment: &Environment,
    served: &[&str],
) -> Verbs {
    let built = built_of(tree, real);
    let providers = read(tree, loader, &built, environment, served);
    Verbs { path: real.to_owned(), provider_abi: built.abi, provider_folder: built.configuration, providers }
}

/// Returns the build settings of a libibverbs, which its texts contain:
/// `/usr/lib/x86_64-linux-gnu/libibverbs/lib%s-rdmav34.so`.
fn built_of(tree: &Tree, real: &Path) -> Built {
    let mut built = Built::default();
    if let Some(file) = tree.open(real)
        && let Ok(elf) = Elf::open(&file)
    {
        scan(&file, &elf, TEXTS, b'%', |before, after| {
            let abi = of_suffix(after.strip_prefix(b"%s")?)?;
            built.abi = Some(abi);
            let start = before.iter().rposition(|byte| *byte == 0).map_or(0, |nul| nul + 1);
            let folder = std::str::from_utf8(before.get(start..)?).ok()?.strip_suffix("/lib")?;
            built.folder = folder.starts_with('/').then(|| PathBuf::from(folder));
            built.folder.is_some().then_some(())
        });
        built.configuration = scan(&file, &elf, TEXTS, b'.', |before, after| {
            after.starts_with(b".d\0").then_some(())?;
            let start = before.iter().rposition(|byte| *byte == 0).map_or(0, |nul| nul + 1);
            let folder = std::str::from_utf8(before.get(start..)?).ok()?;
            (folder.starts_with('/') && folder.ends_with("/libibverbs"))
                .then(|| PathBuf::from(format!("{folder}.d")))
        })
        .filter(|folder| folder != Path::new(CONFIGURATION));
    }
    // If the texts do not contain the directory, rdma-core's default applies.
    built.folder = built.folder.or_else(|| Some(real.parent()?.join("libibverbs")));
    built
}

/// Returns the N of the `-rdmavN.so` at the start of this text.
fn of_suffix(text: &[u8]) -> Option<u32> {
    let text = &text[..text.iter().position(|byte| *byte == 0)?];
    let number = std::str::from_utf8(text).ok()?.strip_prefix("-rdmav")?.strip_suffix(".so")?;
    number.parse().ok()
}

/// Returns whether a file has the name of a provider.
pub(super) fn is_file(name: &str) -> bool {
    of_file(name).is_some()
}

/// Returns the provider name and the N in a file name: `mlx5` and 34 for `libmlx5-rdmav34.so`.
fn of_file(name: &str) -> Option<(&str, u32)> {
    let whole = name.strip_prefix("lib")?.strip_suffix(".so")?;
    let stem = whole.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((stem.strip_suffix("-rdmav")?, whole.get(stem.len()..)?.parse().ok()?))
}

/// Returns the providers that have files, in the order of their directories, followed by those that are only
/// named. `served` contains the names of the providers that this host's HCAs need.
pub(crate) fn read(
    tree: &Tree,
    loader: &Loader,
    built: &Built,
    environment: &Environment,
    served: &[&str],
) -> Vec<Provider> {
    let mut providers: Vec<Provider> = Vec::new();
    let own = built.folder.iter().flat_map(|folder| {
        let names = tree.names(folder);
        names.iter().map(|name| folder.join(name)).collect::<Vec<_>>()
    });
    let by_search = loader.all(|name| of_file(name).is_some()).into_iter().map(|reach| reach.path);
    for path in own.chain(by_search) {
        let Some((name, abi)) = path.file_name().and_then(|name| of_file(name.to_str()?)) else {
            continue;
        };
        let known = |provider: &Provider| provider.name == name && provider.abi == Some(abi);
        if providers.len() < MOST
            && !providers.iter().any(known)
            && let Some(real) = tree.real(&path)
        {
            providers.push(Provider {
                name: name.to_owned(),
                path: Some(real),
                abi: Some(abi),
                ..Provider::default()
            });
        }
    }
    for (name, by) in named(tree, built, environment) {
        // Every file with this name is marked, because the ABI decides between them.
        let mut known = false;
        for provider in providers.iter_mut().filter(|provider| provider.name == name) {
            provider.named_by.push(by.clone());
            known = true;
        }
        if !known && providers.len() < MOST {
            providers.push(only_named(tree, built, name, by));
        }
    }
    for provider in &mut providers {
        let is_loaded = !provider.named_by.is_empty() && (built.abi.is_none() || built.abi == provider.abi);
        if let Some(path) = provider.path.as_ref().filter(|_| is_loaded) {
            // If the name is a path, its last part is `libNAME`.
            let last = provider.name.rsplit('/').next().unwrap_or_default();
            let name = if last == provider.name { last } else { last.strip_prefix("lib").unwrap_or(last) };
            // A distribution names some twenty providers, and each file takes a dozen reads, so this reads
            // only the needed ones.
            if served.contains(&name) {
                provider.kernel_abi = kernel_abi::stated(tree, path, name);
            }
        }
    }
    providers
}

/// Returns a provider that is named but has no file in the search directories. The name may be a path.
fn only_named(tree: &Tree, built: &Built, name: String, by: String) -> Provider {
    let abi = built.abi.filter(|_| name.starts_with('/'));
    let path = abi.and_then(|n| tree.real(Path::new(&format!("{name}-rdmav{n}.so"))));
    Provider { name, abi: path.as_ref().and(abi), path, named_by: vec![by], ..Provider::default() }
}

/// Returns the names of all named providers, each with the file or variable that names it.
fn named(tree: &Tree, built: &Built, environment: &Environment) -> Vec<(String, String)> {
    let mut named = Vec::new();
    let configuration = built.configuration.as_deref().unwrap_or(Path::new(CONFIGURATION));
    if let Some(folder) = tree.real(configuration) {
        for file in tree.all_names(&folder).iter().take(MOST) {
            // Like libibverbs, this takes only regular files.
            let Some(text) = tree.text(&folder.join(file)) else { continue };
            let drivers = text.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                let name = (words.next() == Some("driver")).then(|| words.next()).flatten();
                name.filter(|name| name.len() <= LONGEST_NAME)
            });
            let room = MOST - named.len();
            named.extend(
                drivers
                    .take(room)
                    .map(|name| (name.to_owned(), format!("{}/{file}", configuration.display()))),
            );
        }
    }
    let variable = ["RDMAV_DRIVERS", "IBV_DRIVERS"]
        .into_iter()
        .find_map(|variable| environment.get(variable).map(|value| (variable, value)));
    if let Some((variable, value)) = variable {
        let names = value.split([':', ';']).filter(|name| !name.is_empty());
        named.extend(names.take(MOST).map(|name| (name.to_owned(), variable.to_owned())));
    }
    named
}
