//! Writes the state of this start.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::state::find::is_of_another_container;
use crate::state::folder::Folder;
use crate::state::{ENV_SH, FACTS, NCCL_CONF, PLAN, StateDir};

/// The contents of the files.
#[derive(Debug, Default)]
pub struct Files {
    pub env_sh: Vec<u8>,
    pub nccl_conf: Vec<u8>,
    pub plan: Vec<u8>,
    pub facts: Vec<u8>,
    /// Whether the facts have values of a file that not everybody may read.
    pub is_private: bool,
}

/// Where the files were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub folder: PathBuf,
    /// Whether nobody outside this container can write to the folder.
    pub is_of_container: bool,
}

/// A folder that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub folder: PathBuf,
    pub why: String,
    /// Files of somebody else that have the names of our files.
    pub strange: Vec<&'static str>,
    /// Whether these files seem to come from rdma-init in another container, or from an earlier
    /// start.
    pub is_other_state: bool,
}

/// Writes the files to the first folder that belongs to this user alone. Gives that folder, and
/// the folders that could not be used. `standing` is a folder whose state has to stay: it and
/// the folders after it are not tried. `None` if no state is wanted, or no folder can be used.
#[must_use]
pub fn write(
    place: &StateDir,
    standing: Option<&Path>,
    files: impl FnOnce() -> Files,
) -> (Option<Left>, Vec<Refused>) {
    let mut refused = Vec::new();
    if *place == StateDir::Nowhere {
        return (None, refused);
    }
    let files = files();
    for folder in place.folders(Uid::effective()).take_while(|folder| Some(folder.as_path()) != standing) {
        let is_other_state = *place == StateDir::Default && is_of_another_container(&folder);
        let written = match is_other_state {
            true => Err("another container keeps its state there".to_owned()),
            false => write_to(&folder, &files),
        };
        match written {
            Ok(is_of_container) => return (Some(Left { folder, is_of_container }), refused),
            Err(why) => refused.push(Refused { strange: strange(&folder), folder, why, is_other_state }),
        }
    }
    (None, refused)
}

/// Writes the files. Gives whether nobody outside this container can write to the folder.
fn write_to(path: &Path, files: &Files) -> Result<bool, String> {
    let folder = Folder::make(path).map_err(|refused| refused.to_string())?;
    // The plan is written last, because readers look for it: when it is there, everything is.
    let mode_of_facts = if files.is_private { 0o600 } else { 0o644 };
    for (name, bytes, mode) in [
        (ENV_SH, &files.env_sh, 0o644),
        (NCCL_CONF, &files.nccl_conf, 0o644),
        (FACTS, &files.facts, mode_of_facts),
        (PLAN, &files.plan, 0o644),
    ] {
        // A file with the same bytes has the right mode already, because what makes the facts
        // private is in them. Most starts of a container leave what the one before has left,
        // and to replace a file may mean waiting for the disk.
        if folder.is_new() || folder.read(name).as_ref() != Ok(bytes) {
            folder.write(name, bytes, mode).map_err(describe)?;
        }
    }
    Ok(folder.is_of_root())
}

/// Those files that programs other than rdma-init read, and would take for ours.
fn strange(folder: &Path) -> Vec<&'static str> {
    [ENV_SH, NCCL_CONF].into_iter().filter(|name| folder.join(name).symlink_metadata().is_ok()).collect()
}
