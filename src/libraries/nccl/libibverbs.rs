//! Which libibverbs NCCL loads (`src/misc/ibvsymbols.cc`, `buildIbvSymbols`), and whether it has a provider
//! for an HCA.

use std::path::Path;

use super::installed::provider;
use super::version::{READS_IBVERBS_LIB, Version};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::image::Image;
use crate::image::kernel_abi::KernelAbi;
use crate::image::library::Library;
use crate::image::named::{FoundVerbs, IBVERBS_LIB};
use crate::image::providers::{self, CONFIGURATION, Provider};

/// The libibverbs that a release loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libibverbs<'a> {
    /// The files do not show it: the image was not read, or the job may run in another image.
    Unknown,
    Loaded(Loaded<'a>),
    /// The dynamic loader finds no libibverbs.
    Missing,
    /// `NCCL_IBVERBS_LIB` names another library, or the program itself. NCCL does not find its functions
    /// there and tries no other file.
    NotOne,
}

/// A libibverbs that can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loaded<'a> {
    pub path: &'a Path,
    /// As in [`Image::provider_abi`].
    pub abi: Option<u32>,
    /// The directory whose files name the providers.
    pub configuration: &'a Path,
    pub providers: &'a [Provider],
}

/// Returns the value of `NCCL_IBVERBS_LIB`, if the release reads it. NCCL tries it first.
pub(crate) fn named<'v>(get: impl Fn(&str) -> Option<&'v str>, version: Version) -> Option<&'v str> {
    get(IBVERBS_LIB).filter(|_| version >= READS_IBVERBS_LIB)
}

/// Returns the libibverbs that NCCL loads if `NCCL_IBVERBS_LIB` has this value. If the loader does not find
/// that one, NCCL loads `libibverbs.so` or `libibverbs.so.1`.
#[must_use]
pub(crate) fn libibverbs<'a>(facts: &'a Facts, named: Option<&str>) -> Libibverbs<'a> {
    let Some(image) = &facts.image else { return Libibverbs::Unknown };
    let found = named.map(|name| image.named_verbs.iter().find(|known| known.name == name));
    match found {
        Some(Some(known)) => match &known.found {
            FoundVerbs::Verbs(verbs) => Libibverbs::Loaded(Loaded {
                path: &verbs.path,
                abi: verbs.provider_abi,
                configuration: folder(verbs.provider_folder.as_deref()),
                providers: &verbs.providers,
            }),
            FoundVerbs::OtherLibrary => Libibverbs::NotOne,
            FoundVerbs::Nothing => usual(image),
            FoundVerbs::Other => Libibverbs::Unknown,
        },
        // The image's readers did not know this value.
        Some(None) => Libibverbs::Unknown,
        None => usual(image),
    }
}

/// Returns whether the dynamic loader finds no library for this value of `NCCL_IBVERBS_LIB`.
pub(crate) fn is_missing(facts: &Facts, named: Option<&str>) -> bool {
    let known = facts.image.iter().flat_map(|image| &image.named_verbs);
    named
        .is_some_and(|name| known.into_iter().any(|one| one.name == name && one.found == FoundVerbs::Nothing))
}

/// Returns the libibverbs that NCCL loads if no variable names one.
fn usual(image: &Image) -> Libibverbs<'_> {
    match image.libibverbs_of_the_job() {
        Some(Library { path, .. }) => Libibverbs::Loaded(Loaded {
            path,
            abi: image.provider_abi,
            configuration: folder(image.provider_folder.as_deref()),
            providers: &image.providers,
        }),
        None if image.has_nccl() => Libibverbs::Missing,
        // The job's NCCL is elsewhere, or linked into a program; its libibverbs may be as well.
        None => Libibverbs::Unknown,
    }
}

fn folder(own: Option<&Path>) -> &Path {
    own.unwrap_or(Path::new(CONFIGURATION))
}

