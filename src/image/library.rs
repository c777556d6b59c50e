//! A library of the image, and how it is reached.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A library's file. It is listed once, even if several links point to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// The file itself, after all links.
    pub path: PathBuf,
    /// For example, `2.21.5`, without a suffix such as `rc1`.
    pub version: Option<String>,
    /// How the version was determined; `None` if it is unknown.
    pub version_from: Option<VersionFrom>,
    /// The names for which the dynamic loader, with the inherited environment, takes this file (`dlopen(3)`
    /// with a name without a slash). A program or library with an RPATH or RUNPATH may find another file.
    pub loads_as: Vec<String>,
    /// All ways to reach the file, in order of precedence.
    pub reached: Vec<LibraryPath>,
    /// For a plugin: the libraries that it needs (DT_NEEDED) and that the dynamic loader does not find or
    /// finds too old, so that the plugin cannot be loaded either. Covers only libfabric and libibverbs: the
    /// job may already have loaded all others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingLibrary>,
    /// For UCX: whether its module for InfiniBand and RoCE (`libuct_ib.so`) is in one of its module
    /// directories; `None` if those directories contain no module, so that the files do not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbs: Option<bool>,
    /// For UCX: whether its module for transfers that a GPU starts (`libuct_ib_mlx5_gda.so`) is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gda: bool,
}

impl Library {
    pub fn loads_as(&self, name: &str) -> bool {
        self.loads_as.iter().any(|known| known == name)
    }

    pub fn is_reached(&self, way: Way) -> bool {
        self.reached.iter().any(|reach| reach.way == way)
    }
}

/// A library that a plugin needs but cannot load. Documents contain `libfabric.so.1` or, if it is too old,
/// `libfabric.so.1 (FABRIC_1.8)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct MissingLibrary {
    pub name: String,
    /// The symbol version that the library lacks; `None` if the loader finds no library.
    pub lacks: Option<String>,
}

impl From<String> for MissingLibrary {
    fn from(text: String) -> MissingLibrary {
        match text.strip_suffix(')').and_then(|text| text.split_once(" (")) {
            Some((name, lacks)) => MissingLibrary { name: name.to_owned(), lacks: Some(lacks.to_owned()) },
            None => MissingLibrary { name: text, lacks: None },
        }
    }
}

impl std::fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.lacks {
            Some(version) => write!(f, "{} ({version})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl From<MissingLibrary> for String {
    fn from(library: MissingLibrary) -> String {
        library.to_string()
    }
}

/// A path to a library, before links are resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LibraryPath {
    pub way: Way,
    pub path: PathBuf,
}

/// How a library is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    LdPreload,
    LdLibraryPath,
    /// `/etc/ld.so.cache`.
    Cache,
    /// A directory that the loader searches by default.
    Standard,
    /// A package in one of Python's package directories.
    SitePackages,
    /// PyTorch's own directory of libraries, `torch/lib`.
    TorchLib,
    /// The RPATH or RUNPATH of `libtorch_cuda.so`.
    TorchRpath,
    /// The file is linked statically into this library of PyTorch.
    TorchStatic,
    /// A vendor's directory, which the loader does not search by default.
    Vendor,
    /// An NCCL variable that contains the path.
    Variable,
    /// A way that a later version of this program knows.
    #[default]
    #[serde(other)]
    Other,
}

/// How the version of a library was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionFrom {
    /// `libnccl.so.2.21.5`.
    FileName,
    /// For example, `nvidia_nccl_cu12-2.21.5.dist-info`, if its RECORD lists the file with the file's size.
    Wheel,
    /// A text inside the library.
    Text,
    /// A source that a later version of this program knows.
    #[serde(other)]
    Other,
}

/// The families of libraries that the reader looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryFamily {
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
    EnvPlugin,
}

impl LibraryFamily {
    const ALL: [LibraryFamily; 12] = [
        LibraryFamily::Nccl,
        LibraryFamily::Rccl,
        LibraryFamily::NetPlugin,
        LibraryFamily::Verbs,
        LibraryFamily::Rdmacm,
        LibraryFamily::CudaRuntime,
        LibraryFamily::Ucp,
        LibraryFamily::Fabric,
        LibraryFamily::GinPlugin,
        LibraryFamily::TunerPlugin,
        LibraryFamily::Nvshmem,
        LibraryFamily::EnvPlugin,
    ];

