//! The libraries that move a job's data. [`nccl`] is modeled: how it interprets the user's values, and what
//! it will do.
//!
//! Each other library ([`ALL`]) has a file with pure functions of the host and the variables: whether it is
//! in use, which variables it would otherwise get wrong or leave to chance on this host ([`Fill`]), what is
//! wrong with the user's own values ([`LibraryFinding`]), and what it will finally do.
//!
//! libfabric, which NIXL and MPI may use, has no file. Its verbs provider finds HCAs through RDMA CM by the
//! interfaces' addresses (`vrb_getifaddrs` in `prov/verbs/src/verbs_info.c`, 1.17), so it selects one of this
//! container's addresses; EFA has only one GID. tests/vm/guest/ucx.sh checks it.

pub(crate) mod exclusions;
mod finding;
pub(crate) mod gloo;
pub(crate) mod known;
mod lead;
pub(crate) mod meeting;
mod mooncake;
mod mori;
pub mod nccl;
pub(crate) mod node_address;
pub(crate) mod nvshmem;
pub(crate) mod own_verbs;
mod ray;
pub(crate) mod rccl;
mod rocshmem;
mod sglang;
mod tensorpipe;
pub(crate) mod traffic_class;
mod uccl;
pub mod ucx;
pub(crate) mod vllm;
mod wanted;

use crate::fabric::Rails;
use crate::facts::Facts;
use crate::facts::settings::{Settings, UserSetting};
use crate::image::flavor::Flavor;
use crate::image::packages::{self, Package};

pub use finding::{LibraryFinding, WrongGid};
pub use wanted::Wanted;

/// A library other than NCCL.
pub struct Library {
    /// Its name in the key `libraries`.
    pub name: &'static str,
    /// Its name in texts.
    pub title: &'static str,
    /// The Python packages that contain or use it, whose notes matter ([`packages::is_listed`]).
    pub packages: &'static [&'static str],
    /// The variables that rdma-init may fill in for it.
    pub filled: &'static [&'static str],
    /// Those of them that select a GID.
    pub gid: &'static [&'static str],
    /// All variables whose values matter here; a name that ends with `_` stands for all variables with that
    /// prefix. The facts do not contain others, unless a profile reads them.
    pub read: &'static [&'static str],
    /// Returns whether the image contains it or the environment shows that it is in use.
    pub is_here: fn(&LibraryContext) -> bool,
    /// Returns what it would get wrong or leave to chance on this host, given the context's variables.
    pub fills: fn(&LibraryContext) -> Vec<Fill>,
    /// Returns what is wrong with the context's variables, in this library's own grammar.
    pub findings: fn(&LibraryContext) -> Vec<LibraryFinding>,
    /// Returns what it will do with the context's variables: a predicate, such as `bootstrap on eth0 10.0.0.9`; `None` if
    /// that is unknown.
    pub will: fn(&LibraryContext) -> Option<String>,
}

/// All libraries other than NCCL, in the report's order.
pub const ALL: &[&Library] = &[
    &gloo::LIBRARY,
    &tensorpipe::LIBRARY,
    &ucx::LIBRARY,
    &nvshmem::LIBRARY,
    &mooncake::LIBRARY,
    &uccl::LIBRARY,
    &mori::LIBRARY,
    &rocshmem::LIBRARY,
    &vllm::LIBRARY,
    &sglang::LIBRARY,
    &ray::LIBRARY,
];

/// The input of a library's functions: a host, the job's rails, and variables.
pub struct LibraryContext<'a> {
    pub facts: &'a Facts,
    pub rails: &'a Rails<'a>,
    pub values: &'a dyn Fn(&str) -> Option<&'a str>,
    /// Returns whether a setting forbids filling in a variable.
    pub is_kept: &'a dyn Fn(&str) -> bool,
    /// The user's settings.
    pub settings: &'a Settings,
    /// Returns whether the configuration allows decisions for a library.
    pub is_allowed: &'a dyn Fn(&Library) -> bool,
}

impl<'a> LibraryContext<'a> {
    /// Returns the library that the job's collectives use.
    pub fn nccl(&self) -> Flavor {
        Flavor::of(self.facts)
    }

