//! Writes the state of this start.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::env_plugin::{DECISION_FILE, LIBRARY, LIBRARY_FILE};
use crate::facts::reader::describe;
use crate::facts::state::may_be_made;
use crate::state::find::is_of_another_container;
use crate::state::folder::{self, Folder};
use crate::state::{ENV_SH, FACTS, FILES, NCCL_CONF, PLAN, StateDir, mount};
use crate::sys::user;

/// The contents of the files.
#[derive(Debug, Default)]
pub(crate) struct StateFiles {
    pub env_sh: Vec<u8>,
    pub nccl_conf: Vec<u8>,
    pub plan: Vec<u8>,
    pub facts: Vec<u8>,
    /// The env plugin's decision; `None` if NCCL should not use the plugin.
    pub env_plugin: Option<Vec<u8>>,
    /// Whether the facts contain values from a file that is not world-readable.
    pub is_private: bool,
}

/// Where the files were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenFiles {
    pub folder: PathBuf,
    /// Whether only this container can write to the directory.
    pub is_of_container: bool,
    /// The shared object for NCCL, if it was written.
    pub env_plugin: Option<PathBuf>,
}

impl WrittenFiles {
    /// Returns whether every user of the container may take a configuration from here: only root of this container
    /// writes here, now and after the directory was removed.
    pub(crate) fn is_of_root_alone(&self) -> bool {
        self.is_of_container && user::effective().is_root() && !is_for_everybody(&self.folder)
    }
}

/// A directory that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedFolder {
    pub folder: PathBuf,
    pub why: String,
    /// Files that have the same names as rdma-init's files but that this start did not write.
    pub strange: Vec<&'static str>,
    pub origin: FilesOrigin,
}

/// Where the files that this start did not write seem to come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilesOrigin {
    /// From rdma-init in another container, or from an earlier start.
    OtherState,
    /// From an earlier start or from the image: they could not be replaced for a reason other than their
    /// owner.
    NotReplaced,
    /// From a process that this start does not trust: other users may write there, or the file is a mount.
    Others,
}

/// Why the files could not be written to a directory.
enum NotWritten {
    Folder(folder::Refused),
    /// In a directory that belongs to this user alone.
    File(Errno),
}

impl NotWritten {
    fn origin(&self) -> FilesOrigin {
        match self {
            NotWritten::Folder(refused) if refused.is_of_others() => FilesOrigin::Others,
            // A file is mounted there, from an unknown source.
            NotWritten::File(Errno::EBUSY) => FilesOrigin::Others,
            NotWritten::Folder(_) | NotWritten::File(_) => FilesOrigin::NotReplaced,
        }
    }
}

impl std::fmt::Display for NotWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            NotWritten::Folder(refused) => refused.fmt(f),
            NotWritten::File(errno) => f.write_str(&describe(*errno)),
        }
    }
}

/// Writes the files to the first directory that belongs to this user alone. Returns that directory, or `None`
/// if no state is wanted or no directory can be used, and the directories that could not be used. `standing`
/// is a directory whose state must stay: the function tries neither it nor the directories after it. `files`
/// gets the path of the shared object for NCCL, if the directory may contain it.
#[must_use]
pub(crate) fn write(
    place: &StateDir,
    standing: Option<&Path>,
    files: impl Fn(Option<&Path>) -> StateFiles,
) -> (Option<WrittenFiles>, Vec<RefusedFolder>) {
    let mut refused = Vec::new();
    if *place == StateDir::Nowhere {
        return (None, refused);
    }
    for folder in place.folders(user::effective()).take_while(|folder| Some(folder.as_path()) != standing) {
        let is_other_state = *place == StateDir::Default && is_of_another_container(&folder);
        let written = match is_other_state {
            true => Err(("another container keeps its state there".to_owned(), FilesOrigin::OtherState)),
            false => write_to(&folder, &files).map_err(|why| (why.to_string(), why.origin())),
        };
        match written {
            Ok(left) => return (Some(left), refused),
            Err((why, origin)) => {
                refused.push(RefusedFolder { strange: strange(&folder), folder, why, origin });
            }
        }
    }
    (None, refused)
}

fn write_to(path: &Path, files: impl Fn(Option<&Path>) -> StateFiles) -> Result<WrittenFiles, NotWritten> {
    let folder = Folder::make(path).map_err(NotWritten::Folder)?;
    let is_of_container = folder.is_of_root();
    let library = path.join(LIBRARY_FILE);
    let may_hold_code = is_of_container && !is_for_everybody(path);
    let files = files(may_hold_code.then_some(library.as_path()));
    let written = fill(&folder, &files);
    if written.is_err() {
        // A partial or older state would contain other values than the command gets.
        FILES.iter().for_each(|name| folder.remove(name));
    }
    written.map_err(NotWritten::File)?;
    let env_plugin = files.env_plugin.is_some().then_some(library);
    Ok(WrittenFiles { folder: path.to_owned(), is_of_container, env_plugin })
}

/// Returns whether a start can probably put code for the job's processes into its state. Only the first of
/// the directories may contain code.
pub(crate) fn may_hold_code(place: &StateDir) -> bool {
    let Some(folder) = place.folders(user::effective()).next() else { return false };
    let there = folder.ancestors().find(|part| part.exists());
    !is_for_everybody(&folder) && may_be_made(&folder) && there.is_some_and(mount::is_of_root)
}

