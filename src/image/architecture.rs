//! The processor architectures of programs and libraries, and what the dynamic loader does
//! differently for each.

use std::path::{Path, PathBuf};

use nix::libc::{EM_AARCH64, EM_X86_64};
use serde::{Deserialize, Serialize};

use super::elf::{Elf, Not};
use super::library::LibraryFamily;
use super::tree::Tree;

/// An architecture that rdma-init is built for. All of them are 64-bit and little-endian.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// As `uname -m` names it.
    pub name: &'static str,
    /// `e_machine` of elf(5).
    pub machine: u16,
    /// The flags that the loader requires in an entry of `/etc/ld.so.cache`: the architecture's flags plus
    /// `FLAG_ELF_LIBC6` (glibc, `sysdeps/*/dl-cache.h`).
    pub cache_flags: u32,
    /// Debian's multiarch name of the library directories.
    pub folder: &'static str,
}

const X86_64: Architecture =
    Architecture { name: "x86_64", machine: EM_X86_64, cache_flags: 0x0303, folder: "x86_64-linux-gnu" };

const AARCH64: Architecture =
    Architecture { name: "aarch64", machine: EM_AARCH64, cache_flags: 0x0a03, folder: "aarch64-linux-gnu" };

/// The architecture of this program, and so of the image that contains it.
pub(crate) const OURS: &Architecture = if cfg!(target_arch = "aarch64") { &AARCH64 } else { &X86_64 };

/// Returns the name of the architecture with this `e_machine`; `None` if rdma-init is not built for it.
pub(crate) fn named(machine: u16) -> Option<&'static str> {
    [X86_64, AARCH64].iter().find(|known| known.machine == machine).map(|known| known.name)
}

/// A file that the job would use but that is built for another architecture than this program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Foreign {
    pub kind: ForeignKind,
    /// The path with all links resolved.
    pub path: PathBuf,
    /// The file's architecture, as `uname -m` names it.
    pub architecture: String,
    /// The architecture of this program.
    pub wanted: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForeignKind {
    /// The command, or the program that its first line names.
    Command,
    /// The first Python in the `PATH`.
    Python,
    Nccl,
    Rccl,
    /// The PyTorch library that calls NCCL.
    Torch,
    Libibverbs,
    /// Another library, or a kind that a later version of this program knows.
    #[default]
    #[serde(other)]
    Other,
}

impl ForeignKind {
    pub fn of_family(family: LibraryFamily) -> ForeignKind {
        match family {
            LibraryFamily::Nccl => ForeignKind::Nccl,
            LibraryFamily::Rccl => ForeignKind::Rccl,
            LibraryFamily::Verbs => ForeignKind::Libibverbs,
            LibraryFamily::NetPlugin
            | LibraryFamily::Rdmacm
            | LibraryFamily::CudaRuntime
            | LibraryFamily::Ucp
            | LibraryFamily::Fabric
            | LibraryFamily::GinPlugin
            | LibraryFamily::TunerPlugin
            | LibraryFamily::Nvshmem
            | LibraryFamily::EnvPlugin => ForeignKind::Other,
        }
    }
}

/// Returns the program at this path if it is for another architecture.
pub(crate) fn foreign_program(tree: &Tree, kind: ForeignKind, path: &Path) -> Option<Foreign> {
    let real = tree.real(path)?;
    match Elf::open(&tree.open(&real)?) {
        Err(Not::OurMachine(Some(architecture))) => Some(foreign(kind, &real, architecture)),
        _ => None,
    }
}

pub(crate) fn foreign(kind: ForeignKind, real: &Path, architecture: &str) -> Foreign {
    Foreign {
        kind,
        path: real.to_owned(),
        architecture: architecture.to_owned(),
        wanted: OURS.name.to_owned(),
    }
}
