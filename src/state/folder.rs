//! A directory whose content no other user can change, and which no other user can replace: each step
//! of the path is checked, and no symbolic link is followed.

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

/// In bytes; each file of ours is smaller.
const LONGEST: u64 = 4 * 1024 * 1024;

/// In bytes, of a file that another container may have written: it is parsed by each process
/// that enters.
const LONGEST_OF_OTHERS: u64 = 512 * 1024;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// What a file that was just written has after a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterCrash {
    OldOrNew,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Folder {
    folder: OwnedFd,
    owner: Uid,
    /// Whether this process has made the directory, so that nothing is in it yet.
    is_new: bool,
}

/// Why a directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Errno(Errno),
    /// The directory, or one on the path to it, belongs to this uid.
    Foreign(u32),
    /// Other users may change what is in the directory.
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
    /// Returns whether other users may change the content of the directory.
    pub(crate) fn is_of_others(&self) -> bool {
        match self {
            Refused::Foreign(_) | Refused::Open => true,
            Refused::Errno(errno) => [Errno::ELOOP, Errno::ENOTDIR].contains(errno),
        }
    }
}

impl Folder {
    /// Opens a directory of one of these users for reading.
    ///
    /// # Errors
    /// The directory does not exist, or others may change it.
    pub(crate) fn open(path: &Path, users: &[Uid]) -> Result<Folder, Refused> {
        Folder::at(path, users, false)
    }

