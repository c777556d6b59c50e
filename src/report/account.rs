//! The account of a job's ports: lines for people, and a document.

use std::time::Duration;

use serde::Serialize;

use crate::facts::congestion::Congestion;
use crate::facts::port_errors::Rise;
use crate::facts::port_look::GidPlace;
use crate::facts::traffic::{CounterValue, Traffic};
use crate::finding::{Finding, Id};
use crate::findings::port_errors::sentence;
use crate::text::{amount, condensed, counted, duration, visible};
use crate::watch::account::{Account, Ago, Rail, Unit, Watched};
use crate::watch::track::{Spell, Track};

/// When the account is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// While the job runs.
    Running,
    /// When its command has ended.
    AtEnd,
}

/// Returns a line for all rails that were well, and one for each other rail, without the full stop. Empty if nothing
/// is counted, and nothing was wrong. What `findings` say, which are printed below, is left out.
pub(crate) fn lines(account: &Account, when: When, findings: &[Finding]) -> Vec<String> {
    lines_of_rails(account, when, findings).into_iter().map(|(line, _)| line).collect()
}

/// Returns the same lines, each with its rail if that was not well.
pub(crate) fn lines_of_rails<'a>(
    account: &'a Account,
    when: When,
    findings: &[Finding],
) -> Vec<(String, Option<&'a Rail>)> {
    let is_told = |id| findings.iter().any(|finding| finding.id == id);
    let (nothing_moved, idle_rails) = (is_told(Id::NoTraffic), is_told(Id::IdleRail));
    let (well, unwell): (Vec<&Rail>, Vec<&Rail>) =
        account.rails.iter().partition(|rail| rail.is_well(account.ran));
    let unit = account.unit();
    let together = unit.filter(|_| !well.is_empty()).and_then(|unit| {
        let (line, idle) = all_well(account, &well, unit);
        match idle {
            Idle::All => (!nothing_moved).then_some(line),
            Idle::Some(names) if !idle_rails => Some(format!("{line}; {names} moved nothing")),
            Idle::Some(_) | Idle::None => Some(line),
        }
    });
    // Rails of which each counts something else have a line each.
    let apart: Vec<String> = match unit {
        Some(_) => Vec::new(),
        None => well
            .iter()
            .filter_map(|rail| Some(format!("{} {}", name(rail), moved(rail.track.moved)?)))
            .collect(),
    };
    let unwell = unwell.into_iter().map(|rail| (not_well(account, rail, when), Some(rail)));
    let others = rest(account, when).into_iter().chain(pauses(account));
    let others = others.chain(account.omitted.iter().cloned());
    let others = others.chain(unseen(account, when)).map(|line| (line, None));
    let well = together.into_iter().chain(apart).map(|line| (line, None));
    well.chain(unwell).chain(others).collect()
}

/// Says that nothing has moved for long.
fn rest(account: &Account, when: When) -> Option<String> {
    let time = in_seconds(account.rest()?);
    Some(match when {
        When::Running => format!("No data has moved for {time}"),
        When::AtEnd => format!("No data has moved in the last {time} of the job"),
    })
}

/// Says that data moved again after pauses that were worth a line.
fn pauses(account: &Account) -> Option<String> {
    let (count, longest) = account.pauses;
    let times = counted(count as usize, "time");
    let up_to = if count == 1 { "for" } else { "for up to" };
    (count > 0).then(|| format!("Traffic paused {times} {up_to} {}, and went on", in_seconds(longest)))
}

/// Says that the account does not cover the whole time, if a watcher was to see to that.
fn unseen(account: &Account, when: When) -> Option<String> {
    const REST: &str = "what happened on the ports since then shows only in their counters";
    let Watched::Until(at) = account.watched else { return None };
    if at.is_zero() {
        return Some(format!("The watcher ended before its first look; {REST}"));
    }
    let before = in_seconds(account.ran.saturating_sub(at));
    Some(match when {
        When::Running => format!("The watcher has not looked for {before}; {REST}"),
        When::AtEnd => format!("The watcher's last look was {before} before the end; {REST}"),
    })
}

