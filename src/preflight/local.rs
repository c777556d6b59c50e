//! Several tasks on one node: the first one takes part, and the others wait for its verdict.
//!
//! The two meet at a FIFO and a file in a folder that only this user can write to. The first task
//! holds the FIFO open while it is at work, and the kernel closes it however that task ends, so
//! that nobody waits for longer. What an older start has left there is told from this one by the
//! session: a launcher or container that starts again has one that began later.
//!
//! Several preflights may come one after the other in one session. A verdict that was told before a
//! task began is that of an earlier one, unless what started the task was there before and the task
//! has only come late; and no task hears one verdict twice.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getppid, getsid, getuid, mkfifo};
use serde::{Deserialize, Serialize};

use super::message::Told;
use crate::facts::identity;
use crate::json;
use crate::wire::connection::timeout;

/// Where tasks of one node find each other, also from containers of their own.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// In bytes; a verdict has some hundred.
const LONGEST: u64 = 1024 * 1024;

/// What is left of older jobs is removed.
const OLD: Duration = Duration::from_secs(24 * 3600);

pub struct Meeting {
    fifo: PathBuf,
    verdict: PathBuf,
    /// Where this task leaves which verdict it has heard.
    heard: PathBuf,
    task: Began,
}

/// When a task began, and when the process began that started it, in ticks of the machine's clock;
/// `None` where the kernel hides it.
#[derive(Debug, Clone, Copy)]
struct Began {
    task: Option<u64>,
    parent: Option<u64>,
}

impl Began {
    fn own() -> Began {
        let [task, parent] = [Pid::this(), getppid()].map(|pid| identity::started(pid.as_raw()));
        Began { task, parent }
    }
}

/// What the first task leaves for the others.
#[derive(Serialize, Deserialize)]
struct Left {
    /// In ticks of the machine's clock.
    at: u64,
    told: Result<Told, String>,
}

/// The first task's end. Whoever waits is woken up when it goes.
pub struct Doer<'a> {
    meeting: &'a Meeting,
    _open: File,
}

impl Meeting {
    /// The tasks of one node of one job: they are of one session, unless the launcher made them
    /// ones of their own.
    ///
    /// # Errors
    /// A sentence: there is no folder for it.
    pub fn of(job: Option<&str>, node: u32, local_rank: u32) -> Result<Meeting, String> {
        let mut last = None;
        for place in PLACES {
            match Meeting::at(Path::new(place), job, [node, local_rank], &session(), Began::own()) {
                Ok(meeting) => return Ok(meeting),
                Err(error) => last = Some(format!("{place}: {error}")),
            }
        }
        Err(format!("the tasks of this node cannot meet: {}.", last.unwrap_or_default()))
    }

