//! Reads RAS's answer as text. All versions support it, and those before 2.28.7 support nothing else. It is
//! meant for people, so it counts what is alike, and lists only the ranks that differ from most others.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{
    Answer, Collective, Communicator, CommunicatorId, Host, Launched, LostProcess, Place, Rank, State,
    Unequal,
};
use super::protocol::{MOST_RANKS, Unreadable};

/// The most groups of communicators, and the most communicators with a report.
const MOST_COMMUNICATORS: usize = 10_000;

/// The most lines about ranks: for each rank, one about its state and one about each of five kinds of
/// collectives.
const MOST_LINES: usize = 6 * MOST_RANKS;

/// The most ranks on one line: NCCL writes less than 1024 bytes there.
const MOST_ON_LINE: usize = 1024;

/// Reads an answer in this format.
///
/// # Errors
/// The bytes are not such a text, or it is incomplete.
pub(super) fn read(bytes: &[u8]) -> Result<Answer, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|error| Unreadable::Malformed(error.to_string()))?;
    let mut lines = text.lines();
    let release = lines.next().and_then(|line| line.strip_prefix("NCCL version "));
    let release = release.and_then(|rest| rest.split(' ').next());
    let release = release.ok_or_else(|| Unreadable::Malformed("it names no NCCL version".to_owned()))?;
    let mut report = Report::default();
    for line in lines {
        report.take(line)?;
    }
    // The last section is always present, even if it is empty.
    if !report.has_warnings {
        return Err(Unreadable::Cut);
    }
    Ok(report.into_answer(release))
}

/// What was read from the lines so far.
#[derive(Default)]
struct Report {
    has_warnings: bool,
    total: usize,
    /// The status and the size of each group of communicators.
    groups: BTreeMap<u32, (State, u32)>,
    communicators: BTreeMap<CommunicatorId, Reported>,
    lost: Vec<LostProcess>,
    ranks: usize,
    /// The number of lines about ranks.
    lines: usize,
    /// What the next indented lines describe.
    about: About,
}

/// A communicator with a report.
struct Reported {
    communicator: Communicator,
    /// The status of its group in the table.
    status: State,
    ranks: BTreeMap<u32, Rank>,
}

/// What an indented line describes.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum About {
    #[default]
    Nothing,
    /// Processes that RAS cannot reach.
    Lost { are_dead: bool },
    /// Ranks of a communicator that have this in common.
    Ranks(CommunicatorId, Shared),
}

/// What the ranks in the next lines have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    Nothing,
    State(State),
    /// How often they launched the communicator's last-mentioned collective.
    Launched(u64),
}

impl Report {
    fn take(&mut self, line: &str) -> Result<(), Unreadable> {
        if let Some(detail) = line.strip_prefix("  ").filter(|detail| !detail.starts_with(' ')) {
            return self.detail(detail);
        }
        match line {
            "Warnings" => self.has_warnings = true,
            "INCOMPLETE" => self.about = About::Lost { are_dead: false },
            "DEAD" => self.about = About::Lost { are_dead: true },
            // A blank line may also separate the collectives of one communicator.
            "" => {}
            _ if line.starts_with('#') => self.about = self.heading(line).unwrap_or_default(),
            _ => {
                self.about = About::Nothing;
                self.row(line);
            }
        }
        Ok(())
    }

    /// Reads a group in the table: `0  1  1  3  3  3  RUNNING  INCOMPLETE,MISMATCH`.
    fn row(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().take(9).collect();
        let [group, count, _, _, size, _, status, _] = words.as_slice() else { return None };
        let (group, count, size) = (group.parse().ok()?, count.parse::<usize>().ok()?, size.parse().ok()?);
        let status = state(status)?;
        if self.groups.len() < MOST_COMMUNICATORS {
            self.groups.insert(group, (status, size));
            self.total = self.total.saturating_add(count);
        }
        Some(())
    }

