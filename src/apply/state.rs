//! Leaving the state behind.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::state::find::is_of_another_container;
use crate::state::folder::Folder;
use crate::state::{ENV_SH, FACTS, NCCL_CONF, PLAN, StateDir};

/// The files' contents.
#[derive(Debug, Default)]
pub struct Files {
    pub env_sh: Vec<u8>,
    pub nccl_conf: Vec<u8>,
    pub plan: Vec<u8>,
    pub facts: Vec<u8>,
    /// Whether the facts have values of a file that not everybody may read.
    pub is_private: bool,
}

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub folder: PathBuf,
    /// Nobody outside this container can write there.
    pub is_of_container: bool,
}

/// A folder that would not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub folder: PathBuf,
    pub why: String,
    /// Files that are there under the names of ours.
    pub strange: Vec<&'static str>,
    /// Whether they seem to be of rdma-init in another container, or of an earlier start.
    pub is_other_state: bool,
}

/// Writes them to the first folder that this user may have to itself, and gives that, with
/// those that would not do. `standing` is a folder whose state is to stay, before those
/// that are worse. `None` where no state is wanted, or none of the folders would do.
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

/// Gives whether nobody outside this container can write there.
fn write_to(path: &Path, files: &Files) -> Result<bool, String> {
    let folder = Folder::make(path).map_err(|refused| refused.to_string())?;
    // The plan is what a reader looks for: when it is there, all is.
    let mode_of_facts = if files.is_private { 0o600 } else { 0o644 };
    for (name, bytes, mode) in [
        (ENV_SH, &files.env_sh, 0o644),
        (NCCL_CONF, &files.nccl_conf, 0o644),
        (FACTS, &files.facts, mode_of_facts),
        (PLAN, &files.plan, 0o644),
    ] {
        // What makes the facts private is in them: the same bytes have the right mode.
        // Most starts of a container leave what the one before has left, and to take the
        // place of a file can mean a wait for the disk.
        if folder.read(name).as_ref() != Ok(bytes) {
            folder.write(name, bytes, mode).map_err(describe)?;
        }
    }
    Ok(folder.is_of_root())
}

/// What others than rdma-init read, and would take for ours.
fn strange(folder: &Path) -> Vec<&'static str> {
    [ENV_SH, NCCL_CONF].into_iter().filter(|name| folder.join(name).symlink_metadata().is_ok()).collect()
}
