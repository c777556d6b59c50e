//! Finds the state that this container's start saved, without knowing its path and without trusting another
//! start's state.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, Uid, access};

use super::folder::{Folder, Refused};
use super::harmless::is_harmless;
use super::mount;
use super::pid1::{self, Answer};
use super::preparation;
use super::run::{self, Run};
use super::{PLAN, StateDir};
use crate::facts::environment::is_variable_name;
use crate::facts::identity::Identity;
use crate::facts::reader::describe;
use crate::sys::user;

/// The state of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The directory of its files; `None` if only PID 1 has the state.
    pub folder: Option<PathBuf>,
    pub run: Run,
    /// Why the state may belong to another start, so that only its harmless variables were used.
    pub doubt: Option<TrustIssue>,
    /// The variables that were not used.
    pub left_out: Vec<String>,
}

/// Why a state is not fully trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrustIssue {
    /// The state is in this directory, which is not on the container's own root mount.
    Shared(PathBuf),
    /// The state belongs to this user, who is neither root nor the user of this process.
    Foreign(Uid),
}

impl fmt::Display for TrustIssue {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            TrustIssue::Shared(folder) => {
                write!(f, "other containers may be able to write to {}", folder.display())
            }
            TrustIssue::Foreign(user) => write!(f, "it is the state of another user (uid {user})"),
        }
    }
}

impl Found {
    /// Returns which variables were lost and how to get them; `None` if none was lost.
    pub(crate) fn loss(&self) -> Option<String> {
        let doubt = self.doubt.as_ref().filter(|_| !self.left_out.is_empty())?;
        let names = shortened_list(&self.left_out);
        let fix = match doubt {
            TrustIssue::Shared(_) if preparation::is_by_us() => {
                format!("{OWN_PLACE}; or enter as the user and group of PID 1")
            }
            TrustIssue::Shared(_) => OWN_PLACE.to_owned(),
            TrustIssue::Foreign(user) => format!("Enter as uid {user}"),
        };
        Some(format!(
            "some variables that the container was started with are omitted: {names}. Its saved state may be from another user or container ({doubt}), so only variables that name no file, library or code are taken from it. {fix}."
        ))
    }

    fn whole(folder: Option<PathBuf>, mut run: Run) -> Found {
        for variables in [&mut run.filled, &mut run.inherited] {
            variables.retain(|name, value| is_variable_name(name) && !value.contains('\0'));
        }
        Found { folder, run, doubt: None, left_out: Vec::new() }
    }

    fn doubtful(folder: Option<PathBuf>, mut run: Run, doubt: TrustIssue) -> Found {
        let mut left_out = Vec::new();
        for variables in [&mut run.filled, &mut run.inherited] {
            variables.retain(|name, value| {
                let is_taken = is_harmless(name, value);
                // Text that is not a variable name may contain anything, so the message does not repeat it.
                if !is_taken && is_variable_name(name) {
                    left_out.push(name.clone());
                }
                is_taken
            });
        }
        Found { folder, run, doubt: Some(doubt), left_out }
    }
}

/// The most variables that a message names.
const NAMED: usize = 16;

fn shortened_list(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How to give a container a place that no other container can write to.
pub(crate) const OWN_PLACE: &str = "Give the container a root file system that it may write to, with nothing mounted at /run (at /tmp, if it does not run as root)";

/// A directory in which no state was found, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Without {
    pub folder: PathBuf,
    pub why: String,
}

/// A state that claims to belong to this start.
struct Claim {
    folder: PathBuf,
    run: Run,
    /// The user who can have written it: its owner, or another one who can change a directory on the path.
    owner: Uid,
    /// Whether only this container can have written the state.
    is_of_container: bool,
}

