//! What a start saves for processes that enter the container later: the variables that it filled in, and the
//! basis of those decisions. It saves nothing else from the environment, which contains secrets.
//!
//! Other containers may share a directory, a PID namespace or an IPC namespace with this one, and identifying
//! marks in a state can be copied. So a state is fully trusted only if no process outside this container can
//! have written it: on the container's own root mount (`folder`, `mount`), or in PID 1 (`pid1`). From any
//! other state, only the `harmless` variables are used.

pub(crate) mod find;
pub(crate) mod folder;
pub(crate) mod harmless;
pub mod mount;
pub(crate) mod phase;
pub(crate) mod pid1;
pub(crate) mod preparation;
pub(crate) mod run;
mod temporary;

use std::path::{Path, PathBuf};

use crate::env_plugin::{DECISION_FILE, LIBRARY_FILE};
use crate::facts::identity::namespace;
pub use crate::facts::state::FOLDER;
use nix::unistd::Uid;

/// The files of a state.
pub const ENV_SH: &str = "env.sh";
pub const NCCL_CONF: &str = "nccl.conf";
pub const PLAN: &str = "plan.json";
pub const FACTS: &str = "facts.json";
/// What a start that is under way is doing.
pub const PHASE: &str = "phase.json";
/// The names of all files of a state.
pub const FILES: [&str; 7] = [ENV_SH, NCCL_CONF, PLAN, FACTS, LIBRARY_FILE, DECISION_FILE, PHASE];

/// The places besides the state directory to put the variables, for programs that do not read a state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Propagate {
    /// `/etc/profile.d`, for login shells.
    pub profile: bool,
    /// sshd's configuration, for everything that sshd starts.
    pub ssh: bool,
    /// `/etc/environment`, for PAM.
    pub environment: bool,
}

/// Where the state is saved and searched for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StateDir {
    #[default]
    Default,
    /// In this directory only.
    At(PathBuf),
    Nowhere,
}

impl StateDir {
    /// Returns the directories that a user's state may be in, the best first. All except the first are for
    /// users who may not write to [`FOLDER`].
    pub fn folders(&self, user: Uid) -> impl Iterator<Item = PathBuf> {
        let (first, has_others) = match self {
            StateDir::Nowhere => (None, false),
            StateDir::At(folder) => (Some(folder.clone()), false),
            StateDir::Default => (Some(PathBuf::from(FOLDER)), true),
        };
        // Computed late, because most starts need none of them.
        let others = std::iter::once_with(move || if has_others { others(user) } else { Vec::new() });
        first.into_iter().chain(others.flatten())
    }
}

/// Returns the directories for users who may not write to [`FOLDER`]. A Pod's containers share some of them;
/// the last of each kind belongs to one container alone.
fn others(user: Uid) -> Vec<PathBuf> {
    let mounts: String = namespace("mnt").chars().filter(char::is_ascii_digit).collect();
    let names = [format!("rdma-init-{user}"), format!("rdma-init-{user}-{mounts}")];
    let is_own_tmp = mount::is_of_root(Path::new("/tmp"));
    let parents = if is_own_tmp { ["/tmp", "/dev/shm"] } else { ["/dev/shm", "/tmp"] };
    parents.iter().flat_map(|parent| names.iter().map(|name| Path::new(parent).join(name))).collect()
}
