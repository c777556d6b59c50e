//! The client's side of RAS's protocol (`src/ras/client_support.cc`). The client sends lines of text, all
//! at once, and reads until the server closes the connection. Pure.

use std::fmt::Write;
use std::time::Duration;

use super::answer::Answer;
use super::{json, text};
use crate::text::{shortened, visible};

/// The most bytes in an answer. JSON takes about 600 for a rank in each of its communicators.
pub(super) const LONGEST: usize = 16 * 1024 * 1024;

/// The most ranks in an answer, over all communicators.
pub(super) const MOST_RANKS: usize = 100_000;

/// Why bytes are not an answer of RAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Another program answers, with these first words.
    Foreign(String),
    /// RAS rejects the request with these words.
    Refused(String),
    /// The answer is incomplete.
    Cut,
    /// There are more ranks than [`MOST_RANKS`].
    TooManyRanks,
    /// The document does not have NCCL's format, for this reason.
    Malformed(String),
}

/// Returns the lines that ask for everything. A server that does not know JSON reports this, and answers in
/// text. `patience` is how long the server waits for ranks that do not answer it.
pub(super) fn question(patience: Duration) -> Vec<u8> {
    let mut lines = String::from("CLIENT PROTOCOL 2\n");
    // A server takes 0 as no limit.
    let _ = writeln!(lines, "TIMEOUT {}", patience.as_secs().max(1));
    lines.push_str("SET FORMAT json\nVERBOSE STATUS\n");
    lines.into_bytes()
}

/// How a server greets.
const GREETING: &[u8] = b"SERVER PROTOCOL ";

/// Returns what another program has sent by now; `None` if that may be the start of an answer.
pub(super) fn foreign(bytes: &[u8]) -> Option<String> {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let start = bytes.get(..GREETING.len()).unwrap_or(bytes);
    (!GREETING.starts_with(start)).then(|| shown(first))
}

/// Reads everything that a server has sent.
///
/// # Errors
/// It is not an answer, or it is incomplete.
pub(super) fn read(bytes: &[u8]) -> Result<Answer, Unreadable> {
    let (greeting, rest) = line(bytes);
    if !greeting.starts_with(GREETING) {
        return Err(match greeting {
            b"" => Unreadable::Cut,
            words => Unreadable::Foreign(shown(words)),
        });
    }
    let (timeout, rest) = line(rest);
    let (format, rest) = line(rest);
    let speaks_json = match (timeout, format) {
        (b"", _) | (_, b"") => return Err(Unreadable::Cut),
        (b"OK", b"OK") => true,
        (b"OK", refusal) if refusal.starts_with(b"ERROR") => false,
        (b"OK", other) | (other, _) => return Err(Unreadable::Refused(shown(other))),
    };
    if speaks_json { json::read(rest) } else { text::read(rest) }
}

/// Returns the first line without its end, and what follows it. A line without an end counts as empty.
fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (b"", b""),
    }
}

fn shown(words: &[u8]) -> String {
    let start = words.get(..words.len().min(400)).unwrap_or_default();
    visible(&shortened(String::from_utf8_lossy(start).trim_end()))
}