impl<'a> Libibverbs<'a> {
    /// Returns whether libibverbs shows an HCA to NCCL, as far as the files show.
    #[must_use]
    pub(crate) fn shows(&self, hca: &Hca) -> bool {
        match (self, provider(hca)) {
            (Libibverbs::Loaded(loaded), Some(name)) => {
                loaded.provider(name).is_some() && loaded.other_abi(hca).is_none()
            }
            _ => true,
        }
    }
}

/// The ABIs that an HCA's provider supports, if the kernel driver uses another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherAbi<'a> {
    pub provider: &'a Provider,
    pub spoken: u32,
    pub supported: KernelAbi,
}

impl<'a> Loaded<'a> {
    /// Returns the provider with this name that libibverbs loads.
    pub(crate) fn provider(&self, name: &str) -> Option<&'a Provider> {
        providers::of_name(self.providers, self.abi, name)
    }

    /// Returns why libibverbs skips an HCA although it loads the HCA's provider (`libibverbs/init.c`,
    /// `match_device`). `None` if the provider supports the kernel driver's ABI, or if either is unknown.
    pub(crate) fn other_abi(&self, hca: &Hca) -> Option<OtherAbi<'a>> {
        let spoken = hca.uverbs.as_ref()?.abi?;
        let provider = self.provider(provider(hca)?)?;
        let supported = provider.kernel_abi.filter(|supported| !supported.has(spoken))?;
        Some(OtherAbi { provider, spoken, supported })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::named::NamedVerbs;
    use crate::image::providers::Verbs;

    fn facts(usual: bool, nccl: bool) -> Facts {
        let library = |name: &str| Library {
            path: format!("/usr/lib/{name}").into(),
            loads_as: vec![name.to_owned()],
            ..Library::default()
        };
        let named = |name: &str, found| NamedVerbs { name: name.to_owned(), found };
        let verbs = Verbs { path: "/opt/libibverbs.so.1".into(), ..Verbs::default() };
        let image = Image {
            nccl: nccl.then(|| library("libnccl.so.2")).into_iter().collect(),
            libibverbs: usual.then(|| library("libibverbs.so.1")).into_iter().collect(),
            named_verbs: vec![
                named("/opt/libibverbs.so", FoundVerbs::Verbs(verbs)),
                named("/none", FoundVerbs::Nothing),
                named("", FoundVerbs::OtherLibrary),
            ],
            ..Image::default()
        };
        Facts { image: Some(image), ..Facts::default() }
    }

    #[test]
    fn a_named_one_comes_first_and_only_a_missing_one_falls_back() {
        let path = |usual, nccl, named| match libibverbs(&facts(usual, nccl), named) {
            Libibverbs::Loaded(loaded) => loaded.path.display().to_string(),
            Libibverbs::Missing => "missing".to_owned(),
            Libibverbs::NotOne => "not one".to_owned(),
            Libibverbs::Unknown => "unknown".to_owned(),
        };
        let (usual, opt) = ("/usr/lib/libibverbs.so.1", "/opt/libibverbs.so.1");
        for (named, with, without) in [
            (None, usual, "missing"),
            (Some("/opt/libibverbs.so"), opt, opt),
            (Some("/none"), usual, "missing"),
            (Some(""), "not one", "not one"),
            (Some("/never/looked/for"), "unknown", "unknown"),
        ] {
            assert_eq!([path(true, true, named), path(false, true, named)], [with, without], "{named:?}");
        }
        // If the image contains no NCCL, only a libibverbs that is present shows something.
        assert_eq!([path(true, false, None), path(false, false, None)], [usual, "unknown"]);
        assert_eq!(libibverbs(&Facts::default(), Some("/none")), Libibverbs::Unknown);
    }

    #[test]
    fn earlier_releases_do_not_read_it() {
        let get = |name: &str| (name == IBVERBS_LIB).then_some("/x");
        assert_eq!(named(get, Version::new(2, 30, 2)), None);
        assert_eq!(named(get, READS_IBVERBS_LIB), Some("/x"));
    }
}