    fn at(
        place: &Path,
        job: Option<&str>,
        [node, local_rank]: [u32; 2],
        session: &str,
        task: Began,
    ) -> io::Result<Meeting> {
        let folder = place.join(format!("rdma-init-preflight-{}", getuid()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(&folder)?;
        if !found.is_dir() || found.uid() != getuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("{} is not a folder of this user alone", folder.display())));
        }
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '.';
        let job: String = job.unwrap_or("job").chars().filter(is_plain).take(64).collect();
        let name = format!("{job}-{session}-{node}");
        Ok(Meeting {
            fifo: folder.join(format!("{name}.fifo")),
            verdict: folder.join(format!("{name}.verdict")),
            heard: folder.join(format!("{name}.{local_rank}.heard")),
            task,
        })
    }

    fn open(&self, options: &mut OpenOptions) -> io::Result<File> {
        match mkfifo(&self.fifo, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        options
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(&self.fifo)
    }

    /// Begins as the first task.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(&self) -> Result<Doer<'_>, String> {
        self.clean();
        let _ = fs::remove_file(&self.verdict);
        let open = self.open(OpenOptions::new().write(true));
        let open = open.map_err(|error| format!("cannot open {}: {error}.", self.fifo.display()))?;
        Ok(Doer { meeting: self, _open: open })
    }

    /// Waits for the first task's verdict.
    ///
    /// # Errors
    /// A sentence: the first task has ended without one, or none came in time.
    pub fn wait(&self, patience: Duration) -> Result<Told, String> {
        let end = Instant::now() + patience;
        let fifo = self.open(&mut OpenOptions::new());
        let fifo = fifo.map_err(|error| format!("cannot open {}: {error}.", self.fifo.display()))?;
        loop {
            // Looked at after the FIFO was opened, so that no end of the first task is missed.
            if let Some(told) = self.read() {
                return told;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the first task of this node has told no verdict in time.".to_owned());
            }
            let mut fds = [PollFd::new(fifo.as_fd(), PollFlags::POLLIN)];
            // An interruption is as good as an event: the loop looks again.
            let _ = poll(&mut fds, timeout(left));
            let has_ended = fds[0].revents().is_some_and(|happened| happened.contains(PollFlags::POLLHUP));
            if has_ended {
                let none = || Err("the first task of this node has ended without a verdict.".to_owned());
                return self.read().unwrap_or_else(none);
            }
        }
    }

    fn read(&self) -> Option<Result<Told, String>> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&self.verdict).ok()?;
        let mut bytes = Vec::new();
        let read = file.take(LONGEST).read_to_end(&mut bytes).ok().map(|_| json::read::<Left>(&bytes));
        let Some(Ok(Left { at, told })) = read else {
            return Some(Err(
                "the first task of this node has left a verdict that cannot be read.".to_owned()
            ));
        };
        if !self.is_of_this(at) {
            return None;
        }
        // A verdict that is heard twice is the lesser evil.
        let _ = fs::remove_file(&self.heard);
        let _ = self.create(&self.heard).and_then(|mut file| json::write_line(&mut file, &at));
        Some(told)
    }

    /// Whether a verdict of this time is that of the preflight in which this task takes part.
    fn is_of_this(&self, at: u64) -> bool {
        // A tick is long enough for one preflight to end and a task of the next one to begin.
        let is_after = |began: Option<u64>, by: u64| began.is_none_or(|began| at >= began.saturating_add(by));
        let has_heard = || {
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&self.heard).ok()?;
            let mut bytes = Vec::new();
            file.take(LONGEST).read_to_end(&mut bytes).ok()?;
            Some(json::read::<u64>(&bytes).ok()? == at)
        };
        is_after(self.task.task, 1) || is_after(self.task.parent, 0) && has_heard() != Some(true)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    /// Removes what other jobs have left.
    fn clean(&self) {
        let entries = self.fifo.parent().and_then(|folder| fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|data| data.modified());
            let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD));
            if is_old {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Doer<'_> {
    /// Tells the others, and wakes them up.
    pub fn tell(self, told: Result<Told, String>) {
        let left = Left { at: identity::now().unwrap_or(u64::MAX), told };
        let new = self.meeting.verdict.with_extension("new");
        let _ = fs::remove_file(&new);
        let file = self.meeting.create(&new);
        // Who waits notices if the verdict is missing.
        let written = file.and_then(|mut file| json::write_line(&mut file, &left));
        if written.is_ok() {
            let _ = fs::rename(&new, &self.meeting.verdict);
        }
    }
}