/// Which rails have moved nothing.
enum Idle {
    None,
    /// Those with these names.
    Some(String),
    All,
}

/// `8 rails (mlx5_0..mlx5_7) sent 2 TiB and received 2 TiB, 12 to 13 % each, without an error`.
fn all_well(account: &Account, rails: &[&Rail], unit: Unit) -> (String, Idle) {
    let whole = rails.iter().fold(Traffic::default(), |sum, rail| sum.plus(rail.track.moved));
    let (idle, busy): (Vec<&Rail>, Vec<&Rail>) = rails.iter().partition(|rail| rail.amount(unit) == Some(0));
    let named = if busy.is_empty() { rails } else { busy.as_slice() };
    let names: Vec<String> = named.iter().map(|rail| name(rail)).collect();
    let who = match &names[..] {
        [one] => one.clone(),
        names => format!("{} rails ({})", names.len(), condensed(names)),
    };
    // What is not counted does not show that there was no error.
    let counts_losses = |rail: &&Rail| rail.track.last.errors.counts_losses();
    let error = match (rails.iter().all(counts_losses), rails.iter().all(|rail| rail.is_without_errors())) {
        (false, _) => "and no error is visible",
        (true, true) => "without an error",
        (true, false) => "with no more errors than usual",
    };
    if busy.is_empty() && unit != Unit::Requests {
        return (format!("{who} moved no data, {error}"), Idle::All);
    }
    let mut percents: Vec<u64> = busy.iter().filter_map(|rail| percent(account, rail)).collect();
    percents.sort_unstable();
    let shares = match (account.rails.len(), percents.first(), percents.last()) {
        (1, ..) | (_, None, _) | (_, _, None) => String::new(),
        (_, Some(least), Some(most)) => {
            let range = if least == most { format!("{least} %") } else { format!("{least} to {most} %") };
            if busy.len() > 1 { format!(", {range} each") } else { format!(", {range}") }
        }
    };
    let idle: Vec<String> = idle.into_iter().map(name).collect();
    let idle = match idle.is_empty() || busy.is_empty() {
        true => Idle::None,
        false => Idle::Some(condensed(&idle)),
    };
    let all = rails.iter().fold(Congestion::default(), |sum, rail| sum.plus(rail.congestion));
    let congestion = congestion(all).map(|congestion| format!("; {congestion}")).unwrap_or_default();
    (format!("{who} {}{shares}, {error}{congestion}", moved(whole).unwrap_or_default()), idle)
}

/// `congestion: 12 CNPs sent, 5 CNPs handled`; `None` if there was none, or nothing counts it.
fn congestion(of: Congestion) -> Option<String> {
    let counts = [
        (of.cnps_sent, "CNP", "sent"),
        (of.cnps_handled, "CNP", "handled"),
        (of.ecn_marked, "packet", "received with ECN's mark"),
    ];
    let counts = counts.into_iter().filter_map(|(count, thing, what)| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("{} {what}", counted(saturated(count), thing)))
    });
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| format!("congestion: {}", counts.join(", ")))
}

/// `mlx5_3 sent 3 GiB and received 3 GiB (9 %): its link went down 3 times`.
fn not_well(account: &Account, rail: &Rail, when: When) -> String {
    let name = name(rail);
    let share = match percent(account, rail).filter(|_| account.rails.len() > 1) {
        Some(percent) => format!(" ({percent} %)"),
        None => String::new(),
    };
    let troubles = troubles(account, rail, when).join("; ");
    match moved(rail.track.moved) {
        Some(moved) => format!("{name} {moved}{share}: {troubles}"),
        None => format!("{name}: {troubles}"),
    }
}

