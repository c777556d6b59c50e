//! The platform that started the container, recognized by the names of variables.

use serde::{Deserialize, Serialize};

use super::environment::is_variable_name;
use super::launchers::{self, Nodes};
use super::reader::Reader;
use super::start::Start;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// Names, without values, of the variables that Kubernetes, schedulers, launchers, and platforms set. The
    /// values may be secrets.
    pub markers: Vec<String>,
    /// The address of the job's master (`MASTER_ADDR`).
    pub master_addr: Option<String>,
    /// The address of the first node on the cluster's network, as Runpod sets it (`PRIMARY_ADDR`, beside `NODE_ADDR`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_addr: Option<String>,
    /// How many nodes the job has, and the index of this one, counted from 0, if a launcher reports both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// The version of NCCL that the image names (`NCCL_VERSION`, as in NVIDIA's images).
    pub nccl_version: Option<String>,
    /// The version of CUDA that the image names (`CUDA_VERSION`, as in NVIDIA's images).
    pub cuda_version: Option<String>,
    /// The program that made the container, if a file in the container shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The existing files and directories, among those that profiles check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Those of `files` that are directories. A document of an earlier release has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<String>,
    /// Those of these files that the command line names, for example because a shell is to source them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files_in_command: Vec<String>,
}

/// A program that makes containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    Docker,
    Podman,
    /// An engine that only a later version of rdma-init knows.
    #[serde(other)]
    Other,
}

/// The file that each engine creates in a container's root: `setupInitLayer` in
/// `daemon/initlayer/setup_unix.go` of Moby, `makeBindMounts` in `libpod/container_internal_common.go` of
/// Podman.
const ENGINES: [(&str, Engine); 2] =
    [("/.dockerenv", Engine::Docker), ("/run/.containerenv", Engine::Podman)];

/// The platform that runs the container, as far as variable names and files in its root show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunBy {
    Kubernetes,
    Slurm,
    Engine(Engine),
}

impl Platform {
    /// Returns whether this path, which a profile checks, is that of a file, and not of a directory.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        let is_it = |known: &String| known == path;
        self.files.iter().any(is_it) && !self.directories.iter().any(is_it)
    }

    /// Returns the platform that runs the container; `None` if nothing shows it.
    #[must_use]
    pub fn run_by(&self) -> Option<RunBy> {
        let has = |is: fn(&str) -> bool| self.markers.iter().any(|marker| is(marker));
        match self.engine {
            _ if has(|marker| marker == "KUBERNETES_SERVICE_HOST") => Some(RunBy::Kubernetes),
            _ if has(|marker| marker.starts_with("SLURM_")) => Some(RunBy::Slurm),
            engine => engine.map(RunBy::Engine),
        }
    }
}

const PREFIXES: &[&str] = &[
    "ALIBABA_",
    "AWS_BATCH_",
    "DLC_",
    "ECI_",
    "OMPI_COMM_WORLD_",
    "PAI_",
    "PBS_",
    "PMIX_",
    "PMI_",
    "SLURM_",
    "TORCHELASTIC_",
    "VC_",
    "VK_",
];

const NAMES: &[&str] = &[
    "GROUP_RANK",
    "JOB_COMPLETION_INDEX",
    "KUBERNETES_SERVICE_HOST",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "NPROC_PER_NODE",
    "NVIDIA_VISIBLE_DEVICES",
    "RANK",
    "WORLD_SIZE",
];

/// The most words of a command line to examine.
const MOST_WORDS: usize = 256;

/// The most files to look for; a directory of profiles may name any number.
const MOST_FILES: usize = 256;

/// Reads the platform. `also` returns whether a variable matters in addition to those that always do; `files`
/// are the files that matter.
pub(crate) fn read(reader: &Reader, start: Start, also: impl Fn(&str) -> bool, files: &[&str]) -> Platform {
    let environment = start.environment;
    let value = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    // A template may set a variable and leave it empty, which says nothing.
    let mut markers: Vec<String> = environment
        .iter()
        .filter(|(name, value)| !value.is_empty() && (is_of_platform(name) || also(name)))
        .map(|(name, _)| name)
        .filter(|name| is_variable_name(name))
        .map(str::to_owned)
        .collect();
    markers.sort();
    markers.dedup();
    let there = there(reader, files.get(..MOST_FILES).unwrap_or(files));
    Platform {
        markers,
        master_addr: value("MASTER_ADDR"),
        primary_addr: value("PRIMARY_ADDR").filter(|_| environment.get("NODE_ADDR").is_some()),
        nodes: launchers::read(reader, start),
        nccl_version: value("NCCL_VERSION"),
        cuda_version: value("CUDA_VERSION"),
        directories: there.iter().filter(|path| reader.is_directory(path)).cloned().collect(),
        files: there,
        files_in_command: files
            .iter()
            .take(MOST_FILES)
            .filter(|file| {
                let mut words = start.words.iter().take(MOST_WORDS).map(|word| word.as_bytes());
                words.any(|word| {
                    word.len() >= file.len() && memchr::memmem::find(word, file.as_bytes()).is_some()
                })
            })
            .map(|file| (*file).to_owned())
            .collect(),
        engine: ENGINES.iter().find(|(file, _)| reader.may_be_there(file)).map(|(_, engine)| *engine),
    }
}

