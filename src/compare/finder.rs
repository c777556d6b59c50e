//! Finds reports among the lines of a log. Pure: takes lines, and returns reports.
//!
//! A report begins anywhere in its line, after whatever mpirun or kubectl put there, and ends in that
//! line. Or it takes several lines, as `jq` writes it: from a line that begins with an opening brace to
//! a line that begins with a closing brace.

use memchr::memmem;
use serde_json::error::Category;

use super::brief::Brief;
use super::lines::{LONGEST, ReadLine};
use crate::self_test::report::SCHEMA;

/// The text that every report contains, in any version.
const MARK: &[u8] = b"\"rdma-init/self-test/";

/// The most places in one line to look for a report: each search may continue to the end of the line.
const PROMISES: usize = 50;

const CUT: &str = "the report is cut";
const TOO_LONG: &str = "the report is longer than 1 MiB";

/// A report, or a sentence that says why it cannot be read.
pub(crate) type Found = Result<Brief, String>;

/// Reads the lines of one file.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    /// The start of a document that continues in the next line.
    open: Vec<u8>,
    /// The number of the line in which the open document began.
    since: usize,
}

impl Finder {
    /// Reads a line; `found` gets the number of the line in which a report begins.
    pub(crate) fn line(
        &mut self,
        number: usize,
        kind: ReadLine,
        text: &[u8],
        found: &mut dyn FnMut(usize, Found),
    ) {
        let goes_on = kind == ReadLine::Whole && matches!(text.first(), Some(b' ' | b'\t' | b'}'));
        if !self.open.is_empty() {
            if goes_on && self.open.len() + text.len() < LONGEST {
                self.open.push(b'\n');
                self.open.extend_from_slice(text);
                if text.first() == Some(&b'}') {
                    self.end(found);
                }
                return;
            }
            if goes_on && memmem::find(&self.open, MARK).is_some() {
                found(self.since, Err(TOO_LONG.to_owned()));
                self.open.clear();
                return;
            }
            self.end(found);
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let marked = memmem::find(text, MARK).is_some();
        let begins = text.first() == Some(&b'{');
        if kind != ReadLine::Whole {
            if marked || begins {
                found(number, Err(TOO_LONG.to_owned()));
            }
        } else if marked {
            if let Some(start) = reports(number, text, found) {
                match start {
                    0 => self.open(number, text),
                    _ => found(number, Err(CUT.to_owned())),
                }
            }
        } else if begins && !text.trim_ascii_end().ends_with(b"}") {
            self.open(number, text);
        }
    }

    /// Ends the file. A document that is still open is incomplete.
    pub(crate) fn end(&mut self, found: &mut dyn FnMut(usize, Found)) {
        if memmem::find(&self.open, MARK).is_some() && reports(self.since, &self.open, found).is_some() {
            found(self.since, Err(CUT.to_owned()));
        }
        self.open.clear();
    }

    fn open(&mut self, number: usize, text: &[u8]) {
        self.since = number;
        self.open.extend_from_slice(text);
    }
}

/// Finds every report in a text. Returns the start of a document that does not end in this text.
fn reports(number: usize, text: &[u8], found: &mut dyn FnMut(usize, Found)) -> Option<usize> {
    let mut done = 0;
    let mut promises = 0;
    // No mark is examined twice.
    while let Some(mark) = memmem::find(&text[done..], MARK).map(|at| at + done) {
        let after = mark + MARK.len();
        let start = start(&text[done..mark]).map(|at| at + done);
        let version = version(&text[mark..]);
        let (result, end) = match start {
            None => (Err("the beginning of the report is not in this line".to_owned()), after),
            Some(_) if version.as_deref() != Some(SCHEMA) => (Err(other_schema(version.as_deref())), after),
            Some(start) => {
                // The document may end before the first byte that is not UTF-8.
                let rest = match std::str::from_utf8(&text[start..]) {
                    Ok(rest) => rest,
                    Err(error) => {
                        std::str::from_utf8(&text[start..start + error.valid_up_to()]).unwrap_or("")
                    }
                };
                let mut documents = serde_json::Deserializer::from_str(rest).into_iter::<Brief>();
                match documents.next() {
                    Some(Ok(report)) if report.schema == SCHEMA => {
                        (Ok(report), (start + documents.byte_offset()).max(after))
                    }
                    Some(Ok(report)) => (Err(other_schema(Some(&report.schema))), after),
                    Some(Err(error)) if error.classify() == Category::Eof => {
                        if rest.len() < text.len() - start {
                            (Err("it is cut, or not UTF-8 text".to_owned()), after)
                        } else if memmem::find(&text[after..], MARK).is_some() {
                            (Err(CUT.to_owned()), after)
                        } else {
                            return Some(start);
                        }
                    }
                    Some(Err(error)) => (Err(why(&error)), after),
                    None => return Some(start),
                }
            }
        };
        promises += usize::from(result.is_err());
        found(number, result);
        if promises >= PROMISES {
            found(
                number,
                Err("rdma-init stopped reading this line, because too much of it is cut".to_owned()),
            );
            return None;
        }
        done = end;
    }
    None
}

/// Returns the start of the document that contains the mark: the brace right before its `"schema"` or,
/// if the keys are in another order, the first brace that is followed by a key.
fn start(before: &[u8]) -> Option<usize> {
    let last = memchr::memrchr(b'{', before)?;
    let between = before[last + 1..].trim_ascii();
    let is_first = between.strip_suffix(b":").is_some_and(|key| key.trim_ascii_end() == b"\"schema\"");
    let has_key = |&at: &usize| before[at + 1..].trim_ascii_start().first() == Some(&b'"');
    if is_first { Some(last) } else { memchr::memchr_iter(b'{', before).find(has_key) }
}

/// Returns the version in the text that begins with the mark.
fn version(text: &[u8]) -> Option<String> {
    let text = text.get(1..)?;
    let end = memchr::memchr(b'"', &text[..text.len().min(100)])?;
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

fn other_schema(version: Option<&str>) -> String {
    match version {
        Some(version) => format!("its schema is {version}, but this rdma-init reads {SCHEMA}"),
        None => CUT.to_owned(),
    }
}

fn why(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => format!("not in the form that this rdma-init writes: {error}"),
        _ => format!("not JSON, or cut and mixed with another line: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::report::Report;

    fn report(host: &str) -> Report {
        Report { schema: SCHEMA.into(), host: host.into(), ..Report::default() }
    }

    /// Returns the lines in which reports begin, each with its host or with what is wrong with it.
    fn found(text: &[u8]) -> Vec<(usize, String)> {
        let mut all = Vec::new();
        let mut finder = Finder::default();
        let mut add =
            |line, found: Found| all.push((line, found.map_or_else(|why| why, |report| report.host)));
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            finder.line(index + 1, ReadLine::Whole, line, &mut add);
        }
        finder.end(&mut add);
        all
    }

    #[test]
    fn a_report_ends_where_it_ends() {
        let [a, b] = ["a", "b"].map(|host| serde_json::to_string(&report(host)).unwrap());
        let pretty = serde_json::to_string_pretty(&report("c")).unwrap();
        let text = format!("{{\n[1]{a}x{b}\n{pretty}\n{a}");
        let lines = pretty.lines().count();
        let wanted = [(2, "a"), (2, "b"), (3, "c"), (3 + lines, "a")];
        assert_eq!(found(text.as_bytes()), wanted.map(|(line, host)| (line, host.to_owned())));
    }

    #[test]
    fn whatever_is_cut_hides_no_report_that_is_whole() {
        let whole = serde_json::to_string(&report("whole")).unwrap();
        let pretty = serde_json::to_string_pretty(&report("pretty")).unwrap();
        for text in [&whole, &pretty] {
            for end in 0..text.len() {
                for between in ["", "\n"] {
                    let input = format!("{}{between}{whole}", &text[..end]);
                    let hosts = found(input.as_bytes());
                    assert_eq!(hosts.last().map(|(_, host)| host.as_str()), Some("whole"), "{input}");
                    assert!(hosts.len() <= 2, "{input}: {hosts:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_panic() {
        let mut bytes = serde_json::to_vec(&report("a")).unwrap();
        bytes.extend_from_slice(b"\xff\xfe");
        assert_eq!(found(&bytes), [(1, "a".to_owned())]);
        let middle = bytes.len() / 2;
        bytes[middle] = 0xff;
        assert_eq!(found(&bytes), [(1, "it is cut, or not UTF-8 text".to_owned())]);
        assert_eq!(found(MARK).len(), 1);
    }
}