/// Returns what was wrong with a rail, the worst first.
fn troubles(account: &Account, rail: &Rail, when: When) -> Vec<String> {
    let Track { removals, was_hidden, was_renamed, .. } = rail.track;
    let mut told = Vec::new();
    if rail.is_gone() {
        told.push("its device is gone".to_owned());
    } else if rail.is_lost() {
        let state = rail.waits_for_manager().map(|state| format!(" ({state})")).unwrap_or_default();
        told.push(format!("it is no longer active{state}"));
    }
    let removals = removals as usize;
    if removals > usize::from(rail.is_gone()) {
        told.push(format!("its device was gone {}", counted(removals, "time")));
    }
    if rail.track.is_hidden() {
        told.push("its state cannot be read".to_owned());
    } else if was_hidden {
        told.push("its state could not be read for some time".to_owned());
    }
    match &rail.track.rail.now {
        Some(name) if rail.is_gone() => told.push(format!("it was {} when it was last there", visible(name))),
        Some(name) => told.push(format!("its device came back as {}", visible(name))),
        None if was_renamed => told.push("its device had another name for some time".to_owned()),
        None => {}
    }
    let (downs, is_least) = rail.downs();
    if downs > 0 {
        let ago = rail.down_ago(account.ran).filter(|_| !rail.is_lost());
        let last = ago.map(|ago| last(ago, when)).unwrap_or_default();
        let least = if is_least { "at least " } else { "" };
        told.push(format!("its link went down {least}{}{last}", counted(saturated(downs), "time")));
    }
    told.extend(lasting(account, rail));
    told.extend(rail.worth_telling(account.ran).map(sentence));
    told.extend(congestion(rail.congestion));
    told
}

/// Returns what else the watcher has warned of, and for how long it was so. One look at the end shows no time.
fn lasting(account: &Account, rail: &Rail) -> Vec<String> {
    let Track { slow, slow_rate, astray, place, behind, .. } = &rail.track;
    let time = |spell: &Spell| match account.watched {
        Watched::Never => String::new(),
        Watched::Until(_) | Watched::Throughout => format!(" for {}", in_seconds(spell.until(account.ran))),
    };
    let verb =
        |spell: &Spell, now: &'static str, before: &'static str| if spell.is_so() { now } else { before };
    let mut told = Vec::new();
    if slow.ever() {
        let first = rail.port.first.rate.as_ref();
        let first = first.map(|first| format!(" instead of {first}")).unwrap_or_default();
        told.push(format!("it {} at {slow_rate}{first}{}", verb(slow, "has run", "ran"), time(slow)));
    }
    if astray.ever() {
        let at = rail.port.gid.as_ref().map(|gid| format!(" {}", gid.index)).unwrap_or_default();
        let where_now = match place.filter(|_| astray.is_so()) {
            Some(GidPlace::At(now)) => format!(", and is at index {now}"),
            Some(GidPlace::Gone { .. }) => ", and is gone".to_owned(),
            Some(GidPlace::Retyped | GidPlace::InPlace) | None => String::new(),
        };
        let was = verb(astray, "has not been", "was not");
        told.push(format!("its GID {was} at index{at}{}{where_now}", time(astray)));
    }
    if behind.ever() {
        let moved = verb(behind, "has moved", "moved");
        told.push(format!("it {moved} far less than the other rails{}", time(behind)));
    }
    told
}

fn last(ago: Ago, when: When) -> String {
    let [least, most] = [ago.least, ago.most].map(in_seconds);
    match when {
        When::Running if ago.least == ago.most => format!(", last seen down {least} ago"),
        When::AtEnd if ago.least == ago.most => format!(", last seen down {least} before the end"),
        When::Running if ago.least.is_zero() => format!(", last some time in the last {most}"),
        When::AtEnd if ago.least.is_zero() => format!(", last some time in the last {most} of the job"),
        When::Running if least == most => format!(", last about {most} ago"),
        When::AtEnd if least == most => format!(", last about {most} before the end"),
        When::Running => format!(", last between {most} and {least} ago"),
        When::AtEnd => format!(", last between {most} and {least} before the end"),
    }
}