/// Returns the state of this container's start. The state is fully trusted if root or this process's own user
/// wrote it in this container, or if PID 1 confirms it. From any other state, only the harmless variables are
/// used. Nothing is used while the start is under way, or if PID 1 answers that it has no state.
///
/// # Errors
/// Returns the directories that exist but whose state is unusable; an empty list if none exists.
pub(crate) fn find(place: &StateDir) -> Result<Found, Vec<Without>> {
    let own = user::effective();
    let is_trusted = |owner: Uid| owner.is_root() || owner == own;
    let mut users = vec![own, Uid::from_raw(0)];
    users.extend(owner_of_init());
    let (mut claims, mut without) = claims(place, &users);
    let proven = claims.iter().position(|claim| claim.is_of_container && is_trusted(claim.owner));
    if let Some(proven) = proven {
        let claim = claims.swap_remove(proven);
        return Ok(Found::whole(Some(claim.folder), claim.run));
    }
    let why_not = match pid1::ask() {
        _ if *place == StateDir::Nowhere => None,
        Answer::Left(run, owner) => {
            let folder = claims.into_iter().find(|claim| claim.run == *run).map(|claim| claim.folder);
            return Ok(match is_trusted(owner) {
                true => Found::whole(folder, *run),
                false => Found::doubtful(folder, *run, TrustIssue::Foreign(owner)),
            });
        }
        Answer::Nothing => Some("PID 1 does not confirm it"),
        Answer::Silent => preparation::is_under_way()
            .is_some_and(|is_under_way| is_under_way)
            .then_some("another user may have written it, and the container has not finished starting"),
    };
    if let Some(why) = why_not {
        without.extend(claims.into_iter().map(|claim| Without { folder: claim.folder, why: why.to_owned() }));
        return Err(without);
    }
    // A state that only this container can have written takes precedence.
    let best = claims.iter().position(|claim| claim.is_of_container).unwrap_or_default();
    if best >= claims.len() {
        return Err(without);
    }
    let claim = claims.swap_remove(best);
    let doubt = match claim.is_of_container {
        true => TrustIssue::Foreign(claim.owner),
        false => TrustIssue::Shared(claim.folder.clone()),
    };
    Ok(Found::doubtful(Some(claim.folder), claim.run, doubt))
}

