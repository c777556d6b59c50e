//! A directory that stays open while files in it are read and written, so that no other process can replace
//! it meanwhile.
//!
//! The path is opened component by component. A symbolic link is followed only if no other user can have
//! created it: it belongs to root or to this user, and so does its directory, to which no other user may
//! write. Such links are part of the machine's layout, such as `/var/run` or a home directory on another
//! disk. A link at the end of a path is never followed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, mkfifoat, unlinkat};

use super::{random, user};

/// The most links to follow on the path to a directory, the same as the kernel's limit (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// The mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The message about a link that is not followed.
pub(crate) const IS_LINK: &str = "it is a symbolic link; name the file itself";

#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory at this path, which may be relative; an empty path means the working directory.
    ///
    /// # Errors
    /// Fails as open(2) does, and if a link on the path may be another user's.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let mut here = step(AT_FDCWD, OsStr::new(if path.is_absolute() { "/" } else { "." }))?;
        let mut names: VecDeque<OsString> = names(path);
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let next = match step(&here, &name) {
                Ok(next) => next,
                // The file's type is checked directly, because errors differ between kernels and sandboxes.
                Err(error) => match link(&here, &name)? {
                    None => return Err(error.into()),
                    Some(target) => {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(Errno::ELOOP.into());
                        }
                        let target = Path::new(&target);
                        if target.is_absolute() {
                            here = step(AT_FDCWD, OsStr::new("/"))?;
                        }
                        for name in self::names(target).into_iter().rev() {
                            names.push_front(name);
                        }
                        continue;
                    }
                },
            };
            here = next;
        }
        Ok(Directory(here))
    }

    /// Opens the directory that contains the file at this path, and returns the file's name.
    ///
    /// # Errors
    /// Fails as [`Directory::open`] does, and if the path does not end with a file name.
    pub(crate) fn of_file(path: &Path) -> io::Result<(Directory, OsString)> {
        let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
        let name = path.file_name().filter(|_| !is_folder);
        let name = name.ok_or_else(|| io::Error::other("it is a directory"))?.to_owned();
        Ok((Directory::open(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Opens a directory with this name that only this user can read and write; creates it if it is missing.
    ///
    /// # Errors
    /// Fails as mkdir(2) and open(2) do, and if the directory belongs to another user or is open to others.
    pub(crate) fn private(&self, name: &OsStr) -> io::Result<Directory> {
        match mkdirat(&self.0, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let found = step(&self.0, name)?;
        let status = fstat(&found)?;
        if status.st_uid != user::effective().as_raw() || status.st_mode & 0o077 != 0 {
            return Err(io::Error::other("it is not a directory that only this user can use"));
        }
        Ok(Directory(found))
    }

    /// Returns the status of the entry with this name, without following a link; `None` if there is no such
    /// entry.
    ///
    /// # Errors
    /// Fails as stat(2) does.
    pub(crate) fn status(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Checks whether this process may access the entry with this name in this way; `.` means the directory
    /// itself.
    ///
    /// # Errors
    /// Fails as access(2) does.
    pub(crate) fn access(&self, name: &OsStr, how: AccessFlags) -> io::Result<()> {
        Ok(faccessat(&self.0, name, how, AtFlags::empty())?)
    }

    /// Creates a file under an unpredictable name that ends with this one.
    ///
    /// # Errors
    /// Fails as open(2) does.
    pub(crate) fn create_beside(&self, name: &OsStr, mode: Mode) -> io::Result<(OsString, File)> {
        let mut bytes = [0; 8];
        random::fill(&mut bytes)?;
        let mut new = OsString::from(format!(".{:016x}.", u64::from_ne_bytes(bytes)));
        // The kernel allows 255 bytes in a name.
        let name = name.as_bytes();
        new.push(OsStr::from_bytes(&name[name.len().saturating_sub(200)..]));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.0, new.as_os_str(), flags, mode)?;
        Ok((new, file.into()))
    }

    /// Opens the entry with this name if it is of this kind. Follows no link, and does not wait for a FIFO or
    /// a terminal.
    ///
    /// # Errors
    /// Fails as open(2) does, and if the entry is of another kind.
    pub(crate) fn open_file(&self, name: &OsStr, how: OFlag, kind: SFlag) -> io::Result<File> {
        let flags = how | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        match kind_of(&fstat(&file)?) == kind {
            true => Ok(file.into()),
            false => Err(io::Error::other("it is neither a file nor new")),
        }
    }

    /// Creates a FIFO for this user alone, unless the name exists.
    ///
    /// # Errors
    /// Fails as mkfifo(3) does.
    pub(crate) fn make_fifo(&self, name: &OsStr) -> io::Result<()> {
        match mkfifoat(&self.0, name, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// # Errors
    /// Fails as rename(2) does.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file if possible.
    pub(crate) fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Returns the names in the directory that do not start with a dot.
    pub(crate) fn names(&self) -> Vec<OsString> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(dir) = Dir::openat(&self.0, ".", flags, Mode::empty()) else { return Vec::new() };
        let names = dir.into_iter().flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        names.filter(|name| !name.starts_with(b".")).map(|name| OsStr::from_bytes(&name).to_owned()).collect()
    }
}

pub(crate) fn kind_of(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

fn names(path: &Path) -> VecDeque<OsString> {
    let is_step = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_step).map(|part| part.as_os_str().to_owned()).collect()
}

/// Opens a directory that is not a link; search permission is enough.
fn step(from: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(from, name, flags, Mode::empty())
}

/// Returns the target of the link with this name; `None` if it is not a link.
fn link(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<OsString>> {
    let Ok(status) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return Ok(None) };
    if kind_of(&status) != SFlag::S_IFLNK {
        return Ok(None);
    }
    let trusted = [0, user::effective().as_raw()];
    let around = fstat(directory)?;
    let is_safe = trusted.contains(&status.st_uid)
        && trusted.contains(&around.st_uid)
        && around.st_mode & OTHERS_WRITE == 0;
    if !is_safe {
        let name = name.to_string_lossy();
        return Err(io::Error::other(format!(
            "{name} on its path is a symbolic link that another user may have created"
        )));
    }
    Ok(Some(readlinkat(directory, name)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_link_is_followed_only_where_no_other_user_can_have_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("real/deep")).unwrap();
        fs::write(path("real/deep/file"), "").unwrap();
        symlink("real", path("link")).unwrap();
        symlink(path("real/deep"), path("absolute")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        let has_file = |name: &str| {
            Directory::open(&path(name)).map(|found| found.status(OsStr::new("file")).unwrap().is_some())
        };
        for name in ["real/deep", "link/deep", "absolute", "real/../link/./deep"] {
            assert!(has_file(name).unwrap(), "{name}");
        }
        assert_eq!(has_file("loop").unwrap_err().raw_os_error(), Some(Errno::ELOOP as i32));
        assert_eq!(has_file("dangling").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(has_file("real/deep/file").unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let refused = "on its path is a symbolic link that another user may have created";
        for mode in [0o1777, 0o775, 0o757] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let why = has_file("link/deep").unwrap_err().to_string();
            assert_eq!(why, format!("link {refused}"), "{mode:o}");
            assert!(has_file("real/deep").unwrap(), "{mode:o}");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if user::effective().is_root() {
            std::os::unix::fs::lchown(path("link"), Some(1234), None).unwrap();
            assert!(has_file("link/deep").unwrap_err().to_string().contains(refused));
            std::os::unix::fs::lchown(path("link"), Some(0), None).unwrap();
            chown(folder.path(), Some(1234), None).unwrap();
            assert!(has_file("link/deep").unwrap_err().to_string().contains(refused));
        }
    }

    #[test]
    fn a_private_directory_is_this_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let here = Directory::open(folder.path()).unwrap();
        let private = |name: &str| here.private(OsStr::new(name)).map(drop);
        private("own").unwrap();
        private("own").unwrap();
        assert_eq!(fs::metadata(folder.path().join("own")).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(folder.path().join("open")).unwrap();
        fs::set_permissions(folder.path().join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("own", folder.path().join("link")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for squatted in ["open", "link", "file"] {
            assert!(private(squatted).is_err(), "{squatted}");
        }
    }

    #[test]
    fn a_new_name_cannot_be_foretold_and_a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let here = Directory::open(folder.path()).unwrap();
        let name = OsString::from("x".repeat(255));
        let (one, mut file) = here.create_beside(&name, Mode::S_IRWXU).unwrap();
        let (other, _) = here.create_beside(&name, Mode::S_IRWXU).unwrap();
        assert_ne!(one, other);
        file.write_all(b"text").unwrap();
        here.rename(&one, &name).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(&name)).unwrap(), "text");
        here.remove(&other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let fifo = OsStr::new("fifo");
        here.make_fifo(fifo).unwrap();
        let read = |kind| here.open_file(fifo, OFlag::O_RDONLY, kind).map(drop);
        assert!(read(SFlag::S_IFREG).is_err());
        read(SFlag::S_IFIFO).unwrap();
        assert_eq!(here.names().len(), 2);
    }
}
