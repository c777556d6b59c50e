//! The preflight before the command starts: all nodes of the job prove the fabric between them.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{self, AccessFlags};

use crate::config::{Config, Demand, Excluded, TOKEN_VARIABLE};
use crate::facts::environment::Environment;
use crate::facts::{Facts, Reader};
use crate::json;
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::preflight::job::{self, Terms};
use crate::preflight::judging::{Judged, Limits};
use crate::preflight::part::{self, Asked, Part, Seen};
use crate::preflight::progress::Progress;
use crate::preflight::schedule::Extent;
use crate::preflight::verdict::Verdict;
use crate::report;
use crate::self_test::kinds::Level as Depth;
use crate::self_test::known;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::sys::terminal::Line;
use crate::text::sentence;
use crate::verbs::port_test::DEFAULT_TIME;

/// How many bytes each pair registers with a device. The self-test has tried more.
pub const SIZE: u64 = 4 * 1024 * 1024;

/// A clock cannot hold an endless time.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most bytes of a file that says who takes part, such as a list of hosts.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Finds out who takes part, from what starts this process.
///
/// # Errors
/// As for [`part::find`].
pub fn part(asked: &Asked, environment: &Environment, command: &[CString]) -> Result<Part, String> {
    let command: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let file = |path: &str| {
        let bytes = Reader::new(Path::new("/")).bytes(path, LONGEST_FILE)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let host = known::host_name();
    part::find(asked, &Seen { environment, command: &command, host: &host, file: &file })
}

/// The terms of the configuration.
pub fn terms<'a>(
    config: &Config,
    environment: &'a Environment,
    part: &'a Part,
    say: &'a dyn Fn(&str),
    show: Option<&'a dyn Fn(&Progress)>,
) -> Terms<'a> {
    Terms {
        part,
        wait: config.preflight_wait.min(LONGEST_WAIT),
        token: environment.get(TOKEN_VARIABLE).unwrap_or_default(),
        rounds: Extent::Doubling,
        scope: Scope::new(Depth::Verbs, SIZE, DEFAULT_TIME),
        limits: limits(config),
        say,
        show,
    }
}

/// Gives the work a way to show how far it is in a line of the terminal, where there is one, and a way
/// to say something above that line.
pub fn with_line<T>(
    config: &Config,
    environment: &Environment,
    say: &dyn Fn(&str),
    work: impl FnOnce(&dyn Fn(&str), Option<&dyn Fn(&Progress)>) -> T,
) -> T {
    // Messages of other levels come at any time, and would stand in the same line.
    let is_alone = config.log_format == Format::Text && config.log_level == Level::Info;
    let line = if is_alone { Line::at_stderr(environment.get("TERM")) } else { None };
    let Some(line) = line else { return work(say, None) };
    let above = |text: &str| {
        line.clear();
        say(text);
    };
    let done = work(&above, Some(&|progress| line.show(&progress.bar(line.columns()))));
    line.clear();
    done
}

pub fn limits(config: &Config) -> Limits {
    Limits {
        least_gbps: config.preflight_min_bandwidth.map(|gbps| gbps as f32),
        enforce_slow: config.preflight_enforce_slow,
    }
}

/// Takes part, if that is wanted, and tells the verdict. Gives why the command must not be started;
/// `None` if it may.
#[must_use]
pub fn refusal(
    config: &Config,
    environment: &Environment,
    command: &[CString],
    facts: &Facts,
    plan: &Plan,
    report: &Report,
    log: &Log,
) -> Option<String> {
    let asked = Asked {
        nodes: config.preflight_nodes,
        node: config.preflight_node,
        meet: config.preflight_meet.as_deref(),
        prefix: "preflight-",
    };
    let told = part(&asked, environment, command).and_then(|part| {
        if part.node == 0 && part.local_rank == 0 {
            let unwritable = Files::of(config).unwritable();
            unwritable.iter().for_each(|why| log.warn(&sentence(&format!("preflight: {why}"))));
        }
        with_line(config, environment, &|text| log.note(text), |say, show| {
            job::run(&terms(config, environment, &part, say, show), facts, plan, report)
        })
    });
    if let Ok(outcome) = &told
        && let Some(judged) = &outcome.judged
    {
        tell_all(config, judged, log);
    }
    let (why, line) = match told {
        Ok(outcome) if outcome.told.passed => {
            log.note(&outcome.told.line);
            return None;
        }
        Ok(outcome) => (outcome.told.reason.unwrap_or_default(), outcome.told.line),
        Err(why) => (why.clone(), sentence(&format!("preflight: {why}"))),
    };
    log.warn(&line);
    let why = why.trim_end_matches('.');
    (config.preflight == Demand::Enforce).then(|| format!("preflight = \"enforce\": {why}"))
}

