//! A directory whose content no other user can change and that no other user can replace: each step of the
//! path is checked, and no symbolic link is followed.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

use super::temporary::{beside, is_left, is_ours, nanoseconds};
use super::{FILES, mount};
use crate::facts::reader::describe;
use crate::sys::user;

/// In bytes: each of rdma-init's files is smaller.
const LONGEST: u64 = 4 * 1024 * 1024;

/// In bytes: the limit for a file that another container may have written, because each process that enters
/// parses it.
const LONGEST_OF_OTHERS: u64 = 512 * 1024;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// What a newly written file contains after a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCrash {
    /// The new text is on the disk before it gets the name (fsync(2)), which may take as long as the disk is busy.
    /// ext4 would do this by itself for a name that another file has (`auto_da_alloc`), but not on an overlay
    /// whose lower layer alone has that file, and XFS never does. If the rename itself is lost, the name still
    /// stands for the old text, so the directory needs no fsync(2).
    OldOrNew,
    /// Perhaps nothing.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Folder {
    folder: OwnedFd,
    owner: Uid,
    /// Whether this process created the directory, so that it is still empty.
    is_new: bool,
}

/// Why a directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Errno(Errno),
    /// The directory, or one on the path to it, belongs to this user ID.
    Foreign(u32),
    /// Other users may change the directory's content.
    Open,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused::Errno(errno)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Refused::Errno(Errno::ELOOP | Errno::ENOTDIR) => {
                f.write_str("a symbolic link or a file is in the place of the directory")
            }
            Refused::Errno(errno) => f.write_str(&describe(*errno)),
            Refused::Foreign(uid) => write!(f, "it belongs to another user (uid {uid})"),
            Refused::Open => f.write_str("other users may write to a directory on its path"),
        }
    }
}

impl Refused {
    /// Returns whether other users may change the directory's content.
    pub(crate) fn is_of_others(&self) -> bool {
        match self {
            Refused::Foreign(_) | Refused::Open => true,
            Refused::Errno(errno) => [Errno::ELOOP, Errno::ENOTDIR].contains(errno),
        }
    }
}

impl Folder {
    /// Opens a directory that belongs to one of these users for reading.
    ///
    /// # Errors
    /// Fails if the directory does not exist or others may change it.
    pub(crate) fn open(path: &Path, users: &[Uid]) -> Result<Folder, Refused> {
        Folder::at(path, users, false)
    }

