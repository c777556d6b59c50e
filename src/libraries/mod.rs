//! The libraries that a job moves its data with. Of [`nccl`] there is a model: what it makes of
//! the user's values, and what it will do.
//!
//! Each library beside it ([`ALL`]) has a file with pure functions of the host and the variables:
//! whether it is in use, which variables it would otherwise get wrong or leave to chance on this
//! host ([`Fill`]), what is wrong with the user's own values ([`LibraryFinding`]), and what it will do in
//! the end ([`Will`]). `plan::words` has the words for the reasons and for what it will do.
//!
//! libfabric, as NIXL and MPI may use it, has none. Its provider for verbs finds HCAs through RDMA CM by
//! the addresses of interfaces (`vrb_getifaddrs` in `prov/verbs/src/verbs_info.c`, 1.17), so it takes an
//! address of this container; EFA has one GID. tests/vm/guest/ucx.sh asks it.

pub(crate) mod exclusions;
mod finding;
pub(crate) mod gloo;
pub(crate) mod known;
mod lead;
pub(crate) mod meeting;
mod mooncake;
pub mod nccl;
pub(crate) mod node_address;
mod nvshmem;
pub(crate) mod own_verbs;
mod ray;
pub(crate) mod rccl;
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

pub use finding::{LibraryFinding, WrongGid};
pub use wanted::Wanted;

/// A library beside NCCL.
pub struct Library {
    /// As the key `libraries` has it.
    pub name: &'static str,
    /// As people write it.
    pub title: &'static str,
    /// The variables that it may get from here.
    pub filled: &'static [&'static str],
    /// Those of them that lead it to a GID.
    pub gid: &'static [&'static str],
    /// All variables whose values matter here; one that ends with `_` stands for all that begin
    /// like this.
    pub read: &'static [&'static str],
    /// Whether the image holds it, or the environment shows it in use.
    pub is_here: fn(&LibraryContext) -> bool,
    /// What it would get wrong or leave to chance on this host, with the variables of the subject.
    pub fills: fn(&LibraryContext) -> Vec<Fill>,
    /// What is wrong with the variables of the subject, in this library's own grammar.
    pub findings: fn(&LibraryContext) -> Vec<LibraryFinding>,
    /// What it will do with the variables of the subject; `None` if that is unknown.
    pub will: fn(&LibraryContext) -> Option<Will>,
}

/// All libraries beside NCCL. The order is that of the report.
pub const ALL: &[&Library] = &[
    &gloo::LIBRARY,
    &tensorpipe::LIBRARY,
    &ucx::LIBRARY,
    &nvshmem::LIBRARY,
    &mooncake::LIBRARY,
    &uccl::LIBRARY,
    &vllm::LIBRARY,
    &sglang::LIBRARY,
    &ray::LIBRARY,
];

/// What a library is asked about: a host, the rails of the job, and variables.
pub struct LibraryContext<'a> {
    pub facts: &'a Facts,
    pub rails: &'a Rails<'a>,
    pub values: &'a dyn Fn(&str) -> Option<&'a str>,
    /// Whether a setting says that a variable is not to be filled in.
    pub is_kept: &'a dyn Fn(&str) -> bool,
    /// What the user has set.
    pub settings: &'a Settings,
    /// Whether the configuration lets a library be decided for.
    pub is_allowed: &'a dyn Fn(&Library) -> bool,
}

impl<'a> LibraryContext<'a> {
    /// Returns the library of the job's collectives.
    pub fn nccl(&self) -> Flavor {
        Flavor::of(self.facts)
    }

    pub fn value(&self, variable: &str) -> Option<&'a str> {
        (self.values)(variable)
    }

    /// Returns the variable as the user has set it.
    pub fn setting(&self, variable: &str) -> Option<&'a UserSetting> {
        self.settings.get(variable)
    }

    /// Returns whether the value of a variable is a fill of rdma-init's, and not the user's.
    pub fn is_filled(&self, variable: &str) -> bool {
        self.setting(variable).is_none() && self.value(variable).is_some()
    }

    /// Returns the value that the environment has when the job starts. NCCL puts the values of its conf files
    /// into the environment of its process when it starts (`src/misc/param.cc`, `setEnvFile`), and until then
    /// no other library sees them.
    pub fn in_environment(&self, variable: &str) -> Option<&'a str> {
        let is_in_conf = |setting: &UserSetting| setting.origin.conf_file().is_some();
        self.value(variable).filter(|_| !self.setting(variable).is_some_and(is_in_conf))
    }

    /// Returns the variables that the environment alone has, for a test.
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

/// A variable that fixes what a library would do on this host.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    pub variable: &'static str,
    /// `None` to say that it is left unset on purpose.
    pub value: Option<String>,
    pub why: FillReason,
}

/// Why a variable of a library is filled in: what it would do without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillReason {
    /// The library of this title would take the address of the host's name.
    Meeting {
        library: &'static str,
        named: meeting::NamedHost,
    },
    Ucx(ucx::UcxReason),
    /// The library of this title opens HCAs itself.
    OwnVerbs {
        library: &'static str,
        without: own_verbs::WithoutVariable,
    },
    Vllm(vllm::MappingReason),
    /// It would be filled in, if that did not switch off another feature.
    LeftTo(exclusions::LeftTo),
    NodeAddress(node_address::AddressReason),
}

/// What a library will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Will {
    Meet(meeting::BootstrapAddress),
    TakeOfUcx(ucx::Taken),
    /// Each worker of vLLM gives UCX one of these ports, that of its own GPU.
    TakeOfWorkers(Vec<String>),
}

/// Returns the library that reads a variable.
pub fn of_variable(variable: &str) -> Option<&'static Library> {
    let reads = |name: &&str| *name == variable || name.ends_with('_') && variable.starts_with(*name);
    ALL.iter().copied().find(|library| library.read.iter().any(reads))
}

/// Returns whether a variable may be filled in for one of the libraries.
pub fn may_fill(variable: &str) -> bool {
    ALL.iter().any(|library| library.filled.contains(&variable))
}

/// Returns whether a variable leads NCCL or another library to a GID.
pub fn leads_to_gid(variable: &str) -> bool {
    [nccl::gid::INDEX, nccl::gid::RANGE, nccl::gid::FAMILY].contains(&variable)
        || ALL.iter().any(|library| library.gid.contains(&variable))
}

/// Returns the value that makes a library other than NCCL follow the same decisions, for a profile that
/// asks for it. `None` for a variable that no library here has, and if nothing was decided
/// that it could follow.
pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    [gloo::value, nvshmem::value, tensorpipe::value, ucx::value]
        .into_iter()
        .find_map(|value| value(variable, rails))
}

#[cfg(test)]
mod tests {
    use super::*;

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
