//! Copies this program into a directory that another container shares, for an image that cannot be rebuilt.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::state::folder::Folder;
use crate::sys::user;

/// The name of the copy.
const NAME: &str = "rdma-init";
const MODE: u32 = 0o755;

/// Under this path, the kernel provides the file that this process was started from, even if it was deleted.
const OWN: &str = "/proc/self/exe";

/// A copy that is in the requested directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub path: PathBuf,
    /// Whether an identical copy already existed.
    pub was_there: bool,
    /// Whether the file system is mounted so that no program on it can be executed (`noexec`).
    pub noexec: bool,
}

/// Puts a copy of the running program into a directory. A process that starts the program there gets the
/// complete old copy or the complete new one. Replaces a symbolic link of that name and never follows it.
///
/// # Errors
/// Returns a sentence that says why the copy cannot be written.
pub(crate) fn install(folder: &Path) -> Result<Installed, String> {
    let program = fs::read(OWN)
        .map_err(|error| format!("cannot read the running program, {OWN}: {error}; is /proc mounted?"))?;
    put(folder, &program)
}

fn put(path: &Path, program: &[u8]) -> Result<Installed, String> {
    let shown = path.display();
    let folder = Folder::shared(path).map_err(|errno| match errno {
        Errno::ENOENT => {
            format!("there is no directory {shown}: create it, or mount a volume there")
        }
        Errno::ENOTDIR => format!("{shown} is not a directory"),
        errno => format!("cannot open the directory {shown}: {}", describe(errno)),
    })?;
    let target = path.join(NAME);
    let is_whole = |(bytes, mode): (Vec<u8>, u32)| mode == MODE && bytes == program;
    // Reads one byte more, so that a longer file is recognized as different.
    let longest = program.len() as u64 + 1;
    let was_there = folder.read_of(NAME, &[Uid::from_raw(0), user::effective()], longest).is_ok_and(is_whole);
    if !was_there {
        folder.write_through(NAME, program, MODE).map_err(|errno| refused(&target, errno, program.len()))?;
    }
    let noexec = statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC));
    Ok(Installed { path: target, was_there, noexec })
}

fn refused(target: &Path, errno: Errno, bytes: usize) -> String {
    let why = match errno {
        Errno::EISDIR | Errno::EEXIST | Errno::ENOTEMPTY => "a directory has that name".to_owned(),
        Errno::EACCES | Errno::EPERM => {
            format!("the user {} may not write to the directory ({errno:?})", user::effective())
        }
        Errno::EROFS => format!("the file system is read-only ({errno:?})"),
        Errno::ENOSPC | Errno::EDQUOT => {
            format!("the file system has no space for its {bytes} bytes ({errno:?})")
        }
        errno => describe(errno),
    };
    format!("cannot write {}: {why}", target.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_same_is_left_alone_and_all_else_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NAME);
        let number = || fs::metadata(&path).unwrap().ino();
        let is_there = |program: &[u8]| {
            let Installed { was_there, .. } = put(place.path(), program).unwrap();
            assert_eq!(fs::read(&path).unwrap(), program);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
            assert_eq!(names(place.path()), [NAME]);
            was_there
        };
        assert!(!is_there(b"one"));
        let first = number();
        assert!(is_there(b"one"));
        assert_eq!(number(), first);
        // A process that runs the old copy continues, because the new copy is a new file.
        assert!(!is_there(b"two"));
        assert_ne!(number(), first);
        fs::write(&path, b"two and more").unwrap();
        assert!(!is_there(b"two"));
        for mode in [0o644, 0o777, 0o4755] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert!(!is_there(b"two"), "{mode:o}");
        }
        if Uid::effective().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            assert!(!is_there(b"two"));
        }
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("other");
        let folder = place.path().join("folder");
        fs::create_dir(&folder).unwrap();
        for text in ["old", "program"] {
            fs::write(&other, text).unwrap();
            symlink(&other, folder.join(NAME)).unwrap();
            assert!(!put(&folder, b"program").unwrap().was_there);
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
            assert!(fs::symlink_metadata(folder.join(NAME)).unwrap().is_file());
            fs::remove_file(folder.join(NAME)).unwrap();
        }
        // The directory itself may be a link, because the user chose it.
        symlink(&folder, place.path().join("link")).unwrap();
        assert!(put(&place.path().join("link"), b"program").is_ok());
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"program");
    }

    #[test]
    fn the_error_says_what_prevents_the_installation() {
        let place = tempfile::tempdir().unwrap();
        let error = |path: &Path| put(path, b"program").unwrap_err();
        assert!(error(&place.path().join("no")).contains("no: create it, or mount a volume there"));
        fs::write(place.path().join("file"), "").unwrap();
        assert!(error(&place.path().join("file")).ends_with("file is not a directory"));
        fs::create_dir(place.path().join(NAME)).unwrap();
        assert!(error(place.path()).ends_with("rdma-init: a directory has that name"));
        let mut left = names(place.path());
        left.sort_unstable();
        assert_eq!(left, ["file", NAME]);
        assert!(error(Path::new("/proc")).contains("cannot write /proc/rdma-init"));
    }
}