/// Looks are seconds apart, so that parts of a second mean nothing.
fn in_seconds(time: Duration) -> String {
    duration(Duration::from_secs(time.as_secs().max(1)))
}

fn name(rail: &Rail) -> String {
    rail.track.rail.first_name()
}

fn percent(account: &Account, rail: &Rail) -> Option<u64> {
    account.share(rail).map(|share| (share * 100.0).round() as u64)
}

fn moved(traffic: Traffic) -> Option<String> {
    let Traffic { sent, received, requests } = traffic;
    match requests {
        _ if traffic.is_amount_known() => {
            Some(format!("sent {} and received {}", shown_amount(sent), shown_amount(received)))
        }
        Some(count) => Some(format!("served {} of peers", counted(saturated(count), "RDMA request"))),
        None => None,
    }
}

/// In bytes, or in packets if only those are counted.
fn shown_amount(of: CounterValue) -> String {
    match of {
        CounterValue { bytes: Some(bytes), .. } => amount(bytes),
        CounterValue { packets: Some(packets), .. } => counted(saturated(packets), "packet"),
        CounterValue { .. } => "what is not counted".to_owned(),
    }
}

fn saturated(count: u64) -> usize {
    count.try_into().unwrap_or(usize::MAX)
}

/// The account for programs; docs/json.md describes it.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    message: String,
    seconds: f64,
    watched: bool,
    watched_seconds: Option<f64>,
    broken: bool,
    rested_seconds: Option<f64>,
    rails: Vec<RailDocument>,
}

#[derive(Debug, Serialize)]
struct RailDocument {
    hca: String,
    port: u32,
    #[serde(flatten, serialize_with = "Traffic::flat")]
    moved: Traffic,
    share: Option<f64>,
    well: bool,
    lost: bool,
    gone: bool,
    downs: u64,
    removals: u32,
    unreadable: bool,
    renamed: Option<String>,
    down_seconds_ago: Option<f64>,
    slow_seconds: f64,
    gid_astray_seconds: f64,
    behind_seconds: f64,
    errors: Vec<Rise>,
    congestion: Congestion,
}

impl Document {
    pub(crate) fn new(account: &Account, when: When) -> Document {
        Document {
            message: lines(account, when, &[])
                .into_iter()
                .map(|line| format!("{line}."))
                .collect::<Vec<_>>()
                .join(" "),
            seconds: account.ran.as_secs_f64(),
            watched: account.watched == Watched::Throughout,
            watched_seconds: match account.watched {
                Watched::Never => None,
                Watched::Until(at) => Some(at.as_secs_f64()),
                Watched::Throughout => Some(account.ran.as_secs_f64()),
            },
            broken: account.is_broken(),
            rested_seconds: account.rested.map(|time| time.as_secs_f64()),
            rails: account.rails.iter().map(|rail| rail_document(account, rail)).collect(),
        }
    }
}

fn rail_document(account: &Account, rail: &Rail) -> RailDocument {
    let seconds = |spell: Spell| spell.until(account.ran).as_secs_f64();
    let Track { rail: id, slow, astray, behind, .. } = &rail.track;
    RailDocument {
        hca: id.hca.clone(),
        port: id.port,
        moved: rail.track.moved,
        share: account.share(rail).map(|share| (share * 10_000.0).round() / 10_000.0),
        well: rail.is_well(account.ran),
        lost: rail.is_lost(),
        gone: rail.is_gone(),
        downs: rail.downs().0,
        removals: rail.track.removals,
        unreadable: rail.track.is_hidden(),
        renamed: id.now.clone(),
        down_seconds_ago: rail
            .down_ago(account.ran)
            .filter(|_| !rail.is_lost())
            .map(|ago| ago.most.as_secs_f64()),
        slow_seconds: seconds(*slow),
        gid_astray_seconds: seconds(*astray),
        behind_seconds: seconds(*behind),
        congestion: rail.congestion,
        errors: rail.rises.clone(),
    }
}

#[cfg(test)]
mod tests;
