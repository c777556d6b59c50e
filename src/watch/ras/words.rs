//! The sentence about what RAS shows: one line, with the names of hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::{Answer, Host, LostProcess, Place};
use super::judge::{Behind, Member, Verdict};
use super::names::Names;
use crate::text::{condensed_to, counted, shortened, visible};

/// The most hosts that a line names for one fault.
const MOST_HOSTS: usize = 4;

/// The most runs of ranks that a line names for one host.
const MOST_RUNS: usize = 8;

/// Returns a line about what the last answer shows; with `apart`, about two answers that arrived this far
/// apart.
pub(crate) fn line(answer: &Answer, verdict: &Verdict, apart: Option<Duration>, names: &Names) -> String {
    let source = format!("NCCL's RAS ({})", visible(&shortened(&answer.release)));
    if verdict.is_empty() {
        let communicators = counted(answer.total, "communicator");
        return format!(
            "{source} sees no rank that is missing, dead, failed or behind, in {communicators}. That does not prove that the job makes progress."
        );
    }
    let mut parts = Vec::new();
    if let (true, Some(apart)) = (verdict.hangs, apart) {
        let time = humantime::format_duration(Duration::from_secs(apart.as_secs()));
        parts.push(format!("the job hangs: in {time}, no rank has launched a collective"));
    }
    let said = |who: &[Member], one: &str, several: &str| {
        let says = if who.len() == 1 { one } else { several };
        (!who.is_empty()).then(|| format!("{} {says}", members(who, names)))
    };
    parts.extend(said(
        &verdict.dead,
        "is dead: RAS could not reach its process for a minute",
        "are dead: RAS could not reach their processes for a minute",
    ));
    parts.extend(said(&verdict.missing, "does not answer RAS", "do not answer RAS"));
    parts.extend(lost(verdict, names));
    for (code, who) in by_error(verdict).iter().take(MOST_HOSTS) {
        let reports = if who.len() == 1 { "reports" } else { "report" };
        parts.push(format!("{} {reports} {}", members(who, names), error(*code)));
    }
    parts.extend(said(
        &verdict.absent,
        "is not in the communicator in which others are",
        "are not in the communicator in which others are",
    ));
    parts.extend(behind(&verdict.behind, names));
    if apart.is_none() && !verdict.behind.is_empty() {
        parts.push("this is normal for a moment, and a hang only if it stays".to_owned());
    }
    format!("{source}: {}.", parts.join("; "))
}

/// Ranks on one host, in communicators of this size.
struct OnHost<'a> {
    size: u32,
    host: Option<&'a Host>,
    numbers: Vec<String>,
}

/// Returns the ranks, such as `rank 2 of 3 on gpu-17 (GPU 2, process 4711)` or `ranks 8..15 of 64 on
/// gpu-17, rank 20 of 64 on gpu-18`.
fn members(who: &[Member], names: &Names) -> String {
    let mut by_host: Vec<OnHost> = Vec::new();
    let mut others = 0;
    for Member { rank, size, .. } in who {
        let host = rank.place.as_ref().map(|place| &place.host);
        let number = rank.number.to_string();
        if let Some(known) = by_host.iter_mut().find(|known| (known.size, known.host) == (*size, host)) {
            known.numbers.push(number);
        } else if by_host.len() < MOST_HOSTS {
            by_host.push(OnHost { size: *size, host, numbers: vec![number] });
        } else {
            others += 1;
        }
    }
    let said = by_host.iter().map(|OnHost { size, host, numbers }| {
        let ranks = if numbers.len() == 1 { "rank" } else { "ranks" };
        let on = host.map(|host| format!(" on {}", names.name(host))).unwrap_or_default();
        format!("{ranks} {} of {size}{on}", condensed_to(numbers, MOST_RUNS))
    });
    let mut parts: Vec<String> = said.collect();
    if let ([member], Some(part)) = (who, parts.first_mut())
        && let Some(Place { pid, gpu, .. }) = &member.rank.place
    {
        part.push_str(&format!(" (GPU {gpu}, process {pid})"));
    }
    if others > 0 {
        parts.push(format!("{} on other hosts", counted(others, "rank")));
    }
    parts.join(", ")
}

/// Returns the processes that have no listed rank.
fn lost(verdict: &Verdict, names: &Names) -> Option<String> {
    let all = &verdict.lost;
    let name = |process: &LostProcess| {
        let dead = if process.is_dead { ", which RAS considers dead" } else { "" };
        format!("process {} on {}{dead}", process.pid, names.name(&process.host))
    };
    let shown: Vec<String> = all.iter().take(MOST_HOSTS).map(|process| name(process)).collect();
    let more = match all.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!all.is_empty()).then(|| format!("RAS does not reach {}{more}", shown.join(", ")))
}

/// Returns the ranks that report each error.
fn by_error<'a>(verdict: &Verdict<'a>) -> BTreeMap<i64, Vec<Member<'a>>> {
    let mut errors: BTreeMap<i64, Vec<Member>> = BTreeMap::new();
    for (member, code) in &verdict.failed {
        errors.entry(*code).or_default().push(*member);
    }
    errors
}

/// Returns the name of an `ncclResult_t` code.
fn error(code: i64) -> String {
    let name = match code {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        _ => return format!("NCCL's error {code}"),
    };
    format!("{name} (NCCL's error {code})")
}

/// Returns the ranks that are behind in the largest communicators. If a rank is behind in a smaller
/// communicator, the largest one waits for it as well.
fn behind(all: &[Behind], names: &Names) -> Vec<String> {
    let Some(largest) = all.first().map(|first| first.size) else { return Vec::new() };
    let of_largest = all.iter().filter(|behind| behind.size == largest).take(MOST_HOSTS);
    let said = of_largest.map(|behind| {
        let Behind { collective, others, times, .. } = behind;
        let collective = visible(&shortened(collective.name()));
        let times = match times {
            0 => format!("no {collective}"),
            // NCCL before 2.26 counts all kinds together.
            times if collective == "collective" => {
                counted(usize::try_from(*times).unwrap_or(usize::MAX), "collective")
            }
            times => format!("{times} x {collective}"),
        };
        let who = match behind.ranks.is_empty() {
            true => format!("{} of {}", counted(behind.count, "rank"), behind.size),
            false => members(&behind.ranks, names),
        };
        let (verb, has) = if behind.count == 1 { ("is", "it has") } else { ("are", "they have") };
        format!("{who} {verb} behind: {has} launched {times}, others {others}")
    });
    said.collect()
}
