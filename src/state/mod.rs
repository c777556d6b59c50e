//! What a start leaves for whoever enters the container later: the variables that it
//! filled in, and what they were decided on. Of the rest of the environment, which holds
//! secrets, nothing.

pub mod block;
pub mod find;
pub mod folder;
pub mod identity;
pub mod run;

use std::path::{Path, PathBuf};

use identity::namespace;
use nix::unistd::Uid;

/// Where it is, unless `state-dir` says otherwise.
pub const FOLDER: &str = "/run/rdma-init";

/// The files in it.
pub const ENV_SH: &str = "env.sh";
pub const NCCL_CONF: &str = "nccl.conf";
pub const PLAN: &str = "plan.json";
pub const FACTS: &str = "facts.json";
/// All of them.
pub const FILES: [&str; 4] = [ENV_SH, NCCL_CONF, PLAN, FACTS];

/// Where else the variables are put, for programs that know nothing of a state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Propagate {
    /// `/etc/profile.d`, for login shells.
    pub profile: bool,
    /// sshd's configuration, for whatever it starts.
    pub ssh: bool,
    /// `/etc/environment`, for PAM.
    pub environment: bool,
}

/// Where to leave it, and to look for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    #[default]
    Default,
    /// There, and nowhere else.
    At(PathBuf),
    Nowhere,
}

impl Place {
    /// The folders that a user's state may be in, the best first: one who may not write
    /// to [`FOLDER`] has the others.
    pub fn folders(&self, user: Uid) -> Vec<PathBuf> {
        match self {
            Place::Nowhere => Vec::new(),
            Place::At(folder) => vec![folder.clone()],
            Place::Default => {
                // The containers of a pod share some of these; the last are one's own.
                let mounts: String = namespace("mnt").chars().filter(char::is_ascii_digit).collect();
                let names = [format!("rdma-init-{user}"), format!("rdma-init-{user}-{mounts}")];
                let own = names
                    .iter()
                    .flat_map(|name| ["/dev/shm", "/tmp"].map(|parent| Path::new(parent).join(name)));
                [PathBuf::from(FOLDER)].into_iter().chain(own).collect()
            }
        }
    }
}
