//! Several tasks on one node: the first one takes part, and the others wait for its verdict.
//!
//! The tasks use a FIFO and a file in a directory that only this user can write to. The first task
//! holds the FIFO open while it works. The kernel closes it however that task ends, so no task waits
//! any longer than that. The session in the names separates these files from those of an earlier start:
//! a launcher or container that starts again has a session that began later.
//!
//! Several preflights may run one after the other in one session. A verdict from before a task began
//! belongs to an earlier preflight, unless the process that started the task already existed and only
//! the task is late. No task receives the same verdict twice.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{anyhow, bail};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::{Mode, SFlag};
use nix::unistd::{Pid, getppid, getsid};
use serde::{Deserialize, Serialize};

use crate::facts::identity;
use crate::json;
use crate::preflight::meet::message::Told;
use crate::preflight::meet::node::SAID_AGAIN;
use crate::sys::directory::Directory;
use crate::sys::user;
use crate::text::duration;
use crate::wire::connection::timeout;

/// Where the tasks of one node find each other, even from separate containers. A directory that belongs
/// to another user is skipped. The last place is the container's own, and only root can create a
/// directory there.
const PLACES: [&str; 3] = ["/dev/shm", "/tmp", "/run"];

/// In bytes; a verdict takes a few hundred.
const LONGEST: u64 = 1024 * 1024;

/// Files of older jobs are removed after this time.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Most waits are shorter, and need no line in the log.
const SILENT: Duration = Duration::from_secs(5);

pub(in crate::preflight) struct Meeting {
    folder: Directory,
    fifo: OsString,
    verdict: OsString,
    /// The file in which this task records which verdict it has received.
    heard: OsString,
    task: Began,
}

/// When a task began, and when its parent process began, in ticks of the machine's clock; `None` if the
/// kernel hides it.
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

/// What the first task saves for the others.
#[derive(Serialize, Deserialize)]
struct Left {
    /// In ticks of the machine's clock.
    at: u64,
    /// The verdict, or why there is none, in words.
    told: Result<Told, String>,
}

/// The first task's end of the rendezvous. When it is dropped, waiting tasks wake up.
pub(in crate::preflight) struct FirstTask<'a> {
    meeting: &'a Meeting,
    _open: File,
}

impl Meeting {
    /// Returns the rendezvous for the tasks of one node of one job. They belong to one session, unless
    /// the launcher gave each of them its own.
    ///
    /// # Errors
    /// No directory can be used for it.
    pub(in crate::preflight) fn choose(
        job: Option<&str>,
        node: u32,
        local_rank: u32,
    ) -> anyhow::Result<Meeting> {
        let (mut tried, own) = (Vec::new(), Began::own());
        for place in PLACES {
            match Meeting::at(Path::new(place), job, [node, local_rank], &session(), own) {
                Ok(meeting) => return Ok(meeting),
                Err(error) => tried.push(format!("{place}/{}: {error}", folder_name())),
            }
        }
        bail!("the tasks of this node cannot find each other: {}", tried.join("; "))
    }

    fn at(
        place: &Path,
        job: Option<&str>,
        [node, local_rank]: [u32; 2],
        session: &str,
        task: Began,
    ) -> io::Result<Meeting> {
        let folder = folder_at(place)?;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '.';
        let job: String = job.unwrap_or("job").chars().filter(is_plain).take(64).collect();
        let name = format!("{job}-{session}-{node}");
        Ok(Meeting {
            folder,
            fifo: format!("{name}.fifo").into(),
            verdict: format!("{name}.verdict").into(),
            heard: format!("{name}.{local_rank}.heard").into(),
            task,
        })
    }

    fn open(&self, how: OFlag) -> anyhow::Result<File> {
        let opened = self
            .folder
            .make_fifo(&self.fifo)
            .and_then(|()| self.folder.open_file(&self.fifo, how, SFlag::S_IFIFO));
        opened.map_err(|error| anyhow!("cannot open the FIFO {}: {error}", self.fifo.display()))
    }

