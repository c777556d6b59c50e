//! A library of the image, and how it is reached.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A library's file, listed once however many links lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// The file itself, after all links.
    pub path: PathBuf,
    /// `2.21.5`. A suffix such as `rc1` is left out.
    pub version: Option<String>,
    /// How the version is known; `None` where it is not.
    pub version_from: Option<VersionFrom>,
    /// The names for which the dynamic loader takes this file, and no other one, with
    /// the environment that was inherited (`dlopen(3)` with a name without a slash).
    /// A program or library with an RPATH or RUNPATH of its own may find another.
    pub loads_as: Vec<String>,
    /// All ways that lead to the file, in the order in which they count.
    pub reached: Vec<Reach>,
    /// Of a plugin: the libraries that it needs (DT_NEEDED) and that the dynamic loader does not
    /// find, so that it cannot load the plugin either. One that is found, and is too old, is
    /// named with the version of symbols that it lacks: `libfabric.so.1 (FABRIC_1.8)`. Only
    /// libfabric and libibverbs are looked for: the job may have loaded all others by then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Library {
    pub fn loads_as(&self, name: &str) -> bool {
        self.loads_as.iter().any(|known| known == name)
    }

    pub fn is_reached(&self, way: Way) -> bool {
        self.reached.iter().any(|reach| reach.way == way)
    }
}

/// A path to a library before links are followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    pub way: Way,
    pub path: PathBuf,
}

/// What leads to a library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    LdPreload,
    LdLibraryPath,
    /// `/etc/ld.so.cache`.
    Cache,
    /// A folder that the loader searches by itself.
    Standard,
    /// A package in one of Python's folders.
    SitePackages,
    /// PyTorch's own folder of libraries, `torch/lib`.
    TorchLib,
    /// The RPATH or RUNPATH of `libtorch_cuda.so`.
    TorchRpath,
    /// The file is linked into this library of PyTorch.
    TorchStatic,
    /// A folder of a vendor, to which only a path leads.
    Vendor,
    /// A way that a later version of this program knows.
    #[default]
    #[serde(other)]
    Other,
}

/// How a library's version is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionFrom {
    /// `libnccl.so.2.21.5`.
    FileName,
    /// `nvidia_nccl_cu12-2.21.5.dist-info`, whose list has a file of this size.
    Wheel,
    /// A text in the library.
    Text,
    /// A source that a later version of this program knows.
    #[serde(other)]
    Other,
}

/// The families of libraries that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Nccl,
    Rccl,
    NetPlugin,
    Verbs,
    Rdmacm,
    CudaRuntime,
    Ucp,
    Fabric,
    GinPlugin,
    TunerPlugin,
    Nvshmem,
}

impl Family {
    const ALL: [Family; 11] = [
        Family::Nccl,
        Family::Rccl,
        Family::NetPlugin,
        Family::Verbs,
        Family::Rdmacm,
        Family::CudaRuntime,
        Family::Ucp,
        Family::Fabric,
        Family::GinPlugin,
        Family::TunerPlugin,
        Family::Nvshmem,
    ];

    pub fn has(self, name: &str) -> bool {
        match self {
            Family::Nccl => name.starts_with("libnccl.so"),
            Family::Rccl => name.starts_with("librccl.so"),
            // RCCL looks for names of its own; AMD's plugin for its NICs has no such name.
            Family::NetPlugin => {
                ["libnccl-net", "librccl-net", "librccl-anp"].iter().any(|start| name.starts_with(start))
                    && name.contains(".so")
            }
            Family::Verbs => name.starts_with("libibverbs.so"),
            Family::Rdmacm => name.starts_with("librdmacm.so"),
            // PyTorch's older wheels bring a `libcudart-d0da41ae.so.11.0`.
            Family::CudaRuntime => name.starts_with("libcudart") && name.contains(".so"),
            // The wheels of NIXL bring a `libucp-6b2b1b6f.so.0.0.0`.
            Family::Ucp => {
                name.starts_with("libucp.so") || name.starts_with("libucp-") && name.contains(".so")
            }
            Family::Fabric => name.starts_with("libfabric.so"),
            Family::GinPlugin => name.starts_with("libnccl-gin") && name.contains(".so"),
            // aws-ofi-nccl had the other order of words before NCCL had a name for such plugins.
            Family::TunerPlugin => {
                ["libnccl-tuner", "libnccl-ofi-tuner"].iter().any(|start| name.starts_with(start))
                    && name.contains(".so")
            }
            Family::Nvshmem => name.starts_with("libnvshmem_host.so"),
        }
    }

    /// Whether NCCL loads libraries of this family at run time, and goes on without them.
    pub fn is_plugin(self) -> bool {
        matches!(self, Family::NetPlugin | Family::GinPlugin | Family::TunerPlugin)
    }

    /// Whether a plugin may need a library of this name that the job has not loaded before.
    pub fn is_of_a_plugin(name: &str) -> bool {
        Family::Fabric.has(name) || Family::Verbs.has(name)
    }

    /// Whether a name belongs to any family.
    pub fn any_has(name: &str) -> bool {
        name.starts_with("lib") && Family::ALL.iter().any(|family| family.has(name))
    }

    /// The version in the file's name, after links. It must have this many numbers:
    /// `libnccl.so.2` only tells the version of the interface.
    pub fn version(self, name: &str) -> Option<String> {
        let numbers = match self {
            Family::Nccl => 3,
            Family::Verbs | Family::Rdmacm | Family::CudaRuntime => 2,
            // These names only tell the version of the interface: `libucp.so.0.0.0`.
            Family::Rccl
            | Family::NetPlugin
            | Family::Ucp
            | Family::Fabric
            | Family::GinPlugin
            | Family::TunerPlugin
            | Family::Nvshmem => {
                return None;
            }
        };
        let (_, version) = name.split_once(".so.")?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = || version.split('.');
        (parts().count() >= numbers && parts().all(is_number)).then(|| version.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_more_than_that_of_the_interface() {
        let version = |family: Family, name| family.version(name);
        assert_eq!(version(Family::Nccl, "libnccl.so.2.21.5").unwrap(), "2.21.5");
        assert_eq!(version(Family::Verbs, "libibverbs.so.1.14.44.0").unwrap(), "1.14.44.0");
        assert_eq!(version(Family::CudaRuntime, "libcudart-d0da41ae.so.11.0").unwrap(), "11.0");
        for name in ["libnccl.so", "libnccl.so.2", "libnccl.so.2.21", "libnccl.so.2.21.x", "libnccl.so.2.."] {
            assert_eq!(version(Family::Nccl, name), None, "{name}");
        }
        assert_eq!(version(Family::Ucp, "libucp.so.0.0.0"), None);
        assert!(Family::any_has("libnccl-net-aws-ofi.so") && !Family::Nccl.has("libnccl-net.so"));
        assert!(!Family::any_has("libnccl_device.bc"));
        assert_eq!(version(Family::Fabric, "libfabric.so.1.27.0"), None);
        assert!(
            Family::TunerPlugin.has("libnccl-ofi-tuner.so") && !Family::NetPlugin.has("libnccl-ofi-tuner.so")
        );
    }

    #[test]
    fn ways_of_a_later_version_are_read() {
        let reach: Reach = serde_json::from_str(r#"{"way":"by-mail","path":"/x"}"#).unwrap();
        assert_eq!(reach, Reach { way: Way::Other, path: "/x".into() });
        assert_eq!(serde_json::to_string(&Way::LdLibraryPath).unwrap(), "\"ld-library-path\"");
    }
}
