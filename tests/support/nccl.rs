//! The NCCL libraries that the tests run: target/nccl/VERSION/libnccl.so.2, or another architecture's, which
//! QEMU runs: target/nccl-ARCHITECTURE/VERSION/libnccl.so.2.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use super::repository;

/// The list of releases, one per line; tests/nccl/setup.sh fetches them.
const VERSIONS: &str = include_str!("../nccl/versions");

/// The releases for arm64, if the machine that runs the tests has another architecture.
const VERSIONS_OF_ARM64: &str = include_str!("../nccl/versions-aarch64");

/// Returns the libraries' architecture if it is not this machine's.
fn foreign() -> Option<String> {
    std::env::var("RDMA_INIT_TEST_NCCL_ARCHITECTURE").ok().filter(|name| !name.is_empty())
}

fn cache() -> PathBuf {
    repository(match foreign() {
        Some(architecture) => format!("target/nccl-{architecture}"),
        None => "target/nccl".to_owned(),
    })
}

/// Returns a command that starts the driver, in QEMU if it is for another architecture.
pub fn start_driver() -> Command {
    let driver = driver().join("driver");
    match foreign() {
        Some(architecture) => {
            let mut command = Command::new(format!("qemu-{architecture}-static"));
            command.arg("-L").arg(repository(format!("target/sysroot/{architecture}"))).arg(driver);
            command
        }
        None => Command::new(driver),
    }
}

pub struct Library {
    /// The release, such as `2.27.7`.
    pub version: String,
    pub path: PathBuf,
}

/// Returns the libraries that `RDMA_INIT_TEST_NCCL` names, or all of them if it is not set.
pub fn libraries() -> Vec<Library> {
    let chosen = std::env::var("RDMA_INIT_TEST_NCCL").ok().filter(|versions| !versions.trim().is_empty());
    let usual = if foreign().is_some() { VERSIONS_OF_ARM64 } else { VERSIONS };
    let versions = chosen.as_deref().unwrap_or(usual).split_whitespace();
    versions
        .map(|version| {
            let path = cache().join(version).join("libnccl.so.2");
            assert!(path.exists(), "there is no {}: `make test-setup` fetches it", path.display());
            Library { version: version.to_owned(), path }
        })
        .collect()
}

/// Returns the libraries with these versions and the newest one, for a test that takes long.
pub fn some(versions: &[&str]) -> Vec<Library> {
    let mut libraries = libraries();
    let newest = libraries.len().saturating_sub(1);
    let mut place = 0..;
    libraries.retain(|library| place.next() == Some(newest) || versions.contains(&library.version.as_str()));
    libraries
}

/// Returns the directory with the driver and its libibverbs, which are built from the current source.
pub fn driver() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let built = Command::new(repository("tests/nccl/setup.sh")).arg("build").status().unwrap();
        assert!(built.success(), "the driver cannot be built (see above)");
        cache().join("build")
    });
    BUILT.clone()
}

/// Functions and variables that the driver uses but the library does not export.
const INTERNAL: &[&str] = &[
    "bootstrapNetIfAddr",
    "bootstrapNetIfName",
    "bootstrapNetInit",
    "initEnv",
    "ncclGetLevel",
    "ncclIbInit",
    "ncclLoadParam",
    "ncclParamIbGidIndex",
];
/// The functions that combine several ports into one NIC, since 2.24; since 2.28, also the one that reads the
/// variables.
const FUSION: &[&str] = &[
    "ncclIbDevices",
    "ncclIbGetProperties",
    "ncclIbMakeVDevice",
    "ncclTopoGetXmlFromFile",
    "ncclTopoProcessNet",
];
const FUSION_VARIABLES: &str = "ncclTopoGetFusionEnv";
const FIND_GID: &str = "ncclIbGetGidIndex";
const FIND_GID_OF_FIELDS: &str = "ncclIbGetGidIndex.isra";

impl Library {
    pub fn is_at_least(&self, version: &str) -> bool {
        let numbers = |text: &str| text.split('.').map(|n| n.parse().unwrap()).collect::<Vec<u32>>();
        numbers(&self.version) >= numbers(version)
    }

    /// Returns the offset of a function that the library does not export, in hexadecimal digits.
    pub fn offset(&self, function: &str) -> String {
        let output = Command::new("nm").arg(&self.path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(_, line)| line.get(2..).is_some_and(|name| is_of(name, function, "")));
        found.unwrap_or_else(|| panic!("{} has no {function}", self.path.display())).0.to_owned()
    }

    /// Returns `NAME=OFFSET` for each symbol that the driver needs. This takes a tenth of a second.
    pub fn symbols(&self) -> Vec<String> {
        let output = Command::new("nm").arg(&self.path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let find = |name: &str, clone: &str| {
            let symbol = text.lines().filter_map(|line| line.split_once(' ')).find_map(|(offset, line)| {
                let mangled = line.get(2..)?;
                is_of(mangled, name, clone).then(|| format!("{name}={offset}"))
            });
            symbol.ok_or_else(|| format!("{} has no symbol {name}", self.path.display()))
        };
        let mut symbols: Vec<String> =
            INTERNAL.iter().map(|name| find(name, "").unwrap_or_else(|why| panic!("{why}"))).collect();
        if self.is_at_least("2.21") {
            // In 2.21, the compiler inlined part of this function into its callers, and only its search
            // remains, as a clone named `.part.`. On arm64, GCC replaced a structure with its fields.
            let of_fields = || -> Result<String, String> {
                Ok(find(FIND_GID, ".isra.")?.replacen(FIND_GID, FIND_GID_OF_FIELDS, 1))
            };
            let found = find(FIND_GID, "").or_else(|_| find(FIND_GID, ".part.")).or_else(|_| of_fields());
            symbols.push(found.unwrap_or_else(|why| panic!("{why}")));
        }
        let fusion = FUSION.iter().filter(|_| self.is_at_least("2.24"));
        let variables = self.is_at_least("2.28").then_some(&FUSION_VARIABLES);
        symbols
            .extend(fusion.chain(variables).map(|name| find(name, "").unwrap_or_else(|why| panic!("{why}"))));
        symbols
    }
}

/// Returns whether a mangled symbol is this function or variable, or this clone of it: `_Z10ncclIbInit...`,
/// or `_ZL10ncclIbInit...` if it is static.
fn is_of(mangled: &str, name: &str, clone: &str) -> bool {
    let Some(rest) = mangled.strip_prefix("_ZL").or_else(|| mangled.strip_prefix("_Z")) else {
        return false;
    };
    let Some(rest) = rest.strip_prefix(&name.len().to_string()).and_then(|rest| rest.strip_prefix(name))
    else {
        return false;
    };
    match rest.find('.') {
        Some(dot) => !clone.is_empty() && rest[dot..].starts_with(clone),
        None => clone.is_empty(),
    }
}