/// Returns whether every document has this variable among its markers, if it is set.
pub(crate) fn is_of_platform(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the files that exist, in their order. Platforms keep several files in one directory, which most
/// hosts lack. Nothing below a missing directory or file is looked up; the list is sorted, so it follows at once. The
/// paths are plain text here, because parsing them takes longer than the system calls that this saves.
fn there(reader: &Reader, files: &[&str]) -> Vec<String> {
    let mut known: Option<(&str, bool)> = None;
    let mut missing: Option<&str> = None;
    let mut there = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let is_in = |folder| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        if missing.is_some_and(is_in) {
            continue;
        }
        if known.is_none_or(|(folder, _)| !is_in(folder)) {
            let folder = files.get(number + 1).and_then(|next| common_folder(file, next));
            known = folder.map(|folder| (folder, reader.is_there(folder)));
        }
        if known.is_none_or(|(_, is_there)| is_there) && reader.is_there(file) {
            there.push((*file).to_owned());
        } else {
            missing = Some(file);
        }
    }
    there
}

/// Returns the platform's directory that contains both files, such as `/opt/microsoft`. Directories such as
/// `/opt` do not count, because they exist everywhere.
fn common_folder<'a>(file: &'a str, other: &str) -> Option<&'a str> {
    let common = file.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let folder = file.get(..common)?.rsplit_once('/')?.0;
    // A directory below the root, and the platform's directory in it.
    (folder.matches('/').count() >= 2).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::environment::Environment;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn an_empty_variable_is_no_evidence() {
        let root = FakeRoot::new();
        let names = ["AIHC_JOB_NAME", "DLC_JOB_ID", "RANK"];
        let markers = |value: &str| {
            let environment = Environment::from(names.map(|name| (name, value)));
            read(&root.reader(), Start::from(&environment), |name| name == "AIHC_JOB_NAME", &[]).markers
        };
        assert_eq!(markers(""), [""; 0]);
        assert_eq!(markers("0"), names);
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_known_to_be_one() {
        let root = FakeRoot::new();
        root.file("opt/cloud/topo.xml/kept", "");
        root.file("opt/cloud/other.xml", "");
        let files = ["/opt/cloud/none.xml", "/opt/cloud/other.xml", "/opt/cloud/topo.xml"];
        let environment = Environment::default();
        let platform = read(&root.reader(), Start::from(&environment), |_| false, &files);
        assert_eq!(platform.files, ["/opt/cloud/other.xml", "/opt/cloud/topo.xml"]);
        assert_eq!(platform.directories, ["/opt/cloud/topo.xml"]);
        assert_eq!(files.map(|file| platform.has_file(file)), [false, true, false]);
    }

    #[test]
    fn files_of_one_folder_are_found_one_by_one_and_missing_with_it() {
        let root = FakeRoot::new();
        for file in ["opt/cloud/b", "opt/other/c", "usr/local/tool/deep/file", "one"] {
            root.file(file, "");
        }
        let files = [
            "/none",
            "/one",
            "/opt/cloud/a",
            "/opt/cloud/b",
            "/opt/cloud/deep/a",
            "/opt/gone/a",
            "/opt/gone/b",
            "/opt/other",
            "/opt/other/c",
            "/opt/other/d",
            "/usr/local/tool",
            "/usr/local/tool/deep/file",
            "/usr/local/zeta",
        ];
        let found = there(&root.reader(), &files);
        let wanted = [
            "/one",
            "/opt/cloud/b",
            "/opt/other",
            "/opt/other/c",
            "/usr/local/tool",
            "/usr/local/tool/deep/file",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_folder_of_a_platform_is_below_another_one() {
        assert_eq!(common_folder("/opt/cloud/a", "/opt/cloud/b/c"), Some("/opt/cloud"));
        assert_eq!(common_folder("/opt/cloud", "/opt/cloud/b"), None, "it is asked for by itself");
        assert_eq!(common_folder("/opt/cloud", "/opt/other"), None);
        assert_eq!(common_folder("/run/a", "/usr/b"), None);
    }
}
