//! What a start is doing while it is under way, for processes that ask meanwhile. The sentence is for people;
//! the file affects only how long `exec` waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::find::is_of_another_container;
use super::folder::Folder;
use super::{PHASE, StateDir};
use crate::facts::identity::{Identity, age, started};
use crate::facts::reader::of_kernel;
use crate::json;
use crate::sys::user;
use crate::text::{shortened, visible};

#[derive(Serialize, Deserialize)]
struct Phase {
    identity: Identity,
    /// The process that prepares: its ID in its own namespace, and its start time.
    pid: i32,
    pid_started: Option<u64>,
    /// That process's program, as the kernel shows it: without an init, the process becomes the command and
    /// keeps its ID.
    #[serde(default)]
    program: Option<String>,
    text: String,
    /// In seconds: the longest time that the whole start may take.
    #[serde(default)]
    longest: u64,
}

/// What a start is doing, and how long it may take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub text: String,
    /// How long the start may take, and how long it has taken so far.
    pub longest: Duration,
    pub age: Duration,
}

impl Phase {
    fn of(pid: i32, text: String, longest: Duration) -> Phase {
        Phase {
            identity: Identity::own().clone(),
            pid,
            pid_started: started(pid),
            program: program(pid),
            text,
            longest: longest.as_secs(),
        }
    }

    fn read(folder: &Folder) -> Option<Phase> {
        json::read(&folder.read_in_place(PHASE).ok()?).ok()
    }

    /// Returns whether this phase belongs to this container and its process is still preparing.
    fn is_under_way(&self) -> bool {
        Identity::own().is(&self.identity)
            && self.pid_started.is_some()
            && self.pid_started == started(self.pid)
            && self.program == program(self.pid)
    }

    fn is_of(&self, process: i32) -> bool {
        self.pid == process && self.is_under_way()
    }
}

fn program(pid: i32) -> Option<String> {
    of_kernel(format!("/proc/{pid}/comm"))
}

/// Writes the sentence to the first directory that this user can use for its state. If there is none, no
/// process finds it. An earlier start that is still under way keeps its own sentence there. `process` is the one that
/// prepares, and `longest` is how long the start may take.
pub(crate) fn leave(place: &StateDir, process: i32, text: &str, longest: Duration) {
    if *place == StateDir::Nowhere {
        return;
    }
    let document = json::line(&Phase::of(process, visible(&shortened(text)), longest));
    let is_free = |folder: &PathBuf| *place != StateDir::Default || !is_of_another_container(folder);
    let mut folders = place.folders(user::effective()).filter(is_free);
    folders.find_map(|folder| write(&folder, process, &document));
}

/// Writes the document; returns `None` if the directory is unusable.
fn write(folder: &Path, process: i32, document: &[u8]) -> Option<()> {
    let folder = Folder::make(folder).ok()?;
    let there = if folder.is_new() { None } else { Phase::read(&folder) };
    match there {
        Some(there) if there.is_under_way() && !there.is_of(process) => Some(()),
        _ => folder.write(PHASE, document, 0o644).ok(),
    }
}

/// Removes the sentence of the process that prepares, once its start has progressed further.
pub(crate) fn remove(place: &StateDir, process: i32) {
    let user = user::effective();
    for folder in place.folders(user).filter_map(|folder| Folder::open(&folder, &[user]).ok()) {
        if Phase::read(&folder).is_some_and(|phase| phase.is_of(process)) {
            folder.remove(PHASE);
        }
    }
}

/// Returns what this container's start is doing; `None` if no start recorded that or it has ended.
pub(crate) fn find(place: &StateDir) -> Option<At> {
    let users = [user::effective(), Uid::from_raw(0)];
    let folders = users.iter().flat_map(|user| place.folders(*user));
    let phases = folders.filter_map(|folder| Phase::read(&Folder::open(&folder, &users).ok()?));
    let under_way = phases.into_iter().find(Phase::is_under_way)?;
    Some(At {
        text: visible(&shortened(&under_way.text)),
        longest: Duration::from_secs(under_way.longest),
        age: Duration::from_secs(under_way.pid_started.and_then(age).unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_process() -> i32 {
        std::process::id().cast_signed()
    }

    fn write_as(path: &Path, phase: &Phase) {
        Folder::make(path).unwrap().write(PHASE, &json::line(phase), 0o644).unwrap();
    }

    #[test]
    fn the_last_phase_of_a_start_is_found_until_it_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let place = StateDir::At(place.path().join("state"));
        assert_eq!(find(&place), None);
        leave(&place, own_process(), "preflight: 1 of 2 nodes have come", Duration::ZERO);
        leave(&place, own_process(), "preflight: 2 of 2 nodes\x1b[2J have come", Duration::MAX);
        let At { text, longest, age } = find(&place).unwrap();
        assert!(text.starts_with("preflight: 2 of 2 nodes") && !text.contains('\x1b'), "{text}");
        assert_eq!(longest, Duration::from_secs(u64::MAX));
        assert!(age < Duration::from_secs(3600), "{age:?}");
        remove(&place, own_process());
        assert_eq!(find(&place), None);
        leave(&StateDir::Nowhere, own_process(), "lost", Duration::ZERO);
        assert_eq!(find(&StateDir::Nowhere), None);
    }

    #[test]
    fn the_phase_of_a_process_that_has_ended_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let place = StateDir::At(path.clone());
        let own = || Phase::of(own_process(), "old".to_owned(), Duration::ZERO);
        for phase in [
            Phase { pid_started: Some(1), ..own() },
            Phase { pid_started: None, pid: i32::MAX, program: None, ..own() },
            Phase { identity: Identity::default(), ..own() },
            // The process still exists, but has become the command.
            Phase { program: Some("another\n".to_owned()), ..own() },
        ] {
            write_as(&path, &phase);
            assert_eq!(find(&place), None);
            // A new start can write its own sentence.
            leave(&place, own_process(), "new", Duration::ZERO);
            assert_eq!(find(&place).unwrap().text, "new");
        }
    }

    #[test]
    fn of_two_starts_the_first_keeps_its_phase() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let place = StateDir::At(path.clone());
        // The parent process lives at least as long as this one.
        let pid = nix::unistd::getppid().as_raw();
        let phase = Phase::of(pid, "first".to_owned(), Duration::ZERO);
        write_as(&path, &phase);
        leave(&place, own_process(), "second", Duration::ZERO);
        assert_eq!(find(&place).unwrap().text, "first");
        remove(&place, own_process());
        assert_eq!(find(&place).unwrap().text, "first");
    }
}