    /// Reads the heading of a report about a communicator: `#0-0 (a57a03d96a6ff465) INCOMPLETE`.
    fn heading(&mut self, line: &str) -> Option<About> {
        let (place, rest) = line.strip_prefix('#')?.split_once(" (")?;
        let (hash, kind) = rest.split_once(") ")?;
        let group = place.split_once('-')?.0.parse().ok()?;
        let id = CommunicatorId([u64::from_str_radix(hash, 16).ok()?, 0, 0]);
        let (status, size) = *self.groups.get(&group)?;
        if !self.communicators.contains_key(&id) && self.communicators.len() < MOST_COMMUNICATORS {
            let communicator = Communicator { id, size, ..Communicator::default() };
            self.communicators.insert(id, Reported { communicator, status, ranks: BTreeMap::new() });
        }
        Some(match kind {
            "INCOMPLETE" => About::Ranks(id, Shared::State(State::Missing)),
            // Until a line says what the ranks have in common.
            "ERROR" => About::Ranks(id, Shared::Nothing),
            "MISMATCH" => About::Ranks(id, Shared::State(status)),
            _ => About::Nothing,
        })
    }

    fn detail(&mut self, line: &str) -> Result<(), Unreadable> {
        match self.about {
            About::Nothing => {}
            About::Lost { are_dead } => self.lost.extend(process(line).map(|(pid, host)| LostProcess {
                host,
                pid,
                is_dead: are_dead,
            })),
            About::Ranks(id, shared) => {
                let now = self.of_ranks(id, shared, line);
                self.about = About::Ranks(id, now.unwrap_or(shared));
            }
        }
        self.lines += 1;
        match self.ranks.max(self.lost.len()) > MOST_RANKS || self.lines > MOST_LINES {
            true => Err(Unreadable::TooManyRanks),
            false => Ok(()),
        }
    }

    /// Reads a line about ranks of a communicator. If the line announces what the ranks in the next lines
    /// have in common, returns it.
    fn of_ranks(&mut self, id: CommunicatorId, shared: Shared, line: &str) -> Option<Shared> {
        let Reported { communicator, status, ranks } = self.communicators.get_mut(&id)?;
        if let Some(rest) = line.strip_prefix("Communicator ranks have different ") {
            if let Some(name) = rest.strip_suffix(" operation counts") {
                let name = if name == "collective" { name } else { name.split(' ').next()? };
                let collective = Collective::from(name);
                communicator.unequal.push(Unequal { collective, groups: Vec::new() });
            }
            return None;
        }
        // Up to 2.25, the line has only numbers.
        let numbers = ["The missing rank", "The unknown rank"].iter().find_map(|start| {
            let rest = line.strip_prefix(start)?;
            rest.strip_prefix("s: ").or_else(|| rest.strip_prefix(": "))
        });
        if let Some(numbers) = numbers {
            let Shared::State(state) = shared else { return None };
            for number in numbers.split(',').take(MOST_ON_LINE).filter_map(|number| number.parse().ok()) {
                self.ranks += usize::from(
                    ranks.insert(number, Rank { number, place: None, state, counts: Vec::new() }).is_none(),
                );
            }
            return None;
        }
        if let Some((count, said)) = line.split_once(" ranks ") {
            // Several ranks have something in common, and the following lines may list them.
            let count: usize = count.parse().ok()?;
            let shared = said_of(said)?;
            if let Shared::Launched(times) = shared
                && let Some(last) = communicator.unequal.last_mut()
            {
                last.groups.push(Launched { times, ranks: count, listed: Vec::new() });
            }
            return Some(shared);
        }
        let rest = line.strip_prefix("Rank ")?;
        let (number, rest) = rest.split_once(' ')?;
        let number: u32 = number.parse().ok()?;
        let (said, place) = match rest.strip_prefix("-- ") {
            Some(place) => ("", place),
            None => rest.split_once(" -- ").unwrap_or((rest, "")),
        };
        // If only one rank does something, no line before it announces this.
        let is_alone = !said.is_empty();
        let of_rank = if is_alone { said_of(said)? } else { shared };
        let entry = ranks.entry(number).or_insert_with(|| {
            self.ranks += 1;
            Rank { number, place: None, state: *status, counts: Vec::new() }
        });
        entry.place = entry.place.take().or_else(|| self::place(place));
        match of_rank {
            Shared::Nothing => {}
            Shared::State(state) => entry.state = state,
            Shared::Launched(times) => {
                let last = communicator.unequal.last_mut()?;
                if is_alone {
                    last.groups.push(Launched { times, ranks: 1, listed: vec![number] });
                } else {
                    last.groups.last_mut()?.listed.push(number);
                }
                entry.counts.push((last.collective.clone(), times));
            }
        }
        None
    }

