//! The NCCL libraries that the tests run: target/nccl/VERSION/libnccl.so.2, or another architecture's, which
//! QEMU runs: target/nccl-ARCHITECTURE/VERSION/libnccl.so.2.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::repository;

/// The list of releases, one per line; tests/nccl/setup.sh fetches them. The model distinguishes all of them. By
/// src/libraries/nccl, these are the first ones of the list that
///
/// - 2.19.3: use 32 HCAs;
/// - 2.20.5: combine ports into NICs;
/// - 2.21.5: search for a GID;
/// - 2.23.4: combine all ports or none (since 2.22), check a range, and read `NCCL_CONF_FILE`;
/// - 2.25.1: combine by distance, but no virtual functions, and have RAS (all since 2.24);
/// - 2.26.2: continue after a failed combination, after an empty GID entry, and after a comment; know `C2C`;
/// - 2.27.7: combine virtual functions again, use Data Direct functions, and a list of plugins; know `P2C`;
/// - 2.28.9: use only interfaces that are running, and load an env plugin;
/// - 2.30.7: sort devices (since 2.29.7), have the new parsers, combine eight ports, by rail, too, and read
///   `NCCL_IBVERBS_LIB`;
/// - 2.32.3: read the GIDs first (since 2.31), and refuse words as integers.
///
/// No release stands for 2.29, which inverts a check of subnets: 2.30 corrected it.
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

fn usual() -> impl DoubleEndedIterator<Item = &'static str> + Clone {
    (if foreign().is_some() { VERSIONS_OF_ARM64 } else { VERSIONS }).split_whitespace()
}

/// Returns what `RDMA_INIT_TEST_NCCL` has: names of releases, or `all`.
fn chosen() -> Option<String> {
    std::env::var("RDMA_INIT_TEST_NCCL").ok().filter(|versions| !versions.trim().is_empty())
}

fn open<'a>(versions: impl Iterator<Item = &'a str>) -> Vec<Library> {
    versions
        .map(|version| {
            let path = cache().join(version).join("libnccl.so.2");
            assert!(path.exists(), "there is no {}: `make test-setup` fetches it", path.display());
            Library { version: version.to_owned(), path }
        })
        .collect()
}

/// Returns each release, or those that `RDMA_INIT_TEST_NCCL` names, oldest first. This is for the comparison of the
/// whole model with the library, which finds what is wrong about any release.
pub fn libraries() -> Vec<Library> {
    match chosen().filter(|chosen| chosen.trim() != "all") {
        Some(chosen) => open(chosen.split_whitespace()),
        None => open(usual()),
    }
}

/// Returns the libraries for a test whose answer depends on the release: the oldest, the newest, and these, in which
/// the answer changed. `RDMA_INIT_TEST_NCCL` has other names, or `all` for each release.
pub fn some(changed: &[&str]) -> Vec<Library> {
    for version in changed {
        let is_known = VERSIONS.split_whitespace().any(|known| known == *version);
        assert!(is_known, "tests/nccl/versions has no {version}");
    }
    if chosen().is_some() {
        return libraries();
    }
    let ends = [usual().next(), usual().next_back()];
    open(usual().filter(|version| ends.contains(&Some(version)) || changed.contains(version)))
}

/// Returns the newest library, for a test whose answer does not depend on the release.
pub fn newest() -> Library {
    libraries().pop().unwrap()
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
/// The functions that connect; the driver knows their parameters since 2.26.
const CONNECT: &[&str] = &["ncclIbAccept", "ncclIbConnect", "ncclIbListen"];
const FIND_GID: &str = "ncclIbGetGidIndex";
const FIND_GID_OF_FIELDS: &str = "ncclIbGetGidIndex.isra";

impl Library {
    pub fn is_at_least(&self, version: &str) -> bool {
        let numbers = |text: &str| text.split('.').map(|n| n.parse().unwrap()).collect::<Vec<u32>>();
        numbers(&self.version) >= numbers(version)
    }

    /// Returns the offset of a function that the library does not export, in hexadecimal digits.
    pub fn offset(&self, function: &str) -> String {
        let text = self.symbol_table();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(_, line)| line.get(2..).is_some_and(|name| is_of(name, function, "")));
        found.unwrap_or_else(|| panic!("{} has no {function}", self.path.display())).0.to_owned()
    }

    fn symbol_table(&self) -> String {
        let output = Command::new("nm").arg(&self.path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns `NAME=OFFSET` for each symbol that the driver needs. To find them takes a tenth of a second, and each
    /// start needs them.
    pub fn symbols(&self) -> Arc<[String]> {
        static FOUND: Mutex<BTreeMap<PathBuf, Arc<[String]>>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(self.path.clone()).or_insert_with(|| self.find_symbols().into()).clone()
    }

    fn find_symbols(&self) -> Vec<String> {
        let text = self.symbol_table();
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
        let connect = CONNECT.iter().filter(|_| self.is_at_least("2.26"));
        let names = fusion.chain(variables).chain(connect);
        symbols.extend(names.map(|name| find(name, "").unwrap_or_else(|why| panic!("{why}"))));
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
