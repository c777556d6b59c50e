//! The command that is started for each warning and each error. It gets the finding on its standard input.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::libc::SIGKILL;
use nix::sys::memfd::MFdFlags;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, gethostname, setpgid};
use serde::Serialize;

use crate::finding::{Finding, Phase, Severity};
use crate::json;
use crate::sys::exec::PreparedExec;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::{environ, memfd, signals};
use crate::text::{shortened, visible};

/// The command is killed after this time.
const LONGEST: Duration = Duration::from_secs(30);

/// How long it may run after the end of the job's command. PID 1 kills the watcher after three seconds.
const AT_THE_END: Duration = Duration::from_secs(2);

/// How long its end may take then: on a busy machine, longer than it takes to kill it.
const MOMENT: Duration = Duration::from_millis(500);

/// The most findings that wait for the command; later ones are dropped.
const MOST: usize = 64;

/// A shell also returns this code for a command that cannot be executed.
const NOT_EXECUTED: i32 = 127;

/// What the command gets.
#[derive(Serialize)]
struct Told<'f> {
    #[serde(flatten)]
    finding: &'f Finding,
    phase: Phase,
    /// When it was made, in UTC.
    time: String,
    host: String,
}

pub(super) struct OnFinding {
    command: Vec<CString>,
    waiting: VecDeque<Vec<u8>>,
    /// The running command, and when it is killed. Only one runs at a time.
    running: Option<(Pid, Instant)>,
    /// Where the process that is to become the command says why it cannot.
    not_executed: Option<File>,
    has_told: bool,
    /// Whether this process adopts what the command leaves behind.
    adopts: bool,
    /// The limits of open files that the command gets, if the watcher has raised its own.
    files: Option<(rlim_t, rlim_t)>,
}

impl OnFinding {
    /// Empty words start nothing.
    pub(super) fn new(words: Vec<String>, files: Option<(rlim_t, rlim_t)>) -> OnFinding {
        let command = words.into_iter().filter_map(|word| CString::new(word).ok()).collect();
        OnFinding {
            command,
            waiting: VecDeque::new(),
            running: None,
            not_executed: None,
            has_told: false,
            adopts: false,
            files,
        }
    }

    /// Makes this process adopt the processes that the command leaves behind, so that PID 1 does not take them for
    /// orphans of the job.
    pub(super) fn adopt(&mut self) {
        self.adopts = !self.command.is_empty() && set_child_subreaper(true).is_ok();
    }

    /// Returns whether there is a command.
    pub(super) fn is_set(&self) -> bool {
        !self.command.is_empty()
    }

    /// At the end of the job: gives the command the findings that wait, until its time is over.
    pub(super) fn finish(&mut self, warn: impl Fn(&str)) {
        let until = Instant::now() + AT_THE_END;
        loop {
            let now = Instant::now();
            self.go_on(now).iter().for_each(|message| warn(message));
            if now >= until || self.running.is_none() && self.waiting.is_empty() {
                break;
            }
            // Its end is a signal, and so is another one from PID 1, which does not matter any more.
            if signals::wait(Some(until)).is_err() {
                break;
            }
        }
        self.end();
    }