    /// Begins as the first task.
    ///
    /// # Errors
    /// The FIFO cannot be opened.
    pub(in crate::preflight) fn begin(&self) -> anyhow::Result<FirstTask<'_>> {
        self.clean();
        self.folder.remove(&self.verdict);
        Ok(FirstTask { meeting: self, _open: self.open(OFlag::O_RDWR)? })
    }

    /// Waits for the first task's verdict, and for as long as `wait` until it begins. Says that it waits if that takes
    /// long.
    ///
    /// # Errors
    /// The first task did not begin, ended without a verdict, or no verdict arrived in time.
    pub(in crate::preflight) fn wait(
        &self,
        wait: Duration,
        patience: Duration,
        say: &dyn Fn(&str),
    ) -> anyhow::Result<Told> {
        let started = Instant::now();
        let (begin, end) = (started + wait.min(patience), started + patience);
        let mut next_line = Some(started + SILENT);
        let mut fifo = self.open(OFlag::O_RDONLY)?;
        loop {
            // The verdict is read after the FIFO is open, so that this task cannot miss the end of the
            // first one.
            if let Some(told) = self.read() {
                return told;
            }
            let now = Instant::now();
            // No task writes to the FIFO. While the first task has it open, there is nothing to read, and otherwise its
            // end is read.
            let has_begun = fifo.read(&mut [0]).is_err();
            if next_line.is_some_and(|line| now >= line) {
                let who = "the first task of this node (local rank 0)";
                say(&match has_begun {
                    true => format!("preflight: this task is waiting for the verdict that {who} gets"),
                    false => format!(
                        "preflight: this task is waiting for {who}, which has not begun its preflight"
                    ),
                });
                next_line = (!has_begun).then(|| now + SAID_AGAIN);
            }
            if now >= end {
                bail!("the first task of this node did not report a verdict in time");
            }
            if now >= begin && !has_begun {
                bail!(
                    "the first task of this node (local rank 0) did not begin its preflight within {} (preflight-wait). Check in its log why, and that the launcher starts it with rdma-init, as this one",
                    duration(wait)
                );
            }
            let until = if has_begun { end } else { begin };
            let left = next_line.map_or(until, |line| line.min(until)).saturating_duration_since(now);
            let mut fds = [PollFd::new(fifo.as_fd(), PollFlags::POLLIN)];
            // EINTR is harmless: the loop looks again.
            let _ = poll(&mut fds, timeout(left));
            let has_ended = fds[0].revents().is_some_and(|happened| happened.contains(PollFlags::POLLHUP));
            if has_ended {
                let ended = || Err(anyhow!("the first task of this node exited without a verdict"));
                return self.read().unwrap_or_else(ended);
            }
        }
    }

    /// Returns the contents of the file with this name; `None` if there is none. Never waits for
    /// something that is not a regular file.
    fn text_of(&self, name: &OsStr) -> Option<io::Result<Vec<u8>>> {
        let file = match self.folder.open_file(name, OFlag::O_RDONLY, SFlag::S_IFREG) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            file => file,
        };
        let mut bytes = Vec::new();
        Some(file.and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)).map(|_| bytes))
    }

    fn read(&self) -> Option<anyhow::Result<Told>> {
        let read = self.text_of(&self.verdict)?.ok().map(|bytes| json::read::<Left>(&bytes));
        let Some(Ok(Left { at, told })) = read else {
            return Some(Err(anyhow!("the first task of this node saved a verdict that cannot be read")));
        };
        if !self.is_of_this(at) {
            return None;
        }
        // If this fails, the task may receive a verdict twice, which is the lesser evil.
        self.leave(&self.heard, &at);
        // The first task says why it has no verdict.
        Some(told.map_err(anyhow::Error::msg))
    }

    /// Returns whether a verdict with this time belongs to the preflight in which this task takes part.
    fn is_of_this(&self, at: u64) -> bool {
        // Within one tick, one preflight can end and a task of the next one can begin.
        let is_after = |began: Option<u64>, by: u64| began.is_none_or(|began| at >= began.saturating_add(by));
        let has_heard = || {
            let bytes = self.text_of(&self.heard)?.ok()?;
            Some(json::read::<u64>(&bytes).ok()? == at)
        };
        is_after(self.task.task, 1) || is_after(self.task.parent, 0) && has_heard() != Some(true)
    }

    /// Saves a document under this name, as a whole or not at all.
    fn leave(&self, name: &OsStr, document: &impl Serialize) {
        let Ok((new, mut file)) = self.folder.create_beside(name, Mode::S_IRUSR | Mode::S_IWUSR) else {
            return;
        };
        let left = json::write_line(&mut file, document).and_then(|()| self.folder.rename(&new, name));
        if left.is_err() {
            self.folder.remove(&new);
        }
    }

    /// Removes the files of older jobs.
    fn clean(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for name in self.folder.names() {
            let modified = self.folder.status(&name).ok().flatten().map(|status| status.st_mtime);
            let modified = modified.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
            if modified.is_some_and(|at| now.saturating_sub(at) > OLD) {
                self.folder.remove(&name);
            }
        }
    }
}

