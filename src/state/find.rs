//! Finding what this container's start has left, without being told where.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::Uid;

use super::folder::{Folder, Refused};
use super::identity::Identity;
use super::run::{self, Run};
use super::{PLAN, Place};
use crate::facts::reader::describe;
use crate::facts::settings::is_variable_name;

/// The state of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub folder: PathBuf,
    pub run: Run,
}

/// A folder that has none, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Without {
    pub folder: PathBuf,
    pub why: String,
}

/// The state of this start of this container. What another user than root or our own has
/// left counts only for variables that `is_known`.
///
/// # Errors
/// The folders that were there and would not do; none where nothing is there.
pub fn find(place: &Place, is_known: impl Fn(&str) -> bool) -> Result<Found, Vec<Without>> {
    let own = Uid::effective();
    let mut users = vec![Uid::from_raw(0), own];
    users.extend(owner_of_init());
    let mut folders: Vec<PathBuf> = users.iter().flat_map(|user| place.folders(*user)).collect();
    let mut seen = Vec::new();
    folders.retain(|folder| {
        !seen.contains(folder) && {
            seen.push(folder.clone());
            true
        }
    });
    let identity = Identity::own();
    let mut without = Vec::new();
    for path in folders {
        match of_folder(&path, &users, &identity) {
            Ok((mut run, owner)) => {
                let is_trusted = owner.is_root() || owner == own;
                for variables in [&mut run.filled, &mut run.inherited] {
                    variables.retain(|name, value| {
                        let is_harmless = is_known(name) && !may_name_a_file(name, value);
                        is_variable_name(name) && !value.contains('\0') && (is_trusted || is_harmless)
                    });
                }
                return Ok(Found { folder: path, run });
            }
            Err(None) => {}
            Err(Some(why)) => without.push(Without { folder: path, why }),
        }
    }
    Err(without)
}

/// Whether NCCL could be led to a file: a plugin, which it would load.
fn may_name_a_file(name: &str, value: &str) -> bool {
    value.contains('/') && name != "NCCL_IB_ADDR_RANGE"
}

/// Whether a folder has the state of another container, which may still want it: what is on
/// the container's own root file system is nobody else's.
pub fn is_of_another_container(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|status| status.dev()).ok();
    let own = Identity::own();
    let users = [Uid::from_raw(0), Uid::effective()];
    let text = Folder::open(path, &users).map_err(drop).and_then(|folder| folder.read(PLAN).map_err(drop));
    let run = text.and_then(|text| run::parse(&text).map_err(drop));
    run.is_ok_and(|run| run.identity.boot == own.boot && !own.is(&run.identity))
        && device(path) != device(Path::new("/"))
}

/// `None` where there is nothing at all.
fn of_folder(path: &Path, users: &[Uid], identity: &Identity) -> Result<(Run, Uid), Option<String>> {
    let folder = Folder::open(path, users).map_err(|refused| match refused {
        Refused::Errno(Errno::ENOENT) => None,
        other => Some(other.to_string()),
    })?;
    let text = folder.read(PLAN).map_err(|errno| match errno {
        Errno::ENOENT => None,
        errno => Some(format!("{PLAN}: {}", describe(errno))),
    })?;
    let run = run::parse(&text).map_err(|why| Some(format!("{PLAN}: {why}")))?;
    if !identity.is(&run.identity) {
        return Err(Some("it is of an earlier start, or of another container".to_owned()));
    }
    if !run.by_init && !run.identity.is_container() && !run.is_running() {
        return Err(Some("the command that it was left for has ended".to_owned()));
    }
    Ok((run, folder.owner()))
}

/// Who started the container, where that shows.
fn owner_of_init() -> Option<Uid> {
    fs::metadata("/proc/1").ok().map(|status| Uid::from_raw(status.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plan::SCHEMA;

    fn leave(folder: &Path, run: &Run) {
        let text = serde_json::json!({"schema": SCHEMA, "run": run}).to_string();
        Folder::make(folder).unwrap().write(PLAN, text.as_bytes(), 0o644).unwrap();
    }

    #[test]
    fn nobody_else_leads_nccl_to_a_file() {
        assert!(
            may_name_a_file("NCCL_NET_PLUGIN", "/tmp/x.so") && may_name_a_file("NCCL_NET_PLUGIN", "./x.so")
        );
        assert!(
            !may_name_a_file("NCCL_IB_ADDR_RANGE", "25.11.0.0/16")
                && !may_name_a_file("NCCL_NET_PLUGIN", "none")
        );
    }

    #[test]
    fn the_state_of_this_start_is_found_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        let found = || find(&Place::At(folder.clone()), |_| false);
        let none = |wanted: &str| {
            let without = found().unwrap_err();
            without.iter().find(|without| without.folder == folder).is_some_and(|w| w.why.contains(wanted))
        };
        assert!(found().unwrap_err().iter().all(|without| without.folder != folder));
        let filled = [("NCCL_IB_HCA", "=mlx5_1"), ("no name", "1"), ("LD_PRELOAD", "x")];
        let filled = filled.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let run = Run { identity: Identity::own(), by_init: true, filled, ..Run::default() };
        leave(&folder, &run);
        let names: Vec<String> = found().unwrap().run.filled.into_keys().collect();
        assert_eq!(names, ["LD_PRELOAD", "NCCL_IB_HCA"]);
        leave(&folder, &Run { identity: Identity::default(), ..run.clone() });
        assert!(none("an earlier start"));
        leave(&folder, &Run { by_init: false, pid: i32::MAX, ..run.clone() });
        assert!(Identity::own().is_container() || none("has ended"));
        fs::write(folder.join(PLAN), "{").unwrap();
        assert!(none("it is no plan"));
        if Uid::effective().is_root() {
            // Nobody here is that user.
            leave(&folder, &run);
            std::os::unix::fs::chown(&folder, Some(12345), None).unwrap();
            assert!(none("another user (uid 12345)"));
        }
    }
}