/// What only node 0 can tell: the table, where there is something to see, and who is at fault.
fn tell_all(config: &Config, judged: &Judged, log: &Log) {
    let verdict = judged.verdict();
    if !verdict.passed || verdict.warning_count() > 0 {
        match log.format() {
            Format::Text if log.level() >= Level::Warn => {
                log.put(|out| report::preflight::write(out, &verdict));
            }
            _ => {}
        }
    }
    let files = Files::of(config);
    for why in files.write(&verdict).into_iter().chain(files.gap(&verdict)) {
        log.warn(&sentence(&format!("preflight: {why}")));
    }
}

/// The files that node 0 leaves, where they are wanted.
pub struct Files<'a> {
    /// The names of the nodes at fault, and how they are written.
    pub excluded: Option<&'a Path>,
    pub format: Excluded,
    /// The page.
    pub html: Option<&'a Path>,
    /// The document.
    pub json: Option<&'a Path>,
}

impl<'a> Files<'a> {
    pub fn of(config: &'a Config) -> Files<'a> {
        Files {
            excluded: config.preflight_exclude_file.as_deref(),
            format: config.preflight_exclude_format,
            html: config.preflight_html.as_deref(),
            json: config.preflight_json.as_deref(),
        }
    }

    /// What the list of nodes at fault does not tell, where one is wanted.
    #[must_use]
    pub fn gap(&self, verdict: &Verdict) -> Option<String> {
        self.excluded.and_then(|_| verdict.gap())
    }

    /// Gives a sentence about each one that cannot be written, as far as can be told without writing.
    #[must_use]
    pub fn unwritable(&self) -> Vec<String> {
        let files = [self.excluded, self.html, self.json].into_iter().flatten();
        let refused = files.filter_map(|path| Some((path, access(path).err()?)));
        refused.map(|(path, error)| format!("cannot write {}: {}", path.display(), error.desc())).collect()
    }

    /// Writes all of them. Gives a sentence about each one that cannot be written.
    #[must_use]
    pub fn write(&self, verdict: &Verdict) -> Vec<String> {
        let file = |path: Option<&Path>, text: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = path?;
            let error = write(path, text).err()?;
            Some(format!("cannot write {}: {error}", path.display()))
        };
        let written = [
            file(self.excluded, &|out| report::preflight::write_excluded(out, verdict, self.format)),
            file(self.html, &|out| report::preflight_page::write(out, verdict)),
            file(self.json, &|mut out| json::write_line(&mut out, verdict)),
        ];
        written.into_iter().flatten().collect()
    }
}

/// Whether a file can be written, or made.
///
/// # Errors
/// As for access(2).
fn access(path: &Path) -> nix::Result<()> {
    match unistd::access(path, AccessFlags::W_OK) {
        Err(Errno::ENOENT) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            unistd::access(folder.unwrap_or(Path::new(".")), AccessFlags::W_OK | AccessFlags::X_OK)
        }
        told => told,
    }
}

/// Writes a file that only node 0 can write. It is never written through a symbolic link, which
/// somebody else may have left in a shared folder, and nobody is waited for at a FIFO.
///
/// # Errors
/// As for open(2) and write(2).
fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a symbolic link; name the file itself"),
        _ => error,
    })?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        let told = |name: &str| {
            let html = path(name);
            Files { excluded: None, format: Excluded::Lines, html: Some(&html), json: None }.unwritable()
        };
        assert_eq!(told("file"), [""; 0]);
        assert_eq!(told("new"), [""; 0]);
        assert!(!path("new").exists());
        let lost = told("missing/new");
        assert!(lost[0].ends_with("missing/new: No such file or directory"), "{lost:?}");
        let lost = told("file/new");
        assert!(lost[0].ends_with("file/new: Not a directory"), "{lost:?}");
    }

    #[test]
    fn a_file_is_not_written_through_a_link_and_a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| write(&path(name), |out| out.write_all(b"bad"));
        std::fs::write(path("other"), "kept, and longer").unwrap();
        symlink(path("other"), path("link")).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(text("link").unwrap_err().to_string(), "it is a symbolic link; name the file itself");
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "kept, and longer");
        assert!(text("fifo").is_err());
        text("other").unwrap();
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "bad");
    }
}
