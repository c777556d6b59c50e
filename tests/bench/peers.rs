//! The init programs that the benchmark compares.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A way to start a command as the first process of a container.
pub struct Peer {
    pub name: &'static str,
    /// The path of the init; `None` where the command runs without one.
    program: Option<PathBuf>,
    package: Option<&'static str>,
    /// The temporary folder that holds a copied program; it is removed at the end of the run.
    _folder: Option<TempDir>,
}

/// The name, path and Debian package of each other init.
const OTHERS: &[(&str, &str, &str)] = &[
    ("tini", "/usr/bin/tini", "tini"),
    ("tini-static", "/usr/bin/tini-static", "tini"),
    ("dumb-init", "/usr/bin/dumb-init", "dumb-init"),
    ("catatonit", "/usr/bin/catatonit", "catatonit"),
];

pub const BARE: &str = "bare";
pub const OURS: &str = "rdma-init";

impl Peer {
    /// Returns the command without an init, rdma-init, and the other inits.
    pub fn all() -> Result<Vec<Peer>, String> {
        let ours = std::env::var_os("RDMA_INIT_TEST_BINARY")
            .map_or_else(|| env!("CARGO_BIN_EXE_rdma-init").into(), PathBuf::from);
        let (ours, folder) = install(&ours).map_err(|error| format!("{}: {error}", ours.display()))?;
        let mut peers = vec![
            Peer { name: BARE, program: None, package: None, _folder: None },
            Peer { name: OURS, program: Some(ours), package: None, _folder: Some(folder) },
        ];
        for &(name, path, package) in OTHERS {
            if !Path::new(path).exists() {
                return Err(format!("{path} is missing: apt-get install {package}, or `make bench`"));
            }
            peers.push(Peer { name, program: Some(path.into()), package: Some(package), _folder: None });
        }
        Ok(peers)
    }

    /// Returns the arguments that start `command` under this init.
    pub fn start(&self, command: &[&str]) -> Vec<CString> {
        let program = self.program.iter().flat_map(|path| [path.to_str().expect("a plain path"), "--"]);
        program.chain(command.iter().copied()).map(|text| CString::new(text).expect("no NUL")).collect()
    }

    /// The name and version of this init, for the table's heading.
    pub fn version(&self) -> Option<String> {
        let version = match (self.package, &self.program) {
            (Some(package), _) => {
                output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
            }
            (None, Some(program)) => output(Command::new(program).arg("--version"))
                .split_whitespace()
                .next_back()
                .unwrap_or_default()
                .to_owned(),
            (None, None) => return None,
        };
        let size = std::fs::metadata(self.program.as_ref()?).ok()?.len();
        Some(format!("{} {version} ({size} bytes)", self.name))
    }
}

/// Copies rdma-init to a fresh file, as a package manager installs the other inits. A file
/// fresh from the linker lies in the page cache in small pieces, and these slow down every
/// start.
fn install(program: &Path) -> std::io::Result<(PathBuf, TempDir)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(OURS);
    std::fs::copy(program, &path)?;
    Ok((path, folder))
}

pub fn output(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