    /// Kills the command if it still runs, and reaps it if that takes no longer than a moment.
    fn end(&mut self) {
        let Some((child, _)) = self.running else { return };
        kill_group(child);
        let until = Instant::now() + MOMENT;
        while Instant::now() < until && !matches!(self.reap(child), Reaped::NoSuchChild | Reaped::Ended(..)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reaps the command if it has ended, and what it has left behind.
    fn reap(&self, child: Pid) -> Reaped {
        if !self.adopts {
            return fork::reap_child(child);
        }
        loop {
            match fork::reap() {
                Reaped::Ended(other, _) if other != child => {}
                reaped => return reaped,
            }
        }
    }

    pub(super) fn take(&mut self, finding: &Finding) {
        if finding.severity >= Severity::Warning && !self.command.is_empty() && self.waiting.len() < MOST {
            let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let host = gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            self.waiting.push_back(json::line(&Told { finding, phase: Phase::Run, time, host }));
        }
    }

    /// Reaps the command if it has ended, kills it if it is late, and starts the next one. Returns the
    /// message about the first command that failed.
    pub(super) fn go_on(&mut self, now: Instant) -> Option<String> {
        let mut failed = None;
        if let Some((child, until)) = self.running {
            match self.reap(child) {
                Reaped::Running | Reaped::Stopped(..) => {
                    if now >= until {
                        failed = Some(format!("was killed after {} seconds", LONGEST.as_secs()));
                        kill_group(child);
                        // A driver may delay the end of the process, so this checks it again later.
                        self.running = Some((child, now + LONGEST));
                    }
                }
                Reaped::Ended(_, Ended::Exited(code)) => {
                    failed =
                        (code != 0).then(|| match self.not_executed().filter(|_| code == NOT_EXECUTED) {
                            Some(error) => format!("cannot be executed: {}", error.desc()),
                            None => format!("exited with code {code}"),
                        });
                    self.running = None;
                }
                Reaped::Ended(_, Ended::Killed(signal)) => {
                    failed = Some(format!("was killed by {}", signals::name(signal)));
                    self.running = None;
                }
                Reaped::NoSuchChild => self.running = None,
            }
        } else if self.adopts {
            while let Reaped::Ended(..) = fork::reap() {}
        }
        if self.running.is_none()
            && let Some(finding) = self.waiting.pop_front()
        {
            match self.start(&finding) {
                Ok(child) => self.running = Some((child, now + LONGEST)),
                Err(error) => failed = Some(format!("cannot be started: {}", error.desc())),
            }
        }
        self.report(failed?)
    }

    /// Returns a message if no file is where the command would be found: whoever is to be paged should know that before
    /// something happens.
    pub(super) fn check(&mut self) -> Option<String> {
        let first = self.command.first()?.clone();
        let image = PreparedExec::new(vec![first], environ::entries());
        let is_there = image.files().any(Path::exists);
        if is_there { None } else { self.report(format!("cannot be executed: {}", Errno::ENOENT.desc())) }
    }

    /// Returns the message about the first failure.
    fn report(&mut self, failed: String) -> Option<String> {
        if std::mem::replace(&mut self.has_told, true) {
            return None;
        }
        let name = self.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        let name = visible(&shortened(&name));
        Some(format!(
            "the command of the key on-finding, {name}, {failed}. Later failures of it are not reported."
        ))
    }

    /// Returns when the command must be killed.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.running.map(|(_, until)| until)
    }

    /// Returns why the last process has not become the command.
    fn not_executed(&self) -> Option<Errno> {
        let mut error = [0; 4];
        self.not_executed.as_ref()?.read_exact_at(&mut error, 0).ok()?;
        Some(Errno::from_raw(i32::from_le_bytes(error)))
    }

    fn start(&mut self, finding: &[u8]) -> Result<Pid, Errno> {
        // Unlike a pipe, a file cannot fill up if the command does not read it.
        let input = File::from(memfd::create(c"finding", MFdFlags::empty())?);
        input.write_all_at(finding, 0).map_err(|_| Errno::ENOSPC)?;
        // Without it, the exit code is all that is known.
        self.not_executed = memfd::create(c"not-executed", MFdFlags::MFD_CLOEXEC).ok().map(File::from);
        let not_executed = self.not_executed.as_ref();
        let watcher = Pid::this();
        let mut image = PreparedExec::new(self.command.clone(), environ::entries());
        let files = self.files;
        fork::spawn(|| {
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            signals::on_parent_death(SIGKILL, watcher);
            if let Some((soft, hard)) = files {
                let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
            }
            // Standard output is the job's alone.
            if dup2_stdin(&input).and_then(|()| dup2_stdout(std::io::stderr())).is_ok() {
                signals::unblock_all();
                let error = image.exec() as i32;
                let _ = not_executed.map(|file| file.write_all_at(&error.to_le_bytes(), 0));
            }
            NOT_EXECUTED
        })
    }
}

/// Kills a command with its process group, which it leads unless it was not yet able to create it.
fn kill_group(child: Pid) {
    let group = signals::kill(Pid::from_raw(-child.as_raw()), SIGKILL);
    let _ = group.or_else(|_| signals::kill(child, SIGKILL));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Id;

    fn until_done(hook: &mut OnFinding) -> Vec<String> {
        let mut said = Vec::new();
        while hook.running.is_some() || !hook.waiting.is_empty() {
            said.extend(hook.go_on(Instant::now()));
            std::thread::yield_now();
        }
        said
    }

    fn command(words: &[&str]) -> OnFinding {
        OnFinding::new(words.iter().map(|word| (*word).to_owned()).collect(), None)
    }

    #[test]
    fn each_warning_comes_to_a_command_of_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut hook = command(&["sh", "-c", "cat >>\"$0\"", file.path().to_str().unwrap()]);
        for finding in [
            Finding::warning(Id::LinkDown, "mlx5_1 is gone.").about_ports(["mlx5_1:1"]),
            Finding::info(Id::LinkDown, "mlx5_1 is active again."),
            Finding::error(Id::GidChanged, "b"),
        ] {
            hook.take(&finding);
        }
        assert_eq!(until_done(&mut hook), [""; 0]);
        let read = std::fs::read_to_string(file.path()).unwrap();
        let wanted = [
            r#"{"id":"link-down","severity":"warning","message":"mlx5_1 is gone.","about":{"ports":["mlx5_1:1"]},"phase":"run","time":""#,
            r#"{"id":"gid-changed","severity":"error","message":"b","phase":"run","time":""#,
        ];
        assert_eq!(read.lines().count(), 2, "{read}");
        let host = gethostname().unwrap().into_string().unwrap();
        for (line, start) in read.lines().zip(wanted) {
            let (time, rest) = line.strip_prefix(start).unwrap().split_once("\",").unwrap();
            humantime::parse_rfc3339(time).unwrap();
            assert_eq!(rest, format!(r#""host":"{host}"}}"#));
        }
    }

    #[test]
    fn the_first_failure_is_told() {
        let mut hook = command(&["/no/such/command"]);
        let finding = Finding::warning(Id::LinkDown, "a");
        (0..2).for_each(|_| hook.take(&finding));
        let said = until_done(&mut hook);
        assert_eq!(
            said,
            [
                "the command of the key on-finding, /no/such/command, cannot be executed: No such file or directory. Later failures of it are not reported."
            ]
        );
        // A shell's own code.
        let mut hook = command(&["sh", "-c", "exit 127"]);
        hook.take(&finding);
        let said = until_done(&mut hook);
        assert!(
            said[0].starts_with("the command of the key on-finding, sh, exited with code 127."),
            "{said:?}"
        );
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_and_the_next_one_starts() {
        let mut hook = command(&["sh", "-c", "sleep 1000; true"]);
        let finding = Finding::warning(Id::LinkDown, "a");
        (0..2).for_each(|_| hook.take(&finding));
        let now = Instant::now();
        assert_eq!((hook.go_on(now), hook.waiting.len()), (None, 1));
        let first = hook.running;
        assert_eq!(hook.go_on(now + LONGEST / 2), None);
        assert_eq!(hook.running, first, "one at a time");
        for _ in 0..2 {
            let late = hook.wake_at().unwrap();
            hook.go_on(late);
            let (child, _) = hook.running.unwrap();
            while hook.running.is_some_and(|(running, _)| running == child) {
                hook.go_on(late);
                std::thread::yield_now();
            }
        }
        assert!(hook.running.is_none() && hook.waiting.is_empty());
    }

    #[test]
    fn findings_do_not_pile_up() {
        let mut hook = command(&["true"]);
        (0..MOST * 2).for_each(|_| hook.take(&Finding::warning(Id::LinkDown, "a")));
        assert_eq!(hook.waiting.len(), MOST);
        let mut none = command(&[]);
        none.take(&Finding::warning(Id::LinkDown, "a"));
        assert_eq!((none.waiting.len(), none.go_on(Instant::now())), (0, None));
    }
}
