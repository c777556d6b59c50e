//! Reads the directory of a user's profiles.

use std::fs;
use std::path::Path;

use nix::errno::Errno;

use super::load::ProfileError;
use crate::facts::reader::{Links, ReadFailure, read_regular};

/// In bytes: more than any profile needs.
pub(super) const LONGEST: u64 = 256 * 1024;

/// The most files in a directory, and their most bytes in total: every command reads all of them when it
/// starts.
pub(super) const FILES: usize = 256;
const LONGEST_TOGETHER: usize = 1024 * 1024;

/// Returns the path and the text of each profile, sorted by path.
pub(super) fn read_folder(folder: &Path) -> Result<Vec<(String, String)>, ProfileError> {
    let failed = |path: &Path, error: std::io::Error| {
        ProfileError(format!("cannot read {} (profile-dir): {error}", path.display()))
    };
    let mut files = Vec::new();
    let mut together = 0;
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = read_regular(&path, LONGEST, Links::Followed).map_err(|failure| match failure {
            ReadFailure::Errno(errno) if errno != Errno::EISDIR => failed(&path, errno.into()),
            _ => ProfileError(format!(
                "{} is not a profile: it is not a regular file of at most {LONGEST} bytes",
                path.display()
            )),
        })?;
        let text = String::from_utf8(text).map_err(|_| {
            ProfileError(format!("{} is not a profile: it is not UTF-8 text", path.display()))
        })?;
        together += text.len();
        if files.len() >= FILES || together > LONGEST_TOGETHER {
            return Err(ProfileError(format!(
                "{} (profile-dir) has more than {FILES} profiles, or more than {LONGEST_TOGETHER} bytes of them",
                folder.display()
            )));
        }
        files.push((path.display().to_string(), text));
    }
    files.sort();
    Ok(files)
}
