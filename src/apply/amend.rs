//! Writes rdma-init's lines into a file that may also contain other lines.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Gid, Uid};

use crate::block;
use crate::facts::reader::{LIMIT, Links, OpenFor, ReadFailure, describe, open_regular, read_all};
use crate::libraries::may_write;
use crate::state::folder::{AfterCrash, Folder};
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

/// How often to read the file again if another process changes it meanwhile.
const ATTEMPTS: usize = 5;

/// The file as it was read.
#[derive(PartialEq, Eq)]
struct Content {
    text: String,
    mode: u32,
    /// `None` if there is no file.
    owner: Option<(Uid, Gid)>,
}

/// Replaces the file's text, atomically if possible. A new file gets this mode; an existing file keeps its
/// mode and owner. What another process writes between the read and the replacement stays, except in the few
/// microseconds between the last look at the file and the rename.
///
/// # Errors
/// Fails if the file cannot be read or written, or is not a regular text file.
pub(crate) fn amend(
    path: &Path,
    mode: u32,
    in_place: InPlace,
    mut change: impl FnMut(&str) -> String,
) -> Result<(), NotAmended> {
    for _ in 0..ATTEMPTS {
        let old = read(path, mode)?;
        let new = change(&old.text);
        if new == old.text {
            return Ok(());
        }
        let mut is_stale = false;
        let confirm = || {
            is_stale = read(path, mode).is_ok_and(|now| now != old);
            if is_stale { Err(Errno::ESTALE) } else { Ok(()) }
        };
        let written = replace(path, &old, &new, in_place, confirm);
        if !is_stale {
            return written;
        }
    }
    Err(NotAmended::Because("another process keeps changing it".to_owned()))
}

fn because(why: impl ToString) -> NotAmended {
    NotAmended::Because(why.to_string())
}

fn read(path: &Path, mode: u32) -> Result<Content, NotAmended> {
    let file = match open_regular(path, OpenFor::Read, Links::Refused) {
        Err(ReadFailure::Errno(Errno::ENOENT)) => {
            return Ok(Content { text: String::new(), mode, owner: None });
        }
        Err(ReadFailure::Errno(Errno::ELOOP)) => {
            return Err(fs::read_link(path).map_or_else(because, NotAmended::Link));
        }
        opened => opened.map_err(unreadable)?,
    };
    let status = file.metadata().map_err(because)?;
    let text = read_all(file, LONGEST).map_err(unreadable)?;
    let text = String::from_utf8(text).map_err(|_| because("it is not UTF-8 text"))?;
    let owner = (Uid::from_raw(status.uid()), Gid::from_raw(status.gid()));
    Ok(Content { text, mode: status.permissions().mode() & 0o777, owner: Some(owner) })
}

