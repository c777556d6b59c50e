//! Reads the reports of many nodes from files, directories and standard input, one after the other. Of
//! each file, only the values to compare stay in memory.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;
use serde::Serialize;

use super::brief::Brief;
use super::comparison::ComparedNodes;
use super::finder::{Finder, Found};
use super::launcher;
use super::lines::{self, ReadLine};
use crate::text::{shortened, visible};

/// The number of places that are named; any others are only counted.
const NAMED: usize = 20;

/// How many levels of nested directories are read, such as those that mpirun's --output-filename
/// creates.
const DEEPEST: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub nodes: ComparedNodes,
    /// The number of reports of all nodes. Several reports of one node count separately.
    reports: usize,
    pub unread: Unread,
}

/// Places that look like a report, or should contain some, but could not be read.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Unread {
    pub count: usize,
    /// The first of these places.
    pub first: Vec<ReportFault>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReportFault {
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub why: String,
}

/// Reads everything; `-` stands for standard input, and a directory for its files.
pub(crate) fn collect(sources: &[PathBuf]) -> Collected {
    let mut collected = Collected::default();
    for source in sources {
        if source == Path::new("-") {
            collected.file("standard input", Content::Reports, &mut io::stdin().lock());
        } else if source.is_dir() {
            let before = collected.seen();
            collected.folder(source, DEEPEST);
            if collected.seen() == before {
                collected.unread(&name(source), None, "there is no report in this directory");
            }
        } else {
            // A FIFO that the user names is intentional: `compare <(kubectl logs ...)`.
            collected.opened(source, Content::Reports, File::open(source));
        }
    }
    collected
}

/// What a file should contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// At least one report; if there is none, a node has no report.
    Reports,
    /// Possibly reports, as in files next to those with reports.
    Anything,
}

impl Content {
    /// Returns what a file in a directory should contain. mpirun and Slurm write standard error next to
    /// standard output, and NFS has its own files.
    fn of(file: &Path) -> Content {
        let is = |part: Option<&std::ffi::OsStr>, texts: &[&str]| {
            part.is_some_and(|part| texts.iter().any(|text| part == *text))
        };
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match is_hidden || is(file.file_stem(), &["stderr"]) || is(file.extension(), &["err", "stderr"]) {
            true => Content::Anything,
            false => Content::Reports,
        }
    }
}

impl Collected {
    /// Returns the number of reports, including those that cannot be read.
    fn seen(&self) -> usize {
        self.reports + self.unread.count
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.unread(&name(folder), None, &cannot_read(&error)),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            // This does not follow links to directories, because they may lead back here.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                match depth.checked_sub(1) {
                    Some(depth) => self.folder(&path, depth),
                    None => self.unread(&name(&path), None, "the directory is nested too deep to search"),
                }
            } else if fs::metadata(&path).map_or(true, |data| data.is_file()) {
                // Opening the file does not wait for a writer, even if it has become a FIFO by now.
                let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
                self.opened(&path, Content::of(&path), opened);
            }
        }
    }

    fn opened(&mut self, path: &Path, content: Content, file: io::Result<File>) {
        let name = name(path);
        match file {
            Ok(file) => self.file(&name, content, &mut BufReader::with_capacity(64 << 10, file)),
            Err(error) => self.unread(&name, None, &cannot_read(&error)),
        }
    }

    fn file(&mut self, name: &str, content: Content, file: &mut dyn BufRead) {
        let before = self.seen();
        let mut finder = Finder::default();
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            let kind = match lines::next(file, &mut line) {
                Ok(None) => break,
                Ok(Some(kind)) => kind,
                Err(error) => {
                    self.unread(name, Some(number + 1), &cannot_read(&error));
                    break;
                }
            };
            number += 1;
            if let Some(said) = launcher::failure(&line) {
                let why = format!("{said}, so a report may be missing");
                self.unread(name, Some(number), &why);
            }
            finder.line(number, kind, &line, &mut |at, found| self.found(name, at, found));
            if kind == ReadLine::Endless {
                self.unread(name, Some(number), "the line does not end within 64 MiB, so this is not a log");
                break;
            }
        }
        finder.end(&mut |at, found| self.found(name, at, found));
        if content == Content::Reports && self.seen() == before {
            let why = if number == 0 { "it is empty" } else { "there is no report in it" };
            self.unread(name, None, why);
        }
    }

    fn found(&mut self, name: &str, line: usize, found: Found) {
        match found {
            Ok(report) => {
                self.reports += 1;
                self.nodes.add(&host(&report, name, line), &report);
            }
            Err(why) => self.unread(name, Some(line), &why),
        }
    }

    fn unread(&mut self, file: &str, line: Option<usize>, why: &str) {
        self.unread.count += 1;
        if self.unread.first.len() < NAMED {
            let why = visible(&shortened(why));
            self.unread.first.push(ReportFault { file: file.to_owned(), line, why });
        }
    }
}

/// Returns the host's name. A node that does not know its name still counts as one node, under its file
/// name and line.
fn host<'a>(report: &'a Brief, file: &str, line: usize) -> std::borrow::Cow<'a, str> {
    if report.host.is_empty() {
        return format!("(without a name, {file}:{line})").into();
    }
    std::borrow::Cow::Borrowed(&report.host)
}

fn name(path: &Path) -> String {
    visible(&path.to_string_lossy())
}

fn cannot_read(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}
