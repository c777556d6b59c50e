//! The programs that are compared.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::image::{Image, Root};
use super::machine::output;
use super::paths::binary;
use super::trial::Start;

/// A way to start a command as the first process of a container.
pub struct Peer {
    pub name: &'static str,
    /// The words before the command; empty for the command alone.
    program: &'static [&'static str],
    /// Entries of the form `NAME=VALUE`.
    environment: &'static [&'static str],
    root: Rc<Root>,
    /// Whether the layer contains what an earlier start left.
    is_restart: bool,
}

/// The programs to compare with, and the Debian package of each.
const OTHERS: &[(&str, &[&str], &str)] = &[
    ("tini", &["/usr/bin/tini", "--"], "tini"),
    ("tini-static", &["/usr/bin/tini-static", "--"], "tini"),
    ("dumb-init", &["/usr/bin/dumb-init", "--"], "dumb-init"),
    ("catatonit", &["/usr/bin/catatonit", "--"], "catatonit"),
];

/// Common replacements for rdma-init: a handwritten script below tini, once in the shell that Debian uses for
/// scripts and once in the shell that most images have.
const SCRIPTS: &[(&str, &[&str], &str)] = &[
    ("tini, script in dash", &["/usr/bin/tini", "--", "/bin/dash", SCRIPT_PATH], "dash"),
    ("tini, script in bash", &["/usr/bin/tini", "--", "/bin/bash", SCRIPT_PATH], "bash"),
];
const SCRIPT_PATH: &str = "/added/entrypoint.sh";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/entrypoint.sh");

pub const BARE: &str = "bare";
pub const OURS: &str = "rdma-init";

/// The measured program's path in the image.
const OURS_WORDS: &[&str] = &["/added/rdma-init", "--"];

/// The variables of a start that leaves no state.
pub const WITHOUT_STATE: &[&str] = &["RDMA_INIT_STATE_DIR=", "RDMA_INIT_WRITE_NCCL_CONF=false"];

/// This benchmark program, which is the command in some measurements.
pub const OWN_PATH: &str = "/added/bench";

/// Returns where the source of a file in the image is.
fn in_image(path: &str) -> PathBuf {
    if path == SCRIPT_PATH { SCRIPT.into() } else { path.into() }
}

/// Makes the image in which all of them start.
///
/// # Errors
/// A sentence that says what is missing.
pub fn image() -> Result<Image, String> {
    for (_, words, package) in OTHERS.iter().chain(SCRIPTS) {
        if let Some(path) = words.iter().find(|word| word.starts_with('/') && !in_image(word).exists()) {
            return Err(format!("{path} is missing: apt-get install {package}, or `make bench`"));
        }
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let files: [(&str, &Path); 3] =
        [("rdma-init", &binary()), ("bench", &own), ("entrypoint.sh", Path::new(SCRIPT))];
    Image::with(&files)
        .map_err(|error| format!("cannot make an image to start them in, which takes root: {error}"))
}

impl Peer {
    /// Returns the command alone, rdma-init, and the other inits.
    pub fn all(root: &Rc<Root>) -> Vec<Peer> {
        let peer = |name, program| Peer::plain(name, program, root);
        let others = OTHERS.iter().map(|(name, words, _)| peer(name, words));
        [peer(BARE, &[]), peer(OURS, OURS_WORDS)].into_iter().chain(others).collect()
    }

    /// The command alone, ours with and without a watcher, and scripts that look for the devices and choose variables.
    pub fn scripts(root: &Rc<Root>) -> Vec<Peer> {
        let peer = |name, program| Peer::plain(name, program, root);
        let scripts = SCRIPTS.iter().map(|(name, words, _)| peer(name, words));
        let ours = [peer(OURS, OURS_WORDS), Peer::unwatched(root)];
        std::iter::once(peer(BARE, &[])).chain(ours).chain(scripts).collect()
    }

    /// tini, ours, ours with a file of metrics, and ours without a watcher.
    pub fn idle(root: &Rc<Root>) -> Vec<Peer> {
        let (tini, words, _) = OTHERS[0];
        let metrics = Peer::plain("rdma-init, watch-metrics", OURS_WORDS, root);
        vec![
            Peer::plain(tini, words, root),
            Peer::plain(OURS, OURS_WORDS, root),
            Peer { environment: &["RDMA_INIT_WATCH_METRICS=/run/rdma-init.prom"], ..metrics },
            Peer::unwatched(root),
        ]
    }

    fn unwatched(root: &Rc<Root>) -> Peer {
        let plain = Peer::plain("rdma-init, watch off", OURS_WORDS, root);
        Peer { environment: &["RDMA_INIT_WATCH=off"], ..plain }
    }

    fn plain(name: &'static str, program: &'static [&'static str], root: &Rc<Root>) -> Peer {
        Peer { name, program, environment: &[], root: Rc::clone(root), is_restart: false }
    }

    /// Returns rdma-init in other setups: with its state on a disk, with the state of an earlier start
    /// there, and without state.
    pub fn more_of_ours(image: &Image, root: &Rc<Root>) -> Result<Vec<Peer>, std::io::Error> {
        let ours = |name, environment, root, is_restart| Peer {
            name,
            program: OURS_WORDS,
            environment,
            root,
            is_restart,
        };
        let [disk, again] = [image.on_disk("first")?, image.on_disk("again")?].map(Rc::new);
        Ok(vec![
            ours("rdma-init, disk", &[], disk, false),
            ours("rdma-init, disk, restart", &[], again, true),
            ours("rdma-init, no state", WITHOUT_STATE, Rc::clone(root), false),
        ])
    }

    /// Returns how to start `command`.
    pub fn start(&self, command: &[&str]) -> Start {
        let c_string = |text: &str| CString::new(text).expect("no NUL");
        let path = "PATH=/usr/local/bin:/usr/bin:/bin";
        Start::new(
            self.root.path().clone(),
            self.program.iter().chain(command).copied().map(c_string).collect(),
            std::iter::once(path).chain(self.environment.iter().copied()).map(c_string).collect(),
        )
    }

    /// Resets the layer to its contents before a start of this kind.
    pub fn before_start(&self) {
        if !self.is_restart {
            self.root.forget_starts();
        }
    }
}

/// Returns names, versions, and sizes for the record.
pub fn versions() -> Vec<String> {
    let version = output(Command::new(binary()).arg("--version"));
    let version = version.split_whitespace().next_back().unwrap_or_default().to_owned();
    let ours = [(OURS, binary(), version)].into_iter();
    let shells = [("dash", "/bin/dash", "dash"), ("bash", "/bin/bash", "bash")];
    let others = OTHERS.iter().map(|(name, words, package)| (*name, words[0], *package)).chain(shells);
    let others = others.map(|(name, path, package)| {
        let version = output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]));
        (name, PathBuf::from(path), version)
    });
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |status| status.len());
    ours.chain(others)
        .map(|(name, path, version)| format!("{name} {version} ({} bytes)", size(&path)))
        .collect()
}