/// Replaces the file's text unless `confirm` fails.
fn replace(
    path: &Path,
    old: &Content,
    new: &str,
    in_place: InPlace,
    mut confirm: impl FnMut() -> Result<(), Errno>,
) -> Result<(), NotAmended> {
    if new.len() as u64 > LONGEST {
        return Err(NotAmended::Because(format!("it would be longer than {LONGEST} bytes")));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(NotAmended::Because("it has no name".to_owned()));
    };
    // No other user can change a directory on this path, so none can have put another file there.
    let users = [Uid::from_raw(0), user::effective()];
    let folder = Folder::open(folder, &users).map_err(because)?;
    folder.sweep(&[name]);
    let may_be_in_place = |errno| match errno {
        Errno::EBUSY => in_place == InPlace::Yes,
        // The directory is on a read-only mount; the file may be on a separate mount.
        Errno::EROFS => in_place == InPlace::Yes,
        Errno::EACCES | Errno::EPERM => true,
        _ => false,
    };
    let is_shared = || in_place == InPlace::UnlessMounted && !lies_in_its_folder(path);
    // The next start writes lines of ours again.
    let after_crash =
        if block::is_ours_alone(&old.text, may_write) { AfterCrash::Unknown } else { AfterCrash::OldOrNew };
    match folder.write_for(old.owner, name, (new.as_bytes(), old.mode), after_crash, &mut confirm) {
        Err(Errno::EBUSY | Errno::EACCES | Errno::EPERM) if old.owner.is_some() && is_shared() => {
            Err(because("it is a mount, which other containers may share"))
        }
        Err(errno) if may_be_in_place(errno) && old.owner.is_some() => {
            confirm().map_err(|errno| because(describe(errno)))?;
            write_in_place(path, &old.text, new).map_err(|_| because(describe(errno)))
        }
        written => written.map_err(|errno| because(describe(errno))),
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
    let put = |over: &str, text: &str| {
        let (start, changed) = overwriting(over, text);
        file.write_all_at(&changed, start as u64).and_then(|()| file.set_len(text.len() as u64))
    };
    let written = put(old, new).inspect_err(|_| {
        let _ = put("", old);
    });
    written.map_err(|error| ReadFailure::Errno(Errno::from_raw(error.raw_os_error().unwrap_or(0))))
}

/// Returns the place of the first byte that changes, and the bytes from there on. Empty lines cover what is left
/// of a longer old text, so that a start that is killed before it cuts the file leaves none of the old lines.
fn overwriting(old: &str, new: &str) -> (usize, Vec<u8>) {
    let start = std::iter::zip(old.bytes(), new.bytes()).take_while(|(old, new)| old == new).count();
    let mut changed = new.as_bytes().get(start..).unwrap_or_default().to_vec();
    changed.resize(changed.len().max(old.len().saturating_sub(start)), b'\n');
    (start, changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A file system that is slow enough for another process to write meanwhile.
    #[test]
    fn a_line_that_another_process_adds_meanwhile_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        for first in [None, Some("a\n")] {
            let _ = fs::remove_file(&path);
            first.inspect(|first| fs::write(&path, first).unwrap());
            let mut times = 0;
            let append = |old: &str| {
                times += 1;
                if times == 1 {
                    fs::write(&path, format!("{old}theirs\n")).unwrap();
                }
                format!("{old}ours\n")
            };
            amend(&path, 0o644, InPlace::Yes, append).unwrap();
            let first = first.unwrap_or_default();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{first}theirs\nours\n"));
        }
        let endless = |old: &str| {
            fs::write(&path, format!("{old}theirs\n")).unwrap();
            format!("{old}ours\n")
        };
        let why = amend(&path, 0o644, InPlace::Yes, endless).unwrap_err().to_string();
        assert!(why.contains("keeps changing it"), "{why}");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.matches("theirs").count(), text.matches("ours").count()), (1 + ATTEMPTS, 1));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_temporary_file_of_a_killed_start_goes_with_the_next() {
        let place = tempfile::tempdir().unwrap();
        let names = [".file.2.1700000000000000000", ".file.bak.2.1700000000000000000", ".file.2.old"];
        for name in names {
            fs::write(place.path().join(name), "").unwrap();
        }
        amend(&place.path().join("file"), 0o644, InPlace::Yes, |_| "new".to_owned()).unwrap();
        assert_eq!(names.map(|name| place.path().join(name).exists()), [false, true, true]);
    }

    #[test]
    fn an_overwritten_file_keeps_no_tail_of_the_old_text() {
        for (old, new, start, changed) in [
            ("own\nA=1\nB=2\n", "own\nA=7\n", 6, "7\n\n\n\n\n"),
            ("own\n", "own\nA=1\n", 4, "A=1\n"),
            ("A=1\n", "", 0, "\n\n\n\n"),
            ("", "A=1\n", 0, "A=1\n"),
            ("A=1\nB=2\n", "A=1\n", 4, "\n\n\n\n"),
        ] {
            assert_eq!(overwriting(old, new), (start, changed.as_bytes().to_vec()), "{old}");
        }
    }

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