/// Returns the states in these users' directories, the best first.
fn claims(place: &StateDir, users: &[Uid]) -> (Vec<Claim>, Vec<Without>) {
    let folders = users.iter().flat_map(|user| place.folders(*user));
    let identity = Identity::own();
    let (mut seen, mut claims, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for path in folders {
        if seen.contains(&path) {
            continue;
        }
        match of_folder(&path, users, identity) {
            Ok(claim) => claims.push(claim),
            Err(None) => {}
            Err(Some(why)) => without.push(Without { folder: path.clone(), why }),
        }
        seen.push(path);
    }
    (claims, without)
}

/// Returns whether a directory contains another container's state, which that container may still need. A
/// directory on the container's own root mount belongs to no other container.
pub(crate) fn is_of_another_container(path: &Path) -> bool {
    // Most starts find no directory, and opening the path takes several system calls.
    if access(path, AccessFlags::F_OK) == Err(Errno::ENOENT) {
        return false;
    }
    let users = [Uid::from_raw(0), user::effective()];
    let text = Folder::open(path, &users).map_err(drop).and_then(|folder| folder.read(PLAN).map_err(drop));
    let Ok(run) = text.and_then(|text| run::parse(&text).map_err(drop)) else { return false };
    let own = Identity::own();
    run.identity.boot == own.boot && !own.is(&run.identity) && !mount::is_of_root(path)
}

/// Returns the state in a directory. The error is `None` if the directory does not exist.
fn of_folder(path: &Path, users: &[Uid], identity: &Identity) -> Result<Claim, Option<String>> {
    let refused = |refused| match refused {
        Refused::Errno(Errno::ENOENT) => None,
        other => Some(other.to_string()),
    };
    // Another user who can change a directory on the path decides what is found at its end.
    let trusted = [user::effective(), Uid::from_raw(0)];
    let (folder, of_other) = match Folder::open(path, &trusted) {
        Ok(folder) => (folder, None),
        // The walk of another user would end at the same place.
        Err(Refused::Errno(Errno::ENOENT)) => return Err(None),
        Err(_) => {
            let folder = Folder::open(path, users).map_err(refused)?;
            (folder, users.iter().find(|user| !trusted.contains(user)).copied())
        }
    };
    let text = folder.read_in_place(PLAN).map_err(|errno| match errno {
        Errno::ENOENT => None,
        errno => Some(format!("{PLAN}: {}", describe(errno))),
    })?;
    let run = run::parse(&text).map_err(|why| Some(format!("{PLAN}: {why}")))?;
    // A process in this container may have its own mounts. An earlier start with the same PID namespace and
    // directory also had other mounts, but its command has ended.
    let is_beside = || identity.has_other_mounts(&run.identity) && folder.is_of_root() && run.is_running();
    if !identity.is(&run.identity) && !is_beside() {
        return Err(Some("it belongs to an earlier start, or to another container".to_owned()));
    }
    if !run.by_init && !run.identity.is_container() && !run.is_running() {
        return Err(Some("the command that it was saved for has ended".to_owned()));
    }
    let owner = of_other.unwrap_or(folder.owner());
    Ok(Claim { folder: path.to_owned(), run, owner, is_of_container: folder.is_of_root() })
}

/// Returns the user who started the container, if /proc shows it.
fn owner_of_init() -> Option<Uid> {
    fs::metadata("/proc/1").ok().map(|status| Uid::from_raw(status.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SCHEMA;

    fn leave(folder: &Path, run: &Run) {
        let text = serde_json::json!({"schema": SCHEMA, "run": run}).to_string();
        Folder::make(folder).unwrap().write(PLAN, text.as_bytes(), 0o644).unwrap();
    }

    #[test]
    fn the_state_of_this_start_is_found_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        let found = || find(&StateDir::At(folder.clone()));
        let none = |wanted: &str| {
            let without = found().unwrap_err();
            without.iter().find(|without| without.folder == folder).is_some_and(|w| w.why.contains(wanted))
        };
        assert!(found().unwrap_err().iter().all(|without| without.folder != folder));
        let filled = [("NCCL_IB_HCA", "=mlx5_1"), ("no name", "1"), ("LD_PRELOAD", "x")];
        let filled = filled.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let run = Run { identity: Identity::own().clone(), by_init: true, filled, ..Run::default() };
        leave(&folder, &run);
        let names: Vec<String> = found().unwrap().run.filled.into_keys().collect();
        // If temporary files have their own mount, other containers may have it, too.
        let is_own = mount::is_of_root(place.path());
        let wanted: &[&str] = if is_own { &["LD_PRELOAD", "NCCL_IB_HCA"] } else { &["NCCL_IB_HCA"] };
        assert_eq!(names, wanted);
        // This is the same start, seen from another mount namespace.
        let identity = Identity { mounts: "mnt:[1]".to_owned(), ..run.identity.clone() };
        let unshared = Run { identity, pid: std::process::id().cast_signed(), ..run.clone() };
        leave(&folder, &unshared);
        assert_eq!(found().is_ok(), is_own);
        leave(&folder, &Run { pid: i32::MAX, ..unshared });
        assert!(none("an earlier start"));
        leave(&folder, &Run { identity: Identity::default(), ..run.clone() });
        assert!(none("an earlier start"));
        leave(&folder, &Run { by_init: false, pid: i32::MAX, ..run.clone() });
        assert!(Identity::own().is_container() || none("has ended"));
        fs::write(folder.join(PLAN), "{").unwrap();
        assert!(none("it is not a plan"));
        if Uid::effective().is_root() {
            // No process here has that user.
            leave(&folder, &run);
            std::os::unix::fs::chown(&folder, Some(12345), None).unwrap();
            assert!(none("another user (uid 12345)"));
        }
    }
}
