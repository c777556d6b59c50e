//! Reads RAS's answer as JSON, which NCCL 2.28.7 and later write. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::answer::{Answer, Collective, Communicator, CommunicatorId, Place, Rank, State};
use super::protocol::{MOST_RANKS, Unreadable};

/// The most objects in a document; each rank has three.
const MOST_OBJECTS: usize = 3 * MOST_RANKS;

/// The most kinds of collectives for one rank. NCCL counts five.
const MOST_KINDS: usize = 16;

/// `ncclInProgress`: the operation has not failed so far.
const IN_PROGRESS: i64 = 7;

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    nccl_version: Cow<'a, str>,
    #[serde(borrow)]
    communicators: Vec<OneCommunicator<'a>>,
}

#[derive(Deserialize)]
struct OneCommunicator<'a> {
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow, default)]
    secondary_hash: Cow<'a, str>,
    size: u32,
    #[serde(borrow)]
    ranks: Vec<OneRank<'a>>,
    #[serde(borrow, default)]
    missing_ranks: Vec<OneRank<'a>>,
}

/// A rank that answered, or one that is missing; they differ only in their status.
#[derive(Deserialize)]
struct OneRank<'a> {
    rank: u32,
    #[serde(borrow, default)]
    host: Cow<'a, str>,
    /// -1 if the PID is unknown.
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    cuda_dev: i64,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    collective_counts: Counts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    init_state: i64,
    async_error: i64,
    finalize_called: bool,
    destroy_flag: bool,
    abort_flag: bool,
    unresponsive: bool,
    considered_dead: bool,
}

#[derive(Default)]
struct Counts(Vec<(Collective, u64)>);

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Counts, D::Error> {
        struct OfCounts;
        impl<'de> Visitor<'de> for OfCounts {
            type Value = Counts;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("how often each collective was launched")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counts, A::Error> {
                let mut counts = Vec::new();
                while let Some((name, times)) = map.next_entry::<Cow<str>, u64>()? {
                    if counts.len() < MOST_KINDS {
                        counts.push((Collective::from(&*name), times));
                    }
                }
                counts.shrink_to_fit();
                Ok(Counts(counts))
            }
        }
        deserializer.deserialize_map(OfCounts)
    }
}

/// Reads an answer in this format.
///
/// # Errors
/// The bytes are not such a document, or it is too large.
pub(super) fn read(bytes: &[u8]) -> Result<Answer, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|error| Unreadable::Malformed(error.to_string()))?;
    let text = mended(text)?;
    let document: Document = serde_json::from_str(&text).map_err(|error| match error.is_eof() {
        true => Unreadable::Cut,
        false => Unreadable::Malformed(error.to_string()),
    })?;
    let mut communicators: Vec<Communicator> = document.communicators.into_iter().map(communicator).collect();
    communicators.sort_by_key(|communicator| communicator.id);
    Ok(Answer {
        release: document.nccl_version.into_owned(),
        total: communicators.len(),
        communicators,
        lost: Vec::new(),
    })
}

fn communicator(found: OneCommunicator) -> Communicator {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_default();
    let (host, pid) = found.secondary_hash.split_once(':').unwrap_or_default();
    let id = CommunicatorId([number(&found.hash), number(host), number(pid)]);
    let there = found.ranks.into_iter().map(|rank| (answered(&rank.status), rank));
    let missing = found.missing_ranks.into_iter().map(|rank| (unanswered(&rank.status), rank));
    let mut ranks: Vec<Rank> = there.chain(missing).map(|(state, found)| rank(state, found)).collect();
    ranks.sort_by_key(|rank| rank.number);
    ranks.dedup_by_key(|rank| rank.number);
    let mut communicator = Communicator { id, size: found.size, ranks, unequal: Vec::new() };
    communicator.compare_counts();
    communicator
}

fn rank(state: State, found: OneRank) -> Rank {
    let place = u32::try_from(found.pid).ok().filter(|_| !found.host.is_empty()).map(|pid| Place {
        host: (&*found.host).into(),
        pid,
        gpu: i32::try_from(found.cuda_dev).unwrap_or(-1),
    });
    Rank { number: found.rank, place, state, counts: found.collective_counts.0 }
}

/// Returns the state in RAS's own order of importance (`rasClientRunComms`), except that an error takes
/// precedence.
fn answered(status: &Status) -> State {
    let is_error = |code: i64| code != 0 && code != IN_PROGRESS;
    match status {
        Status { init_state, .. } if is_error(*init_state) => State::Failed(*init_state),
        Status { async_error, .. } if is_error(*async_error) => State::Failed(*async_error),
        Status { abort_flag: true, .. } => State::Aborting,
        Status { finalize_called: true, .. } | Status { destroy_flag: true, .. } => State::Finalizing,
        Status { init_state: 0, .. } => State::Running,
        _ => State::Initializing,
    }
}

fn unanswered(status: &Status) -> State {
    match (status.considered_dead, status.unresponsive) {
        (true, _) => State::Dead,
        (false, true) => State::Missing,
        (false, false) => State::Absent,
    }
}

/// Returns the text with the comma that NCCL 2.28.7 and 2.28.9 omit in each missing rank: between the
/// number of `nvml_dev` and the key `status`. In valid JSON, a number never directly precedes a key.
///
/// # Errors
/// The text has more objects and lists than any job has.
fn mended(text: &str) -> Result<Cow<'_, str>, Unreadable> {
    /// The kind of the last token.
    #[derive(Clone, Copy)]
    enum Last {
        Key,
        Colon,
        /// The number, with the position of its end.
        Number(usize),
        Other,
    }
    let bytes = text.as_bytes();
    let (mut last, mut objects, mut commas) = (Last::Other, 0, Vec::new());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        last = match (byte, last) {
            (b'"', last) => {
                let end = end_of_string(bytes, at + 1);
                let string = bytes.get(at + 1..end).unwrap_or_default();
                if let (Last::Number(place), b"status") = (last, string) {
                    commas.push(place);
                }
                at = end;
                if string == b"nvml_dev" { Last::Key } else { Last::Other }
            }
            (b' ' | b'\t' | b'\n' | b'\r', last) => last,
            (b':', Last::Key) => Last::Colon,
            (b'-' | b'0'..=b'9', Last::Colon) => Last::Number(at + 1),
            (b'0'..=b'9', Last::Number(end)) if end == at => Last::Number(at + 1),
            (b'{' | b'[', _) => {
                objects += 1;
                Last::Other
            }
            _ => Last::Other,
        };
        if objects > MOST_OBJECTS {
            return Err(Unreadable::TooManyRanks);
        }
        at += 1;
    }
    if commas.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let mut whole = String::with_capacity(text.len() + commas.len());
    let mut start = 0;
    for place in commas {
        whole.push_str(text.get(start..place).unwrap_or_default());
        whole.push(',');
        start = place;
    }
    whole.push_str(text.get(start..).unwrap_or_default());
    Ok(Cow::Owned(whole))
}

/// Returns the position of the quotation mark that ends a string, or the end of the text.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at;
        }
        // A byte after a backslash does not end the string.
        at += 2;
    }
    bytes.len()
}