/// Returns whether a directory is in a place where every user may write, and where the containers of a Pod
/// may share files. No process loads code from there.
fn is_for_everybody(path: &Path) -> bool {
    ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|shared| path.starts_with(shared))
}

/// The files that a process may open at any time. A process opens the others only if the plan exists.
const OPENED_BY_PATH: [&str; 3] = [ENV_SH, NCCL_CONF, PLAN];

fn fill(folder: &Folder, files: &StateFiles) -> Result<(), Errno> {
    // The plan is written last, because readers look for it: if it exists, all other files do, too.
    let mode_of_facts = if files.is_private { 0o600 } else { 0o644 };
    let of_plugin = match &files.env_plugin {
        Some(decision) => vec![(LIBRARY_FILE, LIBRARY), (DECISION_FILE, decision.as_slice())],
        None if folder.is_new() => Vec::new(),
        None => {
            [LIBRARY_FILE, DECISION_FILE].iter().for_each(|name| folder.remove(name));
            Vec::new()
        }
    };
    let of_plugin = of_plugin.into_iter().map(|(name, bytes)| (name, bytes, 0o644));
    for (name, bytes, mode) in of_plugin.chain([
        (ENV_SH, files.env_sh.as_slice(), 0o644),
        (NCCL_CONF, files.nccl_conf.as_slice(), 0o644),
        (FACTS, files.facts.as_slice(), mode_of_facts),
        (PLAN, files.plan.as_slice(), 0o644),
    ]) {
        // A file with the same bytes already has the right mode, because the data that makes the facts
        // private is in them. Most starts of a container leave the previous start's files unchanged, because
        // replacing a file may mean waiting for the disk.
        if folder.is_new() && !OPENED_BY_PATH.contains(&name) {
            folder.write_unread(name, bytes, mode)?;
        } else if folder.is_new() || folder.read(name).as_deref() != Ok(bytes) {
            folder.write(name, bytes, mode)?;
        }
    }
    Ok(())
}

/// Returns the files that programs other than rdma-init read and would mistake for this start's.
fn strange(folder: &Path) -> Vec<&'static str> {
    [ENV_SH, NCCL_CONF].into_iter().filter(|name| folder.join(name).symlink_metadata().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn fill_with_plugin(path: &Path) {
        let files = StateFiles { env_plugin: Some(b"decision".to_vec()), ..StateFiles::default() };
        fill(&Folder::make(path).unwrap(), &files).unwrap();
    }

    #[test]
    fn code_is_left_on_the_root_mount_alone() {
        let at = |path: &str| may_hold_code(&StateDir::At(path.into()));
        assert!(!may_hold_code(&StateDir::Nowhere));
        for path in ["/tmp/state", "/var/tmp/state", "/dev/shm/state", "/proc/state", "/proc/self/state"] {
            assert!(!at(path), "{path}");
        }
        let place = tempfile::tempdir_in("/var").ok().filter(|place| mount::is_of_root(place.path()));
        if let Some(place) = place {
            assert!(at(place.path().join("a/b").to_str().unwrap()));
        }
    }

    /// A process that has mapped a file is killed (SIGBUS) if the file becomes shorter.
    #[test]
    fn a_library_is_replaced_as_a_whole_and_never_changed() {
        let place = place();
        let path = place.path().join("state");
        let library = path.join(LIBRARY_FILE);
        fill_with_plugin(&path);
        assert_eq!(fs::read(&library).unwrap(), LIBRARY);
        let first = fs::metadata(&library).unwrap().ino();
        fill_with_plugin(&path);
        assert_eq!(fs::metadata(&library).unwrap().ino(), first, "the same bytes are not written again");

        let mut other = LIBRARY.to_vec();
        other[..4].copy_from_slice(b"none");
        for there in [&LIBRARY[..LIBRARY.len() / 2], &LIBRARY[..0], &other] {
            fs::remove_file(&library).unwrap();
            fs::write(&library, there).unwrap();
            let mut open = File::open(&library).unwrap();
            fill_with_plugin(&path);
            assert_eq!(fs::read(&library).unwrap(), LIBRARY);
            let mut still = Vec::new();
            open.read_to_end(&mut still).unwrap();
            assert!(still == there, "the file that a process may have open was changed");
        }
        let target = place.path().join("target");
        fs::write(&target, "of others").unwrap();
        fs::remove_file(&library).unwrap();
        symlink(&target, &library).unwrap();
        fill_with_plugin(&path);
        assert!(library.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(&library).unwrap(), LIBRARY);
        assert_eq!(fs::read(&target).unwrap(), b"of others");
        fs::set_permissions(&library, PermissionsExt::from_mode(0o666)).unwrap();
        fill_with_plugin(&path);
        assert_eq!(library.metadata().unwrap().mode() & 0o7777, 0o644);
    }

    #[test]
    fn a_reader_never_sees_half_a_library() {
        let place = place();
        let path = place.path().join("state");
        let library = path.join(LIBRARY_FILE);
        fill_with_plugin(&path);
        let half = &LIBRARY[..LIBRARY.len() / 2];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let folder = Folder::make(&path).unwrap();
                for round in 0..200 {
                    folder.write(LIBRARY_FILE, if round % 2 == 0 { half } else { LIBRARY }, 0o644).unwrap();
                }
            });
            while !writer.is_finished() {
                let length = fs::read(&library).unwrap().len();
                assert!([half.len(), LIBRARY.len()].contains(&length), "{length}");
            }
            writer.join().unwrap();
        });
    }
}
