//! Reads the golden hosts from the directories of tests/cases. See tests/cases/README.md.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use json_patch::Patch;
use rdma_init::config::{self, Config};
use rdma_init::facts::Facts;
use rdma_init::facts::environment::Environment;
use rdma_init::pipeline::read;
use rdma_init::profiles::Profiles;
use serde::Deserialize;
use serde_json::Value;

use super::repository;

/// A golden host: a directory in tests/cases.
pub struct Host {
    pub name: String,
    pub folder: PathBuf,
    facts: OnceLock<PathBuf>,
}

/// Returns all golden hosts, sorted by name.
pub fn hosts() -> Vec<Host> {
    let mut names: Vec<String> = fs::read_dir(repository("tests/cases"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.iter().map(|name| host(name)).collect()
}

pub fn host(name: &str) -> Host {
    Host { name: name.to_owned(), folder: repository("tests/cases").join(name), facts: OnceLock::new() }
}

/// Returns all golden hosts as the program reads them, for one test at a time. Reading them takes longer than what most
/// tests do with them.
pub fn cases() -> MutexGuard<'static, Vec<Case>> {
    static CASES: LazyLock<Mutex<Vec<Case>>> =
        LazyLock::new(|| Mutex::new(hosts().iter().map(Host::read).collect()));
    CASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the path of a golden host's facts, as an argument for `--facts`.
pub fn facts(name: &str) -> String {
    host(name).facts().to_str().unwrap().to_owned()
}

/// The contents of `differs.json`: a host that is based on another one with some changes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// The name of a host with its own `facts.json`.
    from: String,
    /// A patch as in RFC 6902; without one, the facts are the same.
    #[serde(default)]
    patch: Patch,
}

impl Host {
    /// Returns the file with the facts: the directory's own `facts.json`, or one below target/ that is
    /// generated from `differs.json`.
    pub fn facts(&self) -> &Path {
        let (own, differs) = (self.folder.join("facts.json"), self.folder.join("differs.json"));
        self.facts.get_or_init(|| match (own.exists(), differs.exists()) {
            (true, false) => own,
            (false, true) => self.write(&changed(&differs)),
            _ => panic!("{} needs one of facts.json and differs.json", self.folder.display()),
        })
    }

    /// Writes the file atomically, because other tests may read it at the same time.
    fn write(&self, facts: &Value) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cases").join(&self.name);
        fs::create_dir_all(&folder).unwrap();
        let mut file = tempfile::NamedTempFile::new_in(&folder).unwrap();
        file.write_all(serde_json::to_string_pretty(facts).unwrap().as_bytes()).unwrap();
        let path = folder.join("facts.json");
        file.persist(&path).unwrap();
        path
    }

    /// Returns the case's configuration. If there is none, returns /dev/null, so that this machine's
    /// configuration does not apply.
    pub fn config(&self) -> PathBuf {
        let config = self.folder.join("config.toml");
        if config.exists() { config } else { "/dev/null".into() }
    }

    /// Returns the variables that the user sets, as lines `KEY=VALUE`, and one that names the configuration.
    pub fn environment(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("environment")).unwrap_or_default();
        let config = format!("RDMA_INIT_CONFIG={}", self.config().display());
        text.lines().map(str::to_owned).chain([config]).collect()
    }

    /// Reads the host as the program does.
    pub fn read(&self) -> Case {
        let entries: Vec<CString> =
            self.environment().into_iter().map(|line| CString::new(line).unwrap()).collect();
        let environment = Environment::new(&entries);
        let config = config::load(&environment, Vec::new()).unwrap();
        let profiles = read::profiles(&config).unwrap();
        let facts = read::captured_facts(self.facts()).unwrap();
        let (facts, _) = read::with_environment(facts, &profiles, &environment, &config);
        Case { name: self.name.clone(), facts, profiles, config }
    }
}

/// Returns the facts that a `differs.json` describes.
fn changed(differs: &Path) -> Value {
    let fail = |why: String| -> ! { panic!("{}: {why}", differs.display()) };
    let difference: Difference =
        serde_json::from_slice(&fs::read(differs).unwrap()).unwrap_or_else(|why| fail(why.to_string()));
    let base = host(&difference.from).folder.join("facts.json");
    let text = fs::read(&base).unwrap_or_else(|why| fail(format!("{}: {why}", base.display())));
    let mut facts = serde_json::from_slice(&text).unwrap();
    json_patch::patch(&mut facts, &difference.patch).unwrap_or_else(|why| fail(why.to_string()));
    facts
}

/// A golden host with its environment and configuration.
pub struct Case {
    pub name: String,
    pub facts: Facts,
    pub profiles: Profiles,
    pub config: Config,
}
