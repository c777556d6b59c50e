//! Writes rdma-init's lines into a file that may also contain other lines.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Gid, Uid};

use crate::facts::reader::{LIMIT, Links, OpenFor, ReadFailure, describe, open_regular, read_all};
use crate::state::folder::Folder;
use crate::state::mount;
use crate::sys::user;

/// In bytes: the largest file to amend; no user's file is larger.
pub(crate) const LONGEST: u64 = LIMIT;

/// Why a file is left unchanged.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAmended {
    /// The file is a symbolic link to this path.
    Link(PathBuf),
    Because(String),
}

impl std::fmt::Display for NotAmended {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            NotAmended::Link(target) => write!(f, "it is a symbolic link to {}", target.display()),
            NotAmended::Because(why) => f.write_str(why),
        }
    }
}

/// Whether a file may be written in place if it cannot be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InPlace {
    Yes,
    /// Only if the file is not a separate mount, which other containers may share.
    UnlessMounted,
}

/// Replaces the file's text, atomically if possible. A new file gets this mode; an existing file keeps its
/// mode and owner.
///
/// # Errors
/// Fails if the file cannot be read or written, or is not a regular text file.
pub(crate) fn amend(
    path: &Path,
    mode: u32,
    in_place: InPlace,
    change: impl FnOnce(&str) -> String,
) -> Result<(), NotAmended> {
    let because = |why: &dyn ToString| NotAmended::Because(why.to_string());
    let (old, mode, owner) = match open_regular(path, OpenFor::Read, Links::Refused) {
        Err(ReadFailure::Errno(Errno::ENOENT)) => (String::new(), mode, None),
        Err(ReadFailure::Errno(Errno::ELOOP)) => {
            return Err(fs::read_link(path).map_or_else(|error| because(&error), NotAmended::Link));
        }
        Err(failure) => return Err(unreadable(failure)),
        Ok(file) => {
            let status = file.metadata().map_err(|error| because(&error))?;
            let text = read_all(file, LONGEST).map_err(unreadable)?;
            let text = String::from_utf8(text).map_err(|_| because(&"it is not UTF-8 text"))?;
            let owner = (Uid::from_raw(status.uid()), Gid::from_raw(status.gid()));
            (text, status.permissions().mode() & 0o777, Some(owner))
        }
    };
    let new = change(&old);
    if new == old {
        return Ok(());
    }
    if new.len() as u64 > LONGEST {
        return Err(NotAmended::Because(format!("it would be longer than {LONGEST} bytes")));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(NotAmended::Because("it has no name".to_owned()));
    };
    // No other user can change a directory on this path, so none can have put another file there.
    let users = [Uid::from_raw(0), user::effective()];
    let folder = Folder::open(folder, &users).map_err(|refused| because(&refused))?;
    let may_be_in_place = |errno| match errno {
        Errno::EBUSY => in_place == InPlace::Yes,
        // The directory is on a read-only mount; the file may be on a separate mount.
        Errno::EROFS => in_place == InPlace::Yes,
        Errno::EACCES | Errno::EPERM => true,
        _ => false,
    };
    let is_shared = || in_place == InPlace::UnlessMounted && !lies_in_its_folder(path);
    match folder.write_for(owner, name, new.as_bytes(), mode) {
        Err(Errno::EBUSY | Errno::EACCES | Errno::EPERM) if owner.is_some() && is_shared() => {
            Err(NotAmended::Because("it is a mount, which other containers may share".to_owned()))
        }
        Err(errno) if may_be_in_place(errno) && owner.is_some() => {
            write_in_place(path, &old, &new).map_err(|_| NotAmended::Because(describe(errno)))
        }
        written => written.map_err(|errno| NotAmended::Because(describe(errno))),
    }
}

/// Returns whether a file is on the same mount as its directory, rather than a separate mount.
fn lies_in_its_folder(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let [file, folder] = [path, folder].map(mount::of_path);
    file.is_some() && file == folder
}

fn unreadable(failure: ReadFailure) -> NotAmended {
    NotAmended::Because(match failure {
        ReadFailure::Errno(Errno::EISDIR) | ReadFailure::NotRegular | ReadFailure::TooLong(_) => {
            format!("it is not a regular file of at most {LONGEST} bytes")
        }
        ReadFailure::Errno(errno) => describe(errno),
    })
}

/// Overwrites the file with the new text. If that fails, writes the old text again.
fn write_in_place(path: &Path, old: &str, new: &str) -> Result<(), ReadFailure> {
    let file = open_regular(path, OpenFor::Write, Links::Refused)?;
    let put =
        |text: &str| file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64));
    let written = put(new).inspect_err(|_| {
        let _ = put(old);
    });
    written.map_err(|error| ReadFailure::Errno(Errno::from_raw(error.raw_os_error().unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_text_changes_and_the_mode_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let append =
            |line: &'static str| amend(&path, 0o600, InPlace::Yes, move |old| format!("{old}{line}"));
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
    fn no_file_becomes_longer_than_what_the_next_start_reads() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let of_length = |length| amend(&path, 0o600, InPlace::Yes, |_| "a".repeat(length));
        of_length(LONGEST as usize).unwrap();
        assert!(
            matches!(of_length(LONGEST as usize + 1), Err(NotAmended::Because(why)) if why.contains("longer"))
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), LONGEST);
    }

    #[test]
    fn a_folder_of_others_is_left_alone_and_an_owner_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("file");
        fs::write(&path, "a\n").unwrap();
        let change =
            || amend(&path, 0o644, InPlace::Yes, |old| format!("{old}b\n")).map_err(|kept| kept.to_string());
        if !Uid::effective().is_root() {
            return;
        }
        std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
        change().unwrap();
        let status = fs::metadata(&path).unwrap();
        assert_eq!((status.uid(), status.gid(), status.len()), (1234, 2345, 4));
        // The directory's owner could have put another file under that name.
        std::os::unix::fs::chown(&folder, Some(1234), None).unwrap();
        assert!(change().unwrap_err().contains("another user (uid 1234)"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn amend_leaves_links_special_files_and_non_utf8_text_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let change =
            || amend(&path, 0o644, InPlace::Yes, |_| "new".to_owned()).map_err(|kept| kept.to_string());
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
        let none = |change: &dyn Fn() -> Result<(), String>| {
            assert!(change().unwrap_err().contains("it is not a regular file of at most 262144 bytes"));
        };
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        none(&change);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        none(&change);
        fs::remove_dir(&path).unwrap();
        // The file has the reported size, but occupies no disk space.
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        none(&change);
        none(&|| {
            amend(Path::new("/dev/zero"), 0o644, InPlace::Yes, |_| "new".to_owned())
                .map_err(|kept| kept.to_string())
        });
    }
}