    pub fn value(&self, variable: &str) -> Option<&'a str> {
        (self.values)(variable)
    }

    pub fn sets_any(&self, variables: &[&str]) -> bool {
        variables.iter().any(|variable| self.value(variable).is_some())
    }

    /// Returns the image's Python packages with this name ([`packages::is_listed`]).
    pub fn packages(&self, listed: &'static str) -> impl Iterator<Item = &'a Package> {
        debug_assert!(ALL.iter().any(|library| library.packages.contains(&listed)), "{listed} is never read");
        self.facts.image.iter().flat_map(move |image| image.packages(listed))
    }

    pub fn has_package(&self, listed: &'static str) -> bool {
        self.packages(listed).next().is_some()
    }

    /// Returns the variable as the user set it.
    pub fn setting(&self, variable: &str) -> Option<&'a UserSetting> {
        self.settings.get(variable)
    }

    /// Returns whether rdma-init, not the user, supplied the variable's value.
    pub fn is_filled(&self, variable: &str) -> bool {
        self.setting(variable).is_none() && self.value(variable).is_some()
    }

    /// Returns the value that the environment has when the job starts. NCCL copies the values of its conf
    /// files into its process's environment when it starts (`src/misc/param.cc`, `setEnvFile`); until then,
    /// no other library sees them.
    pub fn in_environment(&self, variable: &str) -> Option<&'a str> {
        let is_in_conf = |setting: &UserSetting| setting.origin.conf_file().is_some();
        self.value(variable).filter(|_| !self.setting(variable).is_some_and(is_in_conf))
    }

    /// Returns a context whose variables come only from the environment, for a test.
    #[cfg(test)]
    pub(crate) fn of(
        facts: &'a Facts,
        rails: &'a Rails<'a>,
        values: &'a dyn Fn(&str) -> Option<&'a str>,
    ) -> LibraryContext<'a> {
        static NONE: Settings = Settings(Vec::new());
        LibraryContext { facts, rails, values, settings: &NONE, is_kept: &|_| false, is_allowed: &|_| true }
    }
}

/// A variable that corrects what a library would do on this host.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    pub variable: &'static str,
    /// `None` if the variable is left unset on purpose.
    pub value: Option<String>,
    /// What the library would do without it.
    pub why: String,
}

impl Fill {
    pub(crate) fn new(variable: &'static str, value: impl Into<String>, why: impl Into<String>) -> Fill {
        Fill { variable, value: Some(value.into()), why: why.into() }
    }
}

/// Returns the library that reads a variable.
pub fn of_variable(variable: &str) -> Option<&'static Library> {
    let reads = |name: &&str| *name == variable || name.ends_with('_') && variable.starts_with(*name);
    ALL.iter().copied().find(|library| library.read.iter().any(reads))
}

/// Returns the known name that a person means who writes a name in lower case, without `NCCL_`, or with a slip;
/// `None` for a known name, or one that resembles none.
#[must_use]
pub(crate) fn meant(name: &str) -> Option<String> {
    if is_known(name) {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    let slip = match () {
        () if upper.starts_with("NCCL_") => nccl::variables::nearest(&upper),
        () if upper.starts_with("RCCL_") => rccl::nearest(&upper),
        () => known::meant(&upper),
    };
    let with_prefix = format!("NCCL_{upper}");
    let found = [upper, with_prefix].into_iter().find(|name| is_known(name));
    found.or_else(|| slip.map(str::to_owned))
}

/// Unlike [`of_variable`], this does not go by a prefix: a name with a slip is not known.
#[must_use]
pub(crate) fn is_known(name: &str) -> bool {
    nccl::variables::find(name).is_some()
        || rccl::knows(name)
        || known::knows(name)
        || ALL.iter().any(|library| library.read.contains(&name))
}

/// Returns whether a Python package matters to one of the libraries.
pub fn is_package(name: &str) -> bool {
    ALL.iter().any(|library| library.packages.iter().any(|listed| packages::is_listed(name, listed)))
}

/// Returns whether rdma-init may have written a variable with this name: its prefix is that of a variable that is filled in
/// for a library, or of one that a profile sets.
pub(crate) fn may_write(name: &str) -> bool {
    let has_it = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('_'));
    let filled = ALL.iter().flat_map(|library| library.filled).filter_map(|name| name.split('_').next());
    ["FI", "NCCL", "RCCL", "RDMAV"].into_iter().chain(filled).any(has_it)
}

