//! Lines of ours in a file that may have others, too.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::state::folder::Folder;

/// Bytes; a file of the user is not larger.
const LONGEST: u64 = 1024 * 1024;

/// Why a file is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is a symbolic link to there.
    Link(PathBuf),
    Because(String),
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Kept::Link(target) => write!(f, "it is a symbolic link to {}", target.display()),
            Kept::Because(why) => f.write_str(why),
        }
    }
}

/// Replaces the file's text, all at once where that can be. A new file gets this mode.
///
/// # Errors
/// It cannot be read or written, or is no regular file of text.
pub fn amend(path: &Path, mode: u32, change: impl FnOnce(&str) -> String) -> Result<(), Kept> {
    let because = |why: &dyn ToString| Kept::Because(why.to_string());
    let (old, mode) = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => (String::new(), mode),
        Err(error) => return Err(because(&error)),
        Ok(status) if status.is_symlink() => {
            return Err(fs::read_link(path).map_or_else(|error| because(&error), Kept::Link));
        }
        Ok(status) if !status.is_file() || status.len() > LONGEST => {
            return Err(Kept::Because(format!("it is no regular file of at most {LONGEST} bytes")));
        }
        Ok(status) => {
            let text = fs::read_to_string(path).map_err(|error| because(&error))?;
            (text, status.permissions().mode() & 0o777)
        }
    };
    let new = change(&old);
    if new == old {
        return Ok(());
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(Kept::Because("it has no name".to_owned()));
    };
    let users = [Uid::from_raw(0), Uid::effective()];
    let replaced = Folder::open(folder, &users)
        .map_err(|refused| refused.to_string())
        .and_then(|folder| folder.write(name, new.as_bytes(), mode).map_err(describe));
    replaced.or_else(|error| in_place(path, &new).map_err(|_| Kept::Because(error)))
}

/// For a file that is mounted on its own: nothing can take its name.
fn in_place(path: &Path, text: &str) -> Result<(), Errno> {
    let open =
        fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let written = open.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    });
    written.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_text_changes_and_the_mode_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let append = |line: &'static str| amend(&path, 0o600, move |old| format!("{old}{line}"));
        append("").unwrap();
        assert!(!path.exists());
        append("a\n").unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        append("b\n").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("a\nb\n", 0o640));
    }

    #[test]
    fn what_is_no_text_of_a_user_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let change = || amend(&path, 0o644, |_| "new".to_owned()).map_err(|kept| kept.to_string());
        let other = place.path().join("other");
        fs::write(&other, "").unwrap();
        symlink(&other, &path).unwrap();
        assert!(change().unwrap_err().contains("symbolic link"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"A=\xff\n").unwrap();
        assert!(change().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"A=\xff\n");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(change().unwrap_err().contains("no regular file"));
    }
}