impl FirstTask<'_> {
    /// Sends the verdict to the other tasks, and wakes them up.
    pub(in crate::preflight) fn tell(self, told: Result<Told, String>) {
        let left = Left { at: identity::now().unwrap_or(u64::MAX), told };
        // If this fails, a waiting task notices that the verdict is missing.
        self.meeting.leave(&self.meeting.verdict, &left);
    }
}

/// Returns a directory that only this user can write to, and that the containers of one Pod may share.
pub(in crate::preflight) fn folder() -> Option<Directory> {
    PLACES.iter().find_map(|place| folder_at(Path::new(place)).ok())
}

fn folder_at(place: &Path) -> io::Result<Directory> {
    Directory::open(place)?.private(OsStr::new(&folder_name()))
}

fn folder_name() -> String {
    format!("rdma-init-preflight-{}", user::effective())
}

/// Returns the session of this process, and when its leader began. If this process leads its own
/// session, as torchrun's workers do, this returns its parent's session. A restarted container gives
/// its processes the same numbers as before. 0 stands for a leader that has ended or is outside the
/// container.
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
    use std::fs;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    fn words<T>(result: anyhow::Result<T>) -> Result<T, String> {
        result.map_err(|why| why.to_string())
    }

    fn told() -> Result<Told, String> {
        Ok(Told { passed: true, line: "all is well".to_owned(), reason: None })
    }

    #[test]
    fn waiting_tasks_get_the_verdict_whenever_they_start() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = |rank| Meeting::at(folder.path(), Some("7"), [0, rank], "1.5", Began::own()).unwrap();
        let wait = move |meeting: Meeting| words(meeting.wait(LONG, LONG, &|_| {}));
        std::thread::scope(|scope| {
            let (here, there) = (meeting(1), meeting(2));
            // One task waits before the first task begins, and others start to wait during and after
            // it.
            let early = scope.spawn(move || wait(here));
            let first = meeting(0);
            let doer = first.begin().unwrap();
            let later = scope.spawn(move || wait(there));
            doer.tell(told());
            assert_eq!(early.join().unwrap(), told());
            assert_eq!(later.join().unwrap(), told());
            assert_eq!(wait(meeting(3)), told());
        });
    }

    #[test]
    fn waiting_tasks_notice_a_first_task_that_ends_without_a_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        let fifo = meeting.open(OFlag::O_RDONLY).unwrap();
        let first = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        drop(first.begin().unwrap());
        drop(fifo);
        std::thread::scope(|scope| {
            let doer = first.begin().unwrap();
            let waiting = scope.spawn(move || meeting.wait(LONG, Duration::from_millis(400), &|_| {}));
            // The waiting task has not opened the FIFO yet, or it sees the end: either way it does not
            // hang.
            drop(doer);
            let why = waiting.join().unwrap().unwrap_err().to_string();
            assert!(why.ends_with("without a verdict") || why.ends_with("in time"), "{why}");
        });
    }

    #[test]
    fn a_first_task_that_does_not_begin_is_waited_for_only_so_long() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = || Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        let why = meeting().wait(SHORT, LONG, &|_| {}).unwrap_err();
        assert!(why.to_string().contains("did not begin its preflight"), "{why}");
        let first = meeting();
        let _doer = first.begin().unwrap();
        let why = meeting().wait(Duration::ZERO, SHORT, &|_| {}).unwrap_err();
        assert!(why.to_string().ends_with("in time"), "{why}");
    }

    #[test]
    fn the_verdict_of_an_older_start_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = |began| Meeting::at(folder.path(), Some("7"), [0, 1], began, Began::own()).unwrap();
        let old = meeting("1.5");
        old.begin().unwrap().tell(told());
        let why = meeting("1.6").wait(LONG, SHORT, &|_| {}).unwrap_err();
        assert!(why.to_string().ends_with("in time"), "{why}");
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
        let wait = |meeting: &Meeting| words(meeting.wait(LONG, SHORT, &|_| {}));
        let late = "the first task of this node did not report a verdict in time";
        meeting(0, before, before).begin().unwrap().tell(told());
        // Both belong to this preflight. Task 1 began before the verdict. Task 2 did not, but its
        // script did, and has not received the verdict yet.
        assert_eq!(wait(&meeting(1, before, before)), told());
        assert_eq!(wait(&meeting(2, later, before)), told());
        // The same script again, and tasks that another call of the launcher has started.
        assert_eq!(wait(&meeting(1, later, before)).unwrap_err(), late);
        assert_eq!(wait(&meeting(2, later, before)).unwrap_err(), late);
        assert_eq!(wait(&meeting(3, later, later)).unwrap_err(), late);
        // They receive the verdict of their own preflight.
        std::thread::scope(|scope| {
            let again = meeting(1, before, before);
            let _open = again.open(OFlag::O_RDONLY).unwrap();
            let first = meeting(0, before, before);
            let doer = first.begin().unwrap();
            let waiting = scope.spawn(move || words(again.wait(LONG, LONG, &|_| {})));
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
        meeting.leave(&meeting.heard, &7);
        assert!(!meeting.is_of_this(7) && meeting.is_of_this(8) && !meeting.is_of_this(4));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join(folder_name());
        fs::create_dir(&name).unwrap();
        fs::set_permissions(&name, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let why = Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).err().unwrap().to_string();
        assert_eq!(why, "it is not a directory that only this user can use");
    }

    /// Only a process of the same user can write there.
    #[test]
    fn what_is_in_the_place_of_the_verdict_or_the_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = || Meeting::at(folder.path(), None, [0, 1], "1.5", Began::own()).unwrap();
        let patience = Duration::from_secs(1000);
        let fifo = meeting();
        fifo.folder.make_fifo(&fifo.verdict).unwrap();
        let _open = fifo.open(OFlag::O_RDWR).unwrap();
        let why = fifo.wait(patience, patience, &|_| {}).unwrap_err();
        assert!(why.to_string().ends_with("that cannot be read"), "{why}");
        let doer = fifo.begin().unwrap();
        doer.tell(told());
        assert_eq!(words(meeting().wait(patience, patience, &|_| {})), told(), "it is replaced");
        // A regular file is always ready to be read.
        fifo.folder.remove(&fifo.fifo);
        fifo.leave(&fifo.fifo, &1);
        let why = meeting().wait(patience, patience, &|_| {}).unwrap_err().to_string();
        assert!(why.starts_with("cannot open the FIFO job-1.5-0.fifo: "), "{why}");
    }
}