/// Returns whether a variable may be filled in for one of the libraries.
pub fn may_fill(variable: &str) -> bool {
    ALL.iter().any(|library| library.filled.contains(&variable))
}

/// Returns whether a variable selects a GID for NCCL or another library.
pub fn leads_to_gid(variable: &str) -> bool {
    [nccl::gid::INDEX, nccl::gid::RANGE, nccl::gid::FAMILY].contains(&variable)
        || ALL.iter().any(|library| library.gid.contains(&variable))
}

/// Returns the value that makes a library other than NCCL follow the same decisions, for a profile that
/// requests the variable. Returns `None` for a variable that no library here has, or if there is no decision
/// to follow.
pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    [gloo::value, nvshmem::value, tensorpipe::value, ucx::value]
        .into_iter()
        .find_map(|value| value(variable, rails))
}

/// The variables that have such a value: those that a profile may request.
pub const COMPANIONS: [&str; 5] =
    ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "NVSHMEM_IB_GID_INDEX"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_lists_the_companions() {
        let manual = include_str!("../../docs/configuration.md");
        let row = manual.lines().find(|line| line.starts_with("| `companions` |")).unwrap_or_default();
        let listed: Vec<&str> = row.split('`').skip(1).step_by(2).skip(1).collect();
        assert_eq!(listed, COMPANIONS);
        assert!(COMPANIONS.iter().all(|companion| of_variable(companion).is_some()));
    }

    #[test]
    fn a_name_as_a_person_writes_it_means_a_known_one() {
        for (name, wanted) in [
            ("ib_hca", Some("NCCL_IB_HCA")),
            ("nccl_ib_hca", Some("NCCL_IB_HCA")),
            ("IB_GID_INDEX", Some("NCCL_IB_GID_INDEX")),
            ("NCCL_IB_HAC", Some("NCCL_IB_HCA")),
            ("ucx_net_devices", Some("UCX_NET_DEVICES")),
            ("Gloo_Socket_Ifname", Some("GLOO_SOCKET_IFNAME")),
            ("UCX_NET_DEVICE", Some("UCX_NET_DEVICES")),
            ("NCCL_IB_HCA", None),
            ("UCX_RC_MLX5_TX_QUEUE_LEN", None),
            ("VLLM_HOST_IP", None),
            ("TZ", None),
            ("", None),
        ] {
            assert_eq!(meant(name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn a_package_of_another_project_that_extends_a_name_does_not_matter() {
        for name in ["ray", "nixl", "nixl-cu12", "torch", "vllm"] {
            assert!(is_package(name), "{name}");
        }
        for name in ["rayon", "ray-lightning", "torch-geometric", "xnixl", "nixl2", ""] {
            assert!(!is_package(name), "{name}");
        }
    }

    #[test]
    fn the_prefixes_of_what_is_filled_in_are_those_that_may_be_written() {
        for name in ["NCCL_IB_HCA", "FI_LOG_LEVEL", "UCX_LOG_LEVEL", "VLLM_LOGGING_LEVEL", "MC_GID_INDEX"] {
            assert!(may_write(name), "{name}");
        }
        for name in ["PATH", "HOST_IP", "RAY_NODE_IP_ADDRESS", "MOONCAKE_MASTER", "NIXL_BACKEND", "NCCL", ""]
        {
            assert!(!may_write(name), "{name}");
        }
    }

    #[test]
    fn what_is_filled_is_read_by_one_library() {
        for library in ALL {
            for variable in library.filled {
                let reader = of_variable(variable).map(|reader| reader.name);
                assert_eq!(reader, Some(library.name), "{variable}");
            }
        }
        assert!(of_variable("NCCL_SOCKET_IFNAME").is_none());
    }

    #[test]
    fn what_leads_to_a_gid_is_filled() {
        for library in ALL {
            for variable in library.gid {
                assert!(library.filled.contains(variable), "{variable}");
            }
            for variable in library.filled.iter().filter(|name| name.ends_with("_GID_INDEX")) {
                assert!(library.gid.contains(variable), "{variable}");
            }
        }
    }
}
