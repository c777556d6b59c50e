//! Leaving the state behind.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::state::find::is_of_another_container;
use crate::state::folder::Folder;
use crate::state::{ENV_SH, FACTS, NCCL_CONF, PLAN, Place};

/// The files' contents.
#[derive(Debug, Default)]
pub struct Files {
    pub env_sh: Vec<u8>,
    pub nccl_conf: Vec<u8>,
    pub plan: Vec<u8>,
    pub facts: Vec<u8>,
}

/// Writes them to the first folder that this user may have to itself, and gives that;
/// `None` where no state is wanted.
///
/// # Errors
/// Why none of the folders would do, in one sentence.
pub fn write(place: &Place, files: impl FnOnce() -> Files) -> Result<Option<PathBuf>, String> {
    let folders = place.folders(Uid::effective());
    if folders.is_empty() {
        return Ok(None);
    }
    let files = files();
    let mut reasons = Vec::new();
    for path in folders {
        if *place == Place::Default && is_of_another_container(&path) {
            reasons.push(format!("{}: another container keeps its state there", path.display()));
            continue;
        }
        match write_to(&path, &files) {
            Ok(()) => return Ok(Some(path)),
            Err(why) => reasons.push(format!("{}: {why}", path.display())),
        }
    }
    Err(reasons.join("; "))
}

fn write_to(path: &Path, files: &Files) -> Result<(), String> {
    let folder = Folder::make(path).map_err(|refused| refused.to_string())?;
    // The plan is what a reader looks for: when it is there, all is.
    for (name, bytes) in
        [(ENV_SH, &files.env_sh), (NCCL_CONF, &files.nccl_conf), (FACTS, &files.facts), (PLAN, &files.plan)]
    {
        // Most starts of a container leave what the one before has left, and to take the
        // place of a file can mean a wait for the disk.
        if folder.read(name).as_ref() != Ok(bytes) {
            folder.write(name, bytes, 0o644).map_err(describe)?;
        }
    }
    Ok(())
}