    /// Opens a directory that others may change as well, such as the emptyDir of a Pod. Symbolic
    /// links on the path to it are followed.
    ///
    /// # Errors
    /// As for open(2).
    pub(crate) fn shared(path: &Path) -> Result<Folder, Errno> {
        let folder = openat(AT_FDCWD, path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let owner = Uid::from_raw(fstat(&folder)?.st_uid);
        Ok(Folder { folder, owner, is_new: false })
    }

    /// Opens a directory of this process's own user, and makes it if it does not exist. Anything
    /// else that has the name of one of our files is moved out of the way.
    ///
    /// # Errors
    /// The directory cannot be made, or others may change it.
    pub(crate) fn make(path: &Path) -> Result<Folder, Refused> {
        let folder = Folder::at(path, &[user::effective()], true)?;
        if !folder.is_new {
            FILES.iter().try_for_each(|name| folder.clear(name))?;
            folder.sweep();
        }
        Ok(folder)
    }

    /// Removes the temporary files of starts that were killed while they wrote.
    fn sweep(&self) {
        let entries = self.folder.try_clone().map_err(drop).and_then(|fd| Dir::from_fd(fd).map_err(drop));
        let Ok(mut entries) = entries else { return };
        let now = nanoseconds();
        for entry in entries.iter().flatten() {
            if is_left(entry.file_name().to_bytes(), now) {
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
            // `..` and the like: only plain names are accepted.
            let Component::Normal(name) = part else { return Err(Errno::EINVAL.into()) };
            let is_last = names.peek().is_none();
            let mut next = openat(&folder, name, flags, Mode::empty());
            is_new = false;
            if make && next.as_ref().err() == Some(&Errno::ENOENT) {
                match mkdirat(&folder, name, Mode::from_bits_truncate(0o755)) {
                    Ok(()) => is_new = true,
                    // Another process was faster.
                    Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                next = openat(&folder, name, flags, Mode::empty());
            }
            let next = next?;
            status = fstat(&next)?;
            let is_own = status.st_uid == user::effective().as_raw();
            if is_last && make && is_own && status.st_mode & 0o7777 != 0o755 && holds_only_ours(&next) {
                // The directory was made under a umask, or is an emptyDir that all users may write
                // to.
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

    /// Returns whether this process has made the directory, so that nothing is in it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the user to whom the directory belongs.
    pub(crate) fn owner(&self) -> Uid {
        self.owner
    }

    /// Returns whether the directory lies on the same mount as the root directory. A container has a root
    /// mount of its own, so no process outside can write there; any other mount may be in several
    /// containers.
    pub(crate) fn is_of_root(&self) -> bool {
        let mount = mount::of(&self.folder);
        mount.is_some() && mount == mount::of_root()
    }

    /// Writes a file with these permissions, all at once: a reader sees the old text or the new
    /// one. After a crash of the machine, the file may have neither, so this is for a state,
    /// which does not outlive the machine's boot.
    ///
    /// # Errors
    /// As for open(2), write(2) and rename(2).
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        // An empty file is whole as soon as it is there, so it needs no other name before.
        if bytes.is_empty() && self.is_new && self.write_unread(name, bytes, mode).is_ok() {
            return Ok(());
        }
        self.replace(None, name, mode, AfterCrash::Nothing, |file| file.write_all(bytes))
    }

    /// As [`Folder::write`], but without another name before, which takes a part of the time of a start. A
    /// process that opens the file meanwhile reads a part of the text.
    ///
    /// # Errors
    /// As for open(2) and write(2); EEXIST if something has the name.
    pub(crate) fn write_unread(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_bits_truncate(mode);
        let file = openat(&self.folder, name, new_file(), mode)?;
        set_mode(&file, mode)?;
        if bytes.is_empty() {
            return Ok(());
        }
        File::from(file).write_all(bytes).map_err(errno_of)
    }

    /// As [`Folder::write`], but the file belongs to this owner, or with `None` to this process's
    /// user and group; and after a crash of the machine, it has the old text or the new one.
    ///
    /// # Errors
    /// As for [`Folder::write`], and chown(2).
    pub(crate) fn write_for(
        &self,
        owner: Option<(Uid, Gid)>,
        name: &str,
        bytes: &[u8],
        mode: u32,
    ) -> Result<(), Errno> {
        self.replace(owner, name, mode, AfterCrash::OldOrNew, |file| file.write_all(bytes))
    }

    /// As [`Folder::write`], but the bytes are on the disk or the server before the file takes
    /// its name: some file systems say only then that there is no room.
    ///
    /// # Errors
    /// As for [`Folder::write`], and fsync(2).
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
                AfterCrash::Nothing if !self.is_new => self.exchange(&new, name),
                _ => renameat(&self.folder, new.as_str(), &self.folder, name),
            });
        if written.is_err() {
            let _ = unlinkat(&self.folder, new.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// Gives the new file its name. If an old file has that name, the two exchange theirs, and
    /// the old one is removed: to replace it would make ext4 and btrfs write the new text to the
    /// disk at once, and a busy disk would hold up the start for milliseconds.
    fn exchange(&self, new: &str, name: &str) -> Result<(), Errno> {
        match renameat2(&self.folder, new, &self.folder, name, RenameFlags::RENAME_EXCHANGE) {
            Ok(()) => {
                let _ = unlinkat(&self.folder, new, UnlinkatFlags::NoRemoveDir);
                Ok(())
            }
            // There is no old file, or the file system cannot exchange names.
            Err(_) => renameat(&self.folder, new, &self.folder, name),
        }
    }

    /// Removes a file, as far as that is possible.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Makes sure that nothing but a file of ours has this name.
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
        // The directory is only renamed: it may hold any number of things, and to remove them may
        // take long.
        let aside = beside(name);
        renameat(&self.folder, name, &self.folder, aside.as_str())?;
        let _ = unlinkat(&self.folder, aside.as_str(), UnlinkatFlags::RemoveDir);
        Ok(())
    }

    /// Returns the content of a file of the directory's owner.
    ///
    /// # Errors
    /// As for open(2) and read(2); EINVAL if it is not a regular file of the owner's.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        self.read_if(name, &[self.owner], LONGEST, |_| Ok(())).map(|(bytes, _)| bytes)
    }

    /// As [`Folder::read`], but only if the file lies on the directory's own mount.
    ///
    /// # Errors
    /// As for [`Folder::read`], and EXDEV if the file is mounted there from elsewhere.
    pub(crate) fn read_in_place(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let is_here = |file: &OwnedFd| mount::of(file) == mount::of(&self.folder);
        let check = |file: &OwnedFd| if is_here(file) { Ok(()) } else { Err(Errno::EXDEV) };
        self.read_if(name, &[self.owner], LONGEST_OF_OTHERS, check).map(|(bytes, _)| bytes)
    }

    /// Returns the first `longest` bytes, and the permissions, of a file that belongs to one of these
    /// users and that no other user may change.
    ///
    /// # Errors
    /// As for [`Folder::read`].
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

/// Gives a new file these permissions. Its owner may be another one, and a umask may have taken some;
/// usually there is nothing to do, and to ask is a fifth of the work of an overlay.
fn set_mode(file: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    if fstat(file)?.st_mode & 0o7777 == mode.bits() {
        return Ok(());
    }
    fchmod(file, mode)
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

/// Returns whether this is a regular file of the owner's that no other user may change.
fn is_file_of(status: &FileStat, owner: Uid) -> bool {
    kind(status) == SFlag::S_IFREG
        && Uid::from_raw(status.st_uid) == owner
        && status.st_mode & OTHERS_WRITE == 0
}

/// Returns whether no other user uses the directory, so that its mode may be changed.
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
    // In a directory with the sticky bit, no user can move what belongs to another one.
    let others = status.st_mode & OTHERS_WRITE != 0 && (is_last || status.st_mode & STICKY == 0);
    if others { Err(Refused::Open) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Returns a directory that only this user may change, and so are the ones on the path to it.
    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn only_a_new_file_is_written_under_its_own_name() {
        let place = place();
        let folder = Folder::make(&place.path().join("a")).unwrap();
        folder.write_unread("facts.json", b"first", 0o600).unwrap();
        assert_eq!(folder.write_unread("facts.json", b"second", 0o644), Err(Errno::EEXIST));
        assert_eq!(folder.read("facts.json").unwrap(), b"first");
        let path = place.path().join("a/facts.json");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        symlink("elsewhere", place.path().join("a/link")).unwrap();
        assert_eq!(folder.write_unread("link", b"", 0o644), Err(Errno::EEXIST));
    }

    #[test]
    fn what_is_written_can_be_read_by_everybody_and_replaced() {
        let place = place();
        let path = place.path().join("a/b");
        for (text, is_new) in [("first", true), ("second, longer", false)] {
            let folder = Folder::make(&path).unwrap();
            assert_eq!(folder.is_new(), is_new);
            folder.write("x.json", text.as_bytes(), 0o644).unwrap();
            let folder = Folder::open(&path, &[Uid::effective()]).unwrap();
            assert_eq!(folder.read("x.json").unwrap(), text.as_bytes());
        }
        let names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x.json"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(fs::metadata(path.join("x.json")).unwrap().mode() & 0o7777, 0o644);
        let new = place.path().join("new");
        Folder::make(&new).unwrap().write("empty", b"", 0o622).unwrap();
        assert_eq!(fs::metadata(new.join("empty")).unwrap().mode() & 0o7777, 0o622);
    }

    #[test]
    fn what_a_killed_start_has_left_goes_with_the_next() {
        let place = place();
        let path = place.path().join("state");
        Folder::make(&path).unwrap();
        let under_way = beside("plan.json");
        let names =
            [".plan.json.2.1700000000000000000", ".other.2.1700000000000000000", ".plan.json.x", "plan.json"];
        for name in names.into_iter().chain([under_way.as_str()]) {
            fs::write(path.join(name), "half").unwrap();
        }
        Folder::make(&path).unwrap();
        let is_there = |name: &str| path.join(name).exists();
        assert_eq!(names.map(is_there), [false, true, true, true]);
        assert!(is_there(&under_way));
    }

    #[test]
    fn no_link_is_followed() {
        let place = place();
        let real = place.path().join("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, place.path().join("link")).unwrap();
        let wrong = |name: &str| Folder::make(&place.path().join(name)).unwrap_err().to_string();
        assert!(wrong("link").contains("symbolic link"));
        assert!(wrong("link/below").contains("symbolic link"));
        let folder = Folder::make(&real).unwrap();
        fs::write(place.path().join("secret"), "old").unwrap();
        symlink(place.path().join("secret"), real.join("env.sh")).unwrap();
        assert_eq!(folder.read("env.sh"), Err(Errno::ELOOP));
        folder.write("env.sh", b"new", 0o644).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "old");
        assert_eq!(folder.read("env.sh").unwrap(), b"new");
    }

    #[test]
    fn what_others_may_change_is_refused() {
        let place = place();
        let below = place.path().join("open/state");
        fs::create_dir_all(&below).unwrap();
        mode(below.parent().unwrap(), 0o777);
        assert_eq!(Folder::make(&below).unwrap_err(), Refused::Open);
        mode(below.parent().unwrap(), 0o1777);
        assert!(Folder::make(&below).is_ok());
        // The directory's own mode is corrected, but only for writing, and only if nothing else is
        // in it.
        mode(&below, 0o777);
        assert_eq!(Folder::open(&below, &[Uid::effective()]).unwrap_err(), Refused::Open);
        assert!(Folder::make(&below).is_ok());
        let now = || fs::metadata(&below).unwrap().mode() & 0o7777;
        assert_eq!(now(), 0o755);
        fs::write(below.join("other"), "").unwrap();
        mode(&below, 0o1777);
        assert_eq!((Folder::make(&below).unwrap_err(), now()), (Refused::Open, 0o1777));
        mode(&below, 0o700);
        assert!(Folder::make(&below).is_ok());
        assert_eq!(now(), 0o700);
        fs::remove_file(below.join("other")).unwrap();
        if Uid::effective().is_root() {
            chown(&below, Some(12345), None).unwrap();
            assert_eq!(Folder::make(&below).unwrap_err(), Refused::Foreign(12345));
            assert!(Folder::open(&below, &[Uid::from_raw(12345)]).is_ok());
        }
    }

    #[test]
    fn what_is_no_file_of_the_owner_is_not_read() {
        let place = place();
        let path = place.path().join("state");
        let folder = Folder::make(&path).unwrap();
        nix::unistd::mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(folder.read("fifo"), Err(Errno::EINVAL));
        assert_eq!(folder.read("absent"), Err(Errno::ENOENT));
        folder.write("open", b"1", 0o644).unwrap();
        mode(&path.join("open"), 0o666);
        assert_eq!(folder.read("open"), Err(Errno::EINVAL));
        for wrong in ["relative/state", "/tmp/../tmp/x"] {
            assert_eq!(Folder::make(Path::new(wrong)).unwrap_err(), Refused::Errno(Errno::EINVAL));
        }
    }
}