    pub fn has(self, name: &str) -> bool {
        match self {
            LibraryFamily::Nccl => name.starts_with("libnccl.so"),
            LibraryFamily::Rccl => name.starts_with("librccl.so"),
            // RCCL looks for its own names; AMD's plugin for its NICs has neither prefix.
            LibraryFamily::NetPlugin => {
                ["libnccl-net", "librccl-net", "librccl-anp"].iter().any(|start| name.starts_with(start))
                    && name.contains(".so")
            }
            LibraryFamily::Verbs => name.starts_with("libibverbs.so"),
            LibraryFamily::Rdmacm => name.starts_with("librdmacm.so"),
            // PyTorch's older wheels contain a `libcudart-d0da41ae.so.11.0`.
            LibraryFamily::CudaRuntime => name.starts_with("libcudart") && name.contains(".so"),
            // NIXL's wheels contain a `libucp-6b2b1b6f.so.0.0.0`.
            LibraryFamily::Ucp => {
                name.starts_with("libucp.so") || name.starts_with("libucp-") && name.contains(".so")
            }
            LibraryFamily::Fabric => name.starts_with("libfabric.so"),
            LibraryFamily::GinPlugin => name.starts_with("libnccl-gin") && name.contains(".so"),
            // aws-ofi-nccl used the words in the other order before NCCL defined a name for such plugins.
            LibraryFamily::TunerPlugin => {
                ["libnccl-tuner", "libnccl-ofi-tuner"].iter().any(|start| name.starts_with(start))
                    && name.contains(".so")
            }
            LibraryFamily::Nvshmem => name.starts_with("libnvshmem_host.so"),
            // Later releases of RCCL look for their own name.
            LibraryFamily::EnvPlugin => {
                ["libnccl-env", "librccl-env"].iter().any(|start| name.starts_with(start))
                    && name.contains(".so")
            }
        }
    }

    /// Returns whether NCCL loads libraries of this family at run time and continues without them.
    pub fn is_plugin(self) -> bool {
        matches!(
            self,
            LibraryFamily::NetPlugin
                | LibraryFamily::GinPlugin
                | LibraryFamily::TunerPlugin
                | LibraryFamily::EnvPlugin
        )
    }

    /// Returns whether a plugin may need a library of this name that the job has not loaded before.
    pub fn is_of_a_plugin(name: &str) -> bool {
        LibraryFamily::Fabric.has(name) || LibraryFamily::Verbs.has(name)
    }

    /// Returns whether a name belongs to any family.
    pub fn any_has(name: &str) -> bool {
        // This check rejects most of an image's thousands of names.
        let begins_like_one = matches!(
            name.as_bytes(),
            [b'l', b'i', b'b', b'n', b'c' | b'v', ..]
                | [b'l', b'i', b'b', b'r', b'c' | b'd', ..]
                | [b'l', b'i', b'b', b'i', b'b', ..]
                | [b'l', b'i', b'b', b'c' | b'u', b'u' | b'c', ..]
                | [b'l', b'i', b'b', b'f', b'a', ..]
        );
        begins_like_one && LibraryFamily::ALL.iter().any(|family| family.has(name))
    }

    /// Returns the version in the file's name, with links resolved. The version must have this many numbers:
    /// `libnccl.so.2` contains only the interface version.
    pub fn version(self, name: &str) -> Option<String> {
        let numbers = match self {
            LibraryFamily::Nccl => 3,
            LibraryFamily::Verbs | LibraryFamily::Rdmacm | LibraryFamily::CudaRuntime => 2,
            // These names contain only the interface version: `libucp.so.0.0.0`.
            LibraryFamily::Rccl
            | LibraryFamily::NetPlugin
            | LibraryFamily::Ucp
            | LibraryFamily::Fabric
            | LibraryFamily::GinPlugin
            | LibraryFamily::TunerPlugin
            | LibraryFamily::Nvshmem
            | LibraryFamily::EnvPlugin => {
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
        let version = |family: LibraryFamily, name| family.version(name);
        assert_eq!(version(LibraryFamily::Nccl, "libnccl.so.2.21.5").unwrap(), "2.21.5");
        assert_eq!(version(LibraryFamily::Verbs, "libibverbs.so.1.14.44.0").unwrap(), "1.14.44.0");
        assert_eq!(version(LibraryFamily::CudaRuntime, "libcudart-d0da41ae.so.11.0").unwrap(), "11.0");
        for name in ["libnccl.so", "libnccl.so.2", "libnccl.so.2.21", "libnccl.so.2.21.x", "libnccl.so.2.."] {
            assert_eq!(version(LibraryFamily::Nccl, name), None, "{name}");
        }
        assert_eq!(version(LibraryFamily::Ucp, "libucp.so.0.0.0"), None);
        assert!(
            LibraryFamily::any_has("libnccl-net-aws-ofi.so") && !LibraryFamily::Nccl.has("libnccl-net.so")
        );
        assert!(!LibraryFamily::any_has("libnccl_device.bc"));
        assert_eq!(version(LibraryFamily::Fabric, "libfabric.so.1.27.0"), None);
        assert!(
            LibraryFamily::TunerPlugin.has("libnccl-ofi-tuner.so")
                && !LibraryFamily::NetPlugin.has("libnccl-ofi-tuner.so")
        );
    }

    #[test]
    fn a_missing_library_is_written_as_it_is_read() {
        for text in ["libfabric.so.1", "libfabric.so.1 (FABRIC_1.8)", "odd (", "odd)", ""] {
            let library = MissingLibrary::from(text.to_owned());
            assert_eq!(String::from(library.clone()), text);
            assert_eq!(library.lacks.as_deref(), text.contains("FABRIC").then_some("FABRIC_1.8"));
        }
    }

    #[test]
    fn ways_of_a_later_version_are_read() {
        let reach: LibraryPath = serde_json::from_str(r#"{"way":"by-mail","path":"/x"}"#).unwrap();
        assert_eq!(reach, LibraryPath { way: Way::Other, path: "/x".into() });
        assert_eq!(serde_json::to_string(&Way::LdLibraryPath).unwrap(), "\"ld-library-path\"");
    }
}