    fn into_answer(self, release: &str) -> Answer {
        let dead = self.lost.iter().filter(|lost| lost.is_dead);
        let dead: BTreeSet<(u32, &Host)> = dead.map(|lost| (lost.pid, &lost.host)).collect();
        let is_dead = |place: &Place| dead.contains(&(place.pid, &place.host));
        let finished = |Reported { mut communicator, ranks, .. }: Reported| {
            communicator.ranks = ranks.into_values().collect();
            for rank in &mut communicator.ranks {
                if rank.state == State::Missing && rank.place.as_ref().is_some_and(is_dead) {
                    rank.state = State::Dead;
                }
            }
            communicator.unequal.sort_by(|one, other| one.collective.cmp(&other.collective));
            for unequal in &mut communicator.unequal {
                unequal.groups.sort_by_key(|group| std::cmp::Reverse(group.times));
            }
            communicator
        };
        let communicators: Vec<Communicator> = self.communicators.into_values().map(finished).collect();
        // A process with listed ranks is represented by them.
        let listed: BTreeSet<(u32, &Host)> = communicators
            .iter()
            .flat_map(|communicator| communicator.ranks.iter())
            .filter_map(|rank| rank.place.as_ref().map(|place| (place.pid, &place.host)))
            .collect();
        let is_unlisted = |lost: &LostProcess| !listed.contains(&(lost.pid, &lost.host));
        let lost: Vec<LostProcess> = self.lost.iter().filter(|lost| is_unlisted(lost)).cloned().collect();
        Answer { release: release.to_owned(), total: self.total, communicators, lost }
    }
}

fn state(word: &str) -> Option<State> {
    Some(match word {
        "INIT" => State::Initializing,
        "RUNNING" => State::Running,
        "FINALIZE" => State::Finalizing,
        "ABORT" => State::Aborting,
        // `UNKNOWN` is the word before 2.26.
        "NOCOMM" | "UNKNOWN" => State::Absent,
        _ => return None,
    })
}

/// Returns what a line says about one or more ranks.
fn said_of(said: &str) -> Option<Shared> {
    if let Some(word) = said.strip_prefix("has status ").or_else(|| said.strip_prefix("have status ")) {
        return state(word).map(Shared::State);
    }
    let launched = ["has launched up to operation ", "have launched up to operation "];
    if let Some(times) = launched.iter().find_map(|start| said.strip_prefix(start)) {
        return times.parse().ok().map(Shared::Launched);
    }
    if matches!(said, "has not launched any operations" | "have not launched any operations") {
        return Some(Shared::Launched(0));
    }
    /// The texts of `ncclErrorToString`, indexed by code.
    const ERRORS: [&str; 7] = [
        "",
        "Unhandled CUDA error",
        "System error",
        "Internal error",
        "Invalid argument",
        "Invalid usage",
        "Remote process error",
    ];
    let error = said.strip_prefix("reported ")?;
    let code = ERRORS.iter().position(|known| *known == error).and_then(|code| i64::try_from(code).ok());
    Some(Shared::State(State::Failed(code.unwrap_or(-1))))
}

/// Parses `GPU 1 (NVML 3) managed by process 3134 on node 127.0.0.1`.
fn place(text: &str) -> Option<Place> {
    let (gpu, rest) = text.strip_prefix("GPU ")?.split_once(" managed by process ")?;
    let (pid, host) = rest.split_once(" on node ")?;
    let gpu = gpu.split(' ').next()?.parse().ok()?;
    Some(Place { host: host.into(), pid: pid.parse().ok()?, gpu })
}

/// Parses `Process 3134 on node 127.0.0.1 managing GPU 1`.
fn process(line: &str) -> Option<(u32, Host)> {
    let (pid, rest) = line.strip_prefix("Process ")?.split_once(" on node ")?;
    let (host, _) = rest.split_once(" managing ")?;
    Some((pid.parse().ok()?, host.into()))
}
