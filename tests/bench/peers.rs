//! The programs that are compared.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way to start a command as the first process of a container.
pub struct Peer {
    pub name: &'static str,
    /// `None` for the command alone.
    program: Option<PathBuf>,
    package: Option<&'static str>,
}

/// Those to compare with, and the Debian package of each.
const OTHERS: &[(&str, &str, &str)] = &[
    ("tini", "/usr/bin/tini", "tini"),
    ("tini-static", "/usr/bin/tini-static", "tini"),
    ("dumb-init", "/usr/bin/dumb-init", "dumb-init"),
    ("catatonit", "/usr/bin/catatonit", "catatonit"),
];

pub const BARE: &str = "bare";
pub const OURS: &str = "rdma-init";

impl Peer {
    /// The command alone, ours, and the others.
    pub fn all() -> Result<Vec<Peer>, String> {
        let ours = std::env::var_os("RDMA_INIT_TEST_BINARY")
            .map_or_else(|| env!("CARGO_BIN_EXE_rdma-init").into(), PathBuf::from);
        let mut peers = vec![
            Peer { name: BARE, program: None, package: None },
            Peer { name: OURS, program: Some(ours), package: None },
        ];
        for &(name, path, package) in OTHERS {
            if !Path::new(path).exists() {
                return Err(format!("{path} is missing: apt-get install {package}, or `make bench`"));
            }
            peers.push(Peer { name, program: Some(path.into()), package: Some(package) });
        }
        Ok(peers)
    }

    /// The arguments to start `command` with.
    pub fn start(&self, command: &[&str]) -> Vec<CString> {
        let program = self.program.iter().flat_map(|path| [path.to_str().expect("a plain path"), "--"]);
        program.chain(command.iter().copied()).map(|text| CString::new(text).expect("no NUL")).collect()
    }

    /// Name and version, for the record.
    pub fn version(&self) -> Option<String> {
        let version = match (self.package, &self.program) {
            (Some(package), _) => output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package])),
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

pub fn output(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