/// The session of this process, and when its leader began; that of its parent where this process leads
/// one of its own, as torchrun has its workers do. A container that is started again gives
/// its processes the same numbers as before. 0 stands for a leader that is outside of the container
/// or has ended.
fn session() -> String {
    let of = |pid| getsid(pid).map_or(0, Pid::as_raw);
    let leader = match of(None) {
        own if own == Pid::this().as_raw() && getppid().as_raw() > 0 => of(Some(getppid())),
        other => other,
    };
    let began = identity::started(leader).unwrap_or_default();
    format!("{leader}.{began}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Result<Told, String> {
        Ok(Told { passed: true, line: "all is well".to_owned(), reason: None })
    }

    #[test]
    fn the_others_hear_whenever_they_come() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = || Meeting::at(folder.path(), Some("7"), [0, 1], "1.5", Began::own()).unwrap();
        let wait = move |meeting: Meeting| meeting.wait(Duration::from_secs(20));
        std::thread::scope(|scope| {
            let (here, there) = (meeting(), meeting());
            // One is there before the first task, and others come meanwhile and afterwards.
            let early = scope.spawn(move || wait(here));
            let first = meeting();
            let doer = first.begin().unwrap();
            let later = scope.spawn(move || wait(there));
            doer.tell(told());
            assert_eq!(early.join().unwrap(), told());
            assert_eq!(later.join().unwrap(), told());
            assert_eq!(wait(meeting()), told());
        });
    }

    #[test]
    fn the_others_hear_of_a_first_task_that_ends_without_a_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        let fifo = meeting.open(&mut OpenOptions::new()).unwrap();
        let first = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        drop(first.begin().unwrap());
        drop(fifo);
        std::thread::scope(|scope| {
            let doer = first.begin().unwrap();
            let waiting = scope.spawn(move || meeting.wait(Duration::from_millis(400)));
            // It is not there yet, or sees the end: either way it does not hang.
            drop(doer);
            let why = waiting.join().unwrap().unwrap_err();
            assert!(why.contains("has ended without") || why.contains("in time"), "{why}");
        });
    }

    #[test]
    fn the_verdict_of_an_older_start_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = |began| Meeting::at(folder.path(), Some("7"), [0, 1], began, Began::own()).unwrap();
        let old = meeting("1.5");
        old.begin().unwrap().tell(told());
        let why = meeting("1.6").wait(Duration::from_millis(50)).unwrap_err();
        assert_eq!(why, "the first task of this node has told no verdict in time.");
        let [leader, began] =
            session().split('.').map(|text| text.parse::<u64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("{}", session())
        };
        assert_eq!(leader == 0, began == 0, "{}", session());
    }

    #[test]
    fn the_verdict_of_an_earlier_preflight_in_the_session_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = |local_rank, task, parent| {
            let began = Began { task: Some(task), parent: Some(parent) };
            Meeting::at(folder.path(), None, [0, local_rank], "1.5", began).unwrap()
        };
        let now = identity::now().unwrap();
        let (before, later) = (now - 1, now + 1_000_000);
        let wait = |meeting: &Meeting| meeting.wait(Duration::from_millis(50));
        let late = "the first task of this node has told no verdict in time.";
        meeting(0, before, before).begin().unwrap().tell(told());
        // Of the same preflight: it began before the verdict, or its script did, which has not heard it.
        assert_eq!(wait(&meeting(1, before, before)), told());
        assert_eq!(wait(&meeting(2, later, before)), told());
        // The same script again; and what another call of the launcher has started.
        assert_eq!(wait(&meeting(1, later, before)).unwrap_err(), late);
        assert_eq!(wait(&meeting(2, later, before)).unwrap_err(), late);
        assert_eq!(wait(&meeting(3, later, later)).unwrap_err(), late);
        // They hear the verdict of their own preflight.
        std::thread::scope(|scope| {
            let again = meeting(1, before, before);
            let _open = again.open(&mut OpenOptions::new()).unwrap();
            let first = meeting(0, before, before);
            let doer = first.begin().unwrap();
            let waiting = scope.spawn(move || again.wait(Duration::from_secs(20)));
            let other = Told { passed: false, ..told().unwrap() };
            doer.tell(Ok(other.clone()));
            assert_eq!(waiting.join().unwrap(), Ok(other));
        });
    }

    #[test]
    fn a_verdict_of_the_tick_in_which_a_task_began_may_be_one_that_was_heard() {
        let folder = tempfile::tempdir().unwrap();
        let began = Began { task: Some(7), parent: Some(5) };
        let meeting = Meeting::at(folder.path(), None, [0, 1], "1.5", began).unwrap();
        assert!(meeting.is_of_this(7));
        fs::write(&meeting.heard, "7\n").unwrap();
        assert!(!meeting.is_of_this(7) && meeting.is_of_this(8) && !meeting.is_of_this(4));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join(format!("rdma-init-preflight-{}", getuid()));
        fs::create_dir(&name).unwrap();
        fs::set_permissions(&name, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let why = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).err().unwrap().to_string();
        assert!(why.contains("is not a folder of this user alone"), "{why}");
    }
}