    /// Opens a directory that others may change as well, such as a Pod's emptyDir. Follows symbolic links on
    /// the path to it.
    ///
    /// # Errors
    /// Fails as open(2) does.
    pub(crate) fn shared(path: &Path) -> Result<Folder, Errno> {
        let folder = openat(AT_FDCWD, path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let owner = Uid::from_raw(fstat(&folder)?.st_uid);
        Ok(Folder { folder, owner, is_new: false })
    }

    /// Opens a directory that belongs to this process's own user, and creates it if it does not exist. Moves
    /// any other entry that has the name of one of rdma-init's files out of the way.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or others may change it.
    pub(crate) fn make(path: &Path) -> Result<Folder, Refused> {
        let folder = Folder::at(path, &[user::effective()], true)?;
        if !folder.is_new {
            FILES.iter().try_for_each(|name| folder.clear(name))?;
            folder.sweep(&FILES);
        }
        Ok(folder)
    }

    /// Removes the temporary files of starts that were killed while writing one of these files.
    pub(crate) fn sweep(&self, files: &[&str]) {
        let entries = self.folder.try_clone().map_err(drop).and_then(|fd| Dir::from_fd(fd).map_err(drop));
        let Ok(mut entries) = entries else { return };
        let now = nanoseconds();
        for entry in entries.iter().flatten() {
            if is_left(entry.file_name().to_bytes(), files, now) {
                let _ = unlinkat(&self.folder, entry.file_name(), UnlinkatFlags::NoRemoveDir);
            }
        }
    }

    fn at(path: &Path, users: &[Uid], make: bool) -> Result<Folder, Refused> {
        if !path.is_absolute() {
            return Err(Errno::EINVAL.into());
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut folder = openat(AT_FDCWD, "/", flags, Mode::empty())?;
        let (mut status, mut is_new) = (fstat(&folder)?, false);
        let mut names = path.components().filter(|part| *part != Component::RootDir).peekable();
        while let Some(part) = names.next() {
            // Only plain names are accepted, not `..` and similar.
            let Component::Normal(name) = part else { return Err(Errno::EINVAL.into()) };
            let is_last = names.peek().is_none();
            let mut next = openat(&folder, name, flags, Mode::empty());
            is_new = false;
            if make && next.as_ref().err() == Some(&Errno::ENOENT) {
                match mkdirat(&folder, name, Mode::from_bits_truncate(0o755)) {
                    Ok(()) => is_new = true,
                    // Another process has just created it.
                    Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                next = openat(&folder, name, flags, Mode::empty());
            }
            let next = next?;
            status = fstat(&next)?;
            let is_own = status.st_uid == user::effective().as_raw();
            if is_last && make && is_own && status.st_mode & 0o7777 != 0o755 && holds_only_ours(&next) {
                // The directory was created under a umask, or is an emptyDir that all users may write to.
                fchmod(&next, Mode::from_bits_truncate(0o755))?;
                status = fstat(&next)?;
                // Until now, others may have been able to write to it.
                is_new = false;
            }
            check(&status, users, is_last)?;
            folder = next;
        }
        Ok(Folder { folder, owner: Uid::from_raw(status.st_uid), is_new })
    }

    /// Returns whether this process created the directory, so that it is still empty.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the user that the directory belongs to.
    pub(crate) fn owner(&self) -> Uid {
        self.owner
    }

    /// Returns whether the directory is on the same mount as the root directory. A container has its own root
    /// mount, so no process outside can write there; any other mount may be in several containers.
    pub(crate) fn is_of_root(&self) -> bool {
        let mount = mount::of(&self.folder);
        mount.is_some() && mount == mount::of_root()
    }

    /// Writes a file with these permissions atomically: a reader sees either the old text or the new one.
    /// After a crash of the machine, the file may contain neither, so this is suitable for a state, which
    /// does not outlive the machine's boot.
    ///
    /// # Errors
    /// Fails as open(2), write(2) and rename(2) do.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        // An empty file is complete as soon as it exists, so it needs no temporary name.
        if bytes.is_empty() && self.is_new && self.write_unread(name, bytes, mode).is_ok() {
            return Ok(());
        }
        self.replace(None, name, mode, AfterCrash::Unknown, |file| file.write_all(bytes))
    }

    /// Writes a new file as [`Folder::write`] does, but without a temporary name, which saves a start some time. A
    /// process that opens the file too early reads a part of the text.
    ///
    /// # Errors
    /// Fails as open(2) and write(2) do, with EEXIST if the name exists.
    pub(crate) fn write_unread(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_bits_truncate(mode);
        let file = openat(&self.folder, name, new_file(), mode)?;
        set_mode(&file, mode)?;
        if bytes.is_empty() {
            return Ok(());
        }
        File::from(file).write_all(bytes).map_err(errno_of)
    }

    /// Does the same as [`Folder::write`], but the file belongs to this owner, or with `None` to this
    /// process's user and group. Calls `confirm` last, just before the file gets its name.
    ///
    /// # Errors
    /// Fails as [`Folder::write`], chown(2) and fsync(2) do, and as `confirm` does.
    pub(crate) fn write_for(
        &self,
        owner: Option<(Uid, Gid)>,
        name: &str,
        (bytes, mode): (&[u8], u32),
        after_crash: AfterCrash,
        confirm: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.replace(owner, name, mode, after_crash, |file| {
            file.write_all(bytes)?;
            if after_crash == AfterCrash::OldOrNew {
                sync(file)?;
            }
            Ok(confirm()?)
        })
    }

    /// Does the same as [`Folder::write`], but the bytes are on the disk or server before the file gets its
    /// name: some file systems report only then that they have no space.
    ///
    /// # Errors
    /// Fails as [`Folder::write`] and fsync(2) do.
    pub(crate) fn write_through(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        self.replace(None, name, mode, AfterCrash::OldOrNew, |file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
    }

    fn replace(
        &self,
        owner: Option<(Uid, Gid)>,
        name: &str,
        mode: u32,
        after_crash: AfterCrash,
        fill: impl FnOnce(&mut File) -> std::io::Result<()>,
    ) -> Result<(), Errno> {
        let new = beside(name);
        let mode = Mode::from_bits_truncate(mode);
        let file = openat(&self.folder, new.as_str(), new_file(), mode)?;
        let owned = match owner {
            Some((user, group)) => fchown(&file, Some(user), Some(group)),
            None => Ok(()),
        };
        let written = owned
            .and_then(|()| set_mode(&file, mode))
            .and_then(|()| fill(&mut File::from(file)).map_err(errno_of))
            .and_then(|()| match after_crash {
                AfterCrash::Unknown if !self.is_new => self.exchange(&new, name),
                _ => renameat(&self.folder, new.as_str(), &self.folder, name),
            });
        if written.is_err() {
            let _ = unlinkat(&self.folder, new.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// Gives the new file its name. If an old file has that name, exchanges the two names and removes the old
    /// file: replacing it would make ext4 and btrfs write the new text to the disk at once, and a busy disk
    /// would delay the start by milliseconds.
    fn exchange(&self, new: &str, name: &str) -> Result<(), Errno> {
        match renameat2(&self.folder, new, &self.folder, name, RenameFlags::RENAME_EXCHANGE) {
            Ok(()) => match unlinkat(&self.folder, new, UnlinkatFlags::NoRemoveDir) {
                // A directory had the name, and gets it back.
                Err(Errno::EISDIR) => {
                    renameat2(&self.folder, new, &self.folder, name, RenameFlags::RENAME_EXCHANGE)?;
                    Err(Errno::EISDIR)
                }
                _ => Ok(()),
            },
            // There is no old file, or the file system cannot exchange names.
            Err(_) => renameat(&self.folder, new, &self.folder, name),
        }
    }

    /// Removes a file if possible.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Makes sure that only one of rdma-init's own files can have this name.
    fn clear(&self, name: &str) -> Result<(), Errno> {
        let status = match fstatat(&self.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(()),
            status => status?,
        };
        if is_file_of(&status, self.owner) {
            return Ok(());
        }
        if kind(&status) != SFlag::S_IFDIR {
            return unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir);
        }
        // The directory is only renamed: it may contain any number of entries, and removing them may take
        // long.
        let aside = beside(name);
        renameat(&self.folder, name, &self.folder, aside.as_str())?;
        let _ = unlinkat(&self.folder, aside.as_str(), UnlinkatFlags::RemoveDir);
        Ok(())
    }

    /// Returns the content of a file that belongs to the directory's owner.
    ///
    /// # Errors
    /// Fails as open(2) and read(2) do, and with EINVAL if it is not a regular file of that owner.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        self.read_if(name, &[self.owner], LONGEST, |_| Ok(())).map(|(bytes, _)| bytes)
    }

    /// Does the same as [`Folder::read`], but only if the file is on the directory's own mount.
    ///
    /// # Errors
    /// Fails as [`Folder::read`] does, and with EXDEV if the file is mounted there from elsewhere.
    pub(crate) fn read_in_place(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let is_here = |file: &OwnedFd| mount::of(file) == mount::of(&self.folder);
        let check = |file: &OwnedFd| if is_here(file) { Ok(()) } else { Err(Errno::EXDEV) };
        self.read_if(name, &[self.owner], LONGEST_OF_OTHERS, check).map(|(bytes, _)| bytes)
    }

    /// Returns the first `longest` bytes and the permissions of a file that belongs to one of these users and
    /// that no other user may change.
    ///
    /// # Errors
    /// Fails as [`Folder::read`] does.
    pub(crate) fn read_of(&self, name: &str, users: &[Uid], longest: u64) -> Result<(Vec<u8>, u32), Errno> {
        self.read_if(name, users, longest, |_| Ok(()))
    }

    fn read_if(
        &self,
        name: &str,
        users: &[Uid],
        longest: u64,
        check: impl Fn(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(Vec<u8>, u32), Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::empty())?;
        let status = fstat(&file)?;
        if !users.iter().any(|user| is_file_of(&status, *user)) {
            return Err(Errno::EINVAL);
        }
        check(&file)?;
        let mut bytes = Vec::new();
        let read = File::from(file).take(longest).read_to_end(&mut bytes);
        read.map(|_| (bytes, status.st_mode & 0o7777)).map_err(errno_of)
    }
}

/// Gives a new file these permissions. Its owner may have changed, and a umask may have removed some. Usually
/// the mode is already right, and on an overlay, checking it costs only a fifth of setting it.
fn set_mode(file: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    if fstat(file)?.st_mode & 0o7777 == mode.bits() {
        return Ok(());
    }
    fchmod(file, mode)
}

/// Writes the file's bytes to the disk. A file system or a sandbox that has no fsync(2) is no reason to write
/// nothing.
fn sync(file: &File) -> std::io::Result<()> {
    match file.sync_all().map_err(errno_of) {
        Err(errno @ (Errno::EIO | Errno::ENOSPC | Errno::EDQUOT)) => Err(errno.into()),
        _ => Ok(()),
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn new_file() -> OFlag {
    OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}

/// Returns whether this is a regular file that belongs to the owner and that no other user may change.
fn is_file_of(status: &FileStat, owner: Uid) -> bool {
    kind(status) == SFlag::S_IFREG
        && Uid::from_raw(status.st_uid) == owner
        && status.st_mode & OTHERS_WRITE == 0
}

/// Returns whether the directory contains only rdma-init's files, so that its mode may be changed.
fn holds_only_ours(folder: &OwnedFd) -> bool {
    let Ok(mut entries) = folder.try_clone().map_err(drop).and_then(|fd| Dir::from_fd(fd).map_err(drop))
    else {
        return false;
    };
    entries.iter().all(|entry| {
        entry.is_ok_and(|entry| {
            matches!(entry.file_name().to_bytes(), b"." | b"..") || is_ours(entry.file_name().to_bytes())
        })
    })
}

fn check(status: &FileStat, users: &[Uid], is_last: bool) -> Result<(), Refused> {
    let owner = Uid::from_raw(status.st_uid);
    let is_known = users.contains(&owner) || owner.is_root() && !is_last;
    if !is_known {
        return Err(Refused::Foreign(status.st_uid));
    }
    // In a directory with the sticky bit, no user can move another user's entries.
    let others = status.st_mode & OTHERS_WRITE != 0 && (is_last || status.st_mode & STICKY == 0);
    if others { Err(Refused::Open) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
