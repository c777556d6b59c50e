//! The account of a job's ports: lines for people, and a document.

use std::time::Duration;

use serde::Serialize;

use crate::facts::port_errors::{Rise, Trouble};
use crate::facts::traffic::{CounterValue, Traffic};
use crate::finding::{Finding, Id};
use crate::text::{amount, condensed, counted, duration, visible};
use crate::watch::account::{Account, Ago, Rail, Unit, Watched};

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
            .filter_map(|rail| Some(format!("{} {}", name(account, rail), moved(rail.moved)?)))
            .collect(),
    };
    let unwell = unwell.into_iter().map(|rail| not_well(account, rail, when));
    together.into_iter().chain(apart).chain(unwell).chain(unseen(account, when)).collect()
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
    let whole = rails.iter().fold(Traffic::default(), |sum, rail| sum.plus(rail.moved));
    let (idle, busy): (Vec<&Rail>, Vec<&Rail>) = rails.iter().partition(|rail| rail.amount(unit) == Some(0));
    let named = if busy.is_empty() { rails } else { busy.as_slice() };
    let names: Vec<String> = named.iter().map(|rail| name(account, rail)).collect();
    let who = match &names[..] {
        [one] => one.clone(),
        names => format!("{} rails ({})", names.len(), condensed(names)),
    };
    if busy.is_empty() && unit != Unit::Requests {
        return (format!("{who} moved no data, without an error"), Idle::All);
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
    let idle: Vec<String> = idle.into_iter().map(|rail| name(account, rail)).collect();
    let idle = match idle.is_empty() || busy.is_empty() {
        true => Idle::None,
        false => Idle::Some(condensed(&idle)),
    };
    (format!("{who} {}{shares}, without an error", moved(whole).unwrap_or_default()), idle)
}

/// `mlx5_3 sent 3 GiB and received 3 GiB (9 %): its link went down 3 times`.
fn not_well(account: &Account, rail: &Rail, when: When) -> String {
    let name = name(account, rail);
    let share = match percent(account, rail).filter(|_| account.rails.len() > 1) {
        Some(percent) => format!(" ({percent} %)"),
        None => String::new(),
    };
    let troubles = troubles(account, rail, when).join("; ");
    match moved(rail.moved) {
        Some(moved) => format!("{name} {moved}{share}: {troubles}"),
        None => format!("{name}: {troubles}"),
    }
}

/// Returns what was wrong with a rail, the worst first.
fn troubles(account: &Account, rail: &Rail, when: When) -> Vec<String> {
    let mut told = Vec::new();
    if rail.is_gone {
        told.push("its device is gone".to_owned());
    } else if rail.is_lost {
        told.push("it is no longer active".to_owned());
    }
    let removals = rail.removals as usize;
    if removals > usize::from(rail.is_gone) {
        told.push(format!("its device was gone {}", counted(removals, "time")));
    }
    let (downs, is_least) = rail.downs;
    if downs > 0 {
        let last = rail.down_ago.filter(|_| !rail.is_lost).map(|ago| last(ago, when)).unwrap_or_default();
        told.push(format!("its link went down {}{last}", count(downs, is_least, "time")));
    }
    told.extend(rail.told(account.ran).map(trouble));
    told
}

fn last(ago: Ago, when: When) -> String {
    let [least, most] = [ago.least, ago.most].map(in_seconds);
    match when {
        When::Running if ago.least == ago.most => format!(", last seen down {least} ago"),
        When::AtEnd if ago.least == ago.most => format!(", last seen down {least} before the end"),
        When::Running if ago.least.is_zero() => format!(", last some time in the last {most}"),
        When::AtEnd if ago.least.is_zero() => format!(", last some time in the last {most} of the job"),
        When::Running => format!(", last between {most} and {least} ago"),
        When::AtEnd => format!(", last between {most} and {least} before the end"),
    }
}

/// Looks are seconds apart, so that parts of a second mean nothing.
fn in_seconds(time: Duration) -> String {
    duration(Duration::from_secs(time.as_secs().max(1)))
}

fn trouble(rise: &Rise) -> String {
    let Rise { trouble, counter, count: number, is_least } = *rise;
    let counted = |thing: &str| count(number, is_least, thing);
    match trouble {
        Trouble::NoAnswer => format!("{} failed without an answer from the peer", counted("queue pair")),
        Trouble::NotReady => format!("{} failed because the peer was not ready", counted("queue pair")),
        Trouble::FailedRequest => format!("{} failed ({counter})", counted("request")),
        _ => format!(
            "{counter} rose by {}",
            if is_least { format!("at least {number}") } else { number.to_string() }
        ),
    }
}

fn count(number: u64, is_least: bool, thing: &str) -> String {
    let least = if is_least { "at least " } else { "" };
    format!("{least}{}", counted(saturated(number), thing))
}

/// The port's number is shown if the job uses several ports of the device.
fn name(account: &Account, rail: &Rail) -> String {
    let is_one_of_several = account.rails.iter().filter(|other| other.hca == rail.hca).count() > 1;
    let number = if is_one_of_several { format!(":{}", rail.port) } else { String::new() };
    visible(&format!("{}{number}", rail.hca))
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
    rails: Vec<RailDocument>,
}

#[derive(Debug, Serialize)]
struct RailDocument {
    hca: String,
    port: u32,
    sent_bytes: Option<u64>,
    sent_packets: Option<u64>,
    received_bytes: Option<u64>,
    received_packets: Option<u64>,
    served_requests: Option<u64>,
    share: Option<f64>,
    well: bool,
    lost: bool,
    gone: bool,
    downs: u64,
    removals: u32,
    down_seconds_ago: Option<f64>,
    errors: Vec<ErrorDocument>,
}

#[derive(Debug, Serialize)]
struct ErrorDocument {
    counter: &'static str,
    count: u64,
    at_least: bool,
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
            rails: account.rails.iter().map(|rail| rail_document(account, rail)).collect(),
        }
    }
}

fn rail_document(account: &Account, rail: &Rail) -> RailDocument {
    let Traffic { sent, received, requests } = rail.moved;
    let error =
        |rise: &Rise| ErrorDocument { counter: rise.counter, count: rise.count, at_least: rise.is_least };
    RailDocument {
        hca: rail.hca.clone(),
        port: rail.port,
        sent_bytes: sent.bytes,
        sent_packets: sent.packets,
        received_bytes: received.bytes,
        received_packets: received.packets,
        served_requests: requests,
        share: account.share(rail).map(|share| (share * 10_000.0).round() / 10_000.0),
        well: rail.is_well(account.ran),
        lost: rail.is_lost,
        gone: rail.is_gone,
        downs: rail.downs.0,
        removals: rail.removals,
        down_seconds_ago: rail.down_ago.map(|ago| ago.most.as_secs_f64()),
        errors: rail.rises.iter().map(error).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(hca: &str, bytes: u64) -> Rail {
        let half = CounterValue { bytes: Some(bytes / 2), packets: Some(1) };
        Rail {
            hca: hca.to_owned(),
            port: 1,
            is_infiniband: false,
            moved: Traffic { sent: half, received: half, requests: None },
            rises: Vec::new(),
            is_lost: false,
            is_gone: false,
            downs: (0, false),
            removals: 0,
            down_ago: None,
        }
    }

    fn ago(least: u64, most: u64) -> Ago {
        Ago { least: Duration::from_millis(least), most: Duration::from_millis(most) }
    }

    fn account(rails: Vec<Rail>) -> Account {
        let beginning = Duration::from_secs(60);
        Account { ran: Duration::from_secs(3600), rails, watched: Watched::Throughout, beginning }
    }

    fn said(rails: Vec<Rail>) -> Vec<String> {
        lines(&account(rails), When::AtEnd, &[])
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_sound_job_has_one_line() {
        let rails = (0..8).map(|n| rail(&format!("mlx5_{n}"), (500 + n) * GIB)).collect();
        assert_eq!(
            said(rails),
            ["8 rails (mlx5_0..mlx5_7) sent 1.9 TiB and received 1.9 TiB, 12 to 13 % each, without an error"]
        );
        assert_eq!(said(vec![rail("a_0", 6 * GIB)]), ["a_0 sent 3 GiB and received 3 GiB, without an error"]);
        assert_eq!(
            said(vec![rail("a_0", 6 * GIB), rail("a_1", 6 * GIB)]),
            ["2 rails (a_0, a_1) sent 6 GiB and received 6 GiB, 50 % each, without an error"]
        );
        assert_eq!(
            said(vec![rail("a_0", 6 * GIB), rail("a_1", 0)]),
            ["a_0 sent 3 GiB and received 3 GiB, 100 %, without an error; a_1 moved nothing"]
        );
        assert_eq!(said(vec![rail("a_0", 0)]), ["a_0 moved no data, without an error"]);
        assert_eq!(said(Vec::new()), [""; 0]);
    }

    #[test]
    fn what_a_finding_says_is_not_said_twice() {
        let beside = |rails: Vec<Rail>| {
            let account = account(rails);
            lines(&account, When::AtEnd, &account.findings(false))
        };
        assert_eq!(beside(vec![rail("a_0", 0), rail("a_1", 0)]), [""; 0]);
        let busy = (0..3).map(|n| rail(&format!("a_{n}"), 6 * GIB));
        assert_eq!(
            beside(busy.chain([rail("a_3", 0)]).collect()),
            ["3 rails (a_0..a_2) sent 9 GiB and received 9 GiB, 33 % each, without an error"]
        );
        // That is no finding.
        assert_eq!(
            beside(vec![rail("a_0", 6 * GIB), rail("a_1", 0)]),
            ["a_0 sent 3 GiB and received 3 GiB, 100 %, without an error; a_1 moved nothing"]
        );
    }

    #[test]
    fn each_rail_that_was_not_well_has_a_line() {
        let rise = |trouble, counter, count| Rise { trouble, counter, count, is_least: false };
        let flapped = Rail {
            downs: (3, false),
            down_ago: Some(ago(4349, 4349)),
            rises: vec![
                rise(Trouble::LinkDown, "link_downed", 3),
                rise(Trouble::NoAnswer, "req_transport_retries_exceeded", 4),
                rise(Trouble::Timeout, "local_ack_timeout_err", 5),
            ],
            ..rail("a_1", 2 * GIB)
        };
        let gone = Rail {
            is_lost: true,
            is_gone: true,
            downs: (1, true),
            moved: Traffic::default(),
            down_ago: Some(ago(0, 0)),
            removals: 1,
            ..rail("a_2", 0)
        };
        let flaps = "its link went down 3 times, last seen down 4s before the end; 4 queue pairs failed without an answer from the peer";
        assert_eq!(
            said(vec![rail("a_0", 6 * GIB), flapped.clone(), rail("a_3", 8 * GIB)]),
            [
                "2 rails (a_0, a_3) sent 7 GiB and received 7 GiB, 38 to 50 % each, without an error"
                    .to_owned(),
                format!("a_1 sent 1 GiB and received 1 GiB (13 %): {flaps}")
            ]
        );
        let running = lines(&account(vec![flapped]), When::Running, &[]);
        assert!(running[0].contains("3 times, last seen down 4s ago;"), "{running:?}");
        // What is not counted for all rails is no share.
        assert_eq!(
            said(vec![rail("a_0", 6 * GIB), gone]),
            [
                "a_0 sent 3 GiB and received 3 GiB",
                "a_2: its device is gone; its link went down at least 1 time"
            ]
        );
    }

    #[test]
    fn no_time_is_told_that_is_not_known() {
        let told = |ago, when| {
            let flapped = Rail { downs: (1, false), down_ago: Some(ago), ..rail("a_1", 0) };
            let said = lines(&account(vec![flapped]), when, &[]).remove(0);
            said.split_once("1 time, last ").unwrap().1.to_owned()
        };
        assert_eq!(told(ago(0, 17_200), When::AtEnd), "some time in the last 17s of the job");
        assert_eq!(told(ago(0, 17_200), When::Running), "some time in the last 17s");
        assert_eq!(told(ago(7300, 17_320), When::AtEnd), "between 17s and 7s before the end");
        assert_eq!(told(ago(7300, 17_320), When::Running), "between 17s and 7s ago");
        assert_eq!(told(ago(20, 20), When::AtEnd), "seen down 1s before the end");
    }

    #[test]
    fn a_removed_device_is_no_link_that_went_down() {
        let gone = |removals, is_gone| {
            said(vec![Rail { removals, is_gone, is_lost: is_gone, ..rail("a_1", 0) }]).remove(0)
        };
        let moved = "a_1 sent 0 bytes and received 0 bytes";
        assert_eq!(gone(1, true), format!("{moved}: its device is gone"));
        assert_eq!(gone(2, true), format!("{moved}: its device is gone; its device was gone 2 times"));
        assert_eq!(gone(1, false), format!("{moved}: its device was gone 1 time"));
    }

    #[test]
    fn packets_and_requests_count_where_no_byte_does() {
        let packets = |hca: &str, sent, received| Rail {
            moved: Traffic {
                sent: CounterValue { bytes: None, packets: sent },
                received: CounterValue { bytes: None, packets: received },
                requests: None,
            },
            ..rail(hca, 0)
        };
        let mut second = packets("b_0", None, Some(1));
        second.port = 2;
        assert_eq!(
            said(vec![packets("b_0", Some(2), Some(1)), second]),
            [
                "2 rails (b_0:1, b_0:2) sent 2 packets and received 2 packets, 25 to 75 % each, without an error"
            ]
        );
        let served = |requests| Rail {
            moved: Traffic { requests: Some(requests), ..Traffic::default() },
            ..rail("c_0", 0)
        };
        assert_eq!(said(vec![served(4211)]), ["c_0 served 4211 RDMA requests of peers, without an error"]);
        assert_eq!(said(vec![served(0)]), ["c_0 served 0 RDMA requests of peers, without an error"]);
        assert_eq!(said(vec![Rail { moved: Traffic::default(), ..rail("d_0", 0) }]), [""; 0]);
    }

    #[test]
    fn a_watcher_that_ended_early_is_told() {
        let until = |seconds| Account {
            watched: Watched::Until(Duration::from_secs(seconds)),
            ..account(vec![rail("a_0", 0)])
        };
        let said = |seconds, when| lines(&until(seconds), when, &[]).pop().unwrap();
        let rest = "what happened on the ports since then shows only in their counters";
        assert_eq!(
            [said(3000, When::AtEnd), said(3000, When::Running), said(0, When::AtEnd)],
            [
                format!("The watcher's last look was 10m before the end; {rest}"),
                format!("The watcher has not looked for 10m; {rest}"),
                format!("The watcher ended before its first look; {rest}"),
            ]
        );
        let document = |account: &Account| {
            let document = serde_json::to_value(Document::new(account, When::AtEnd)).unwrap();
            (document["watched"].as_bool(), document["watched_seconds"].as_f64())
        };
        assert_eq!(document(&until(3000)), (Some(false), Some(3000.0)));
        assert_eq!(document(&account(Vec::new())), (Some(true), Some(3600.0)));
        let never = Account { watched: Watched::Never, ..account(Vec::new()) };
        assert_eq!((document(&never), lines(&never, When::AtEnd, &[])), ((Some(false), None), Vec::new()));
    }

    #[test]
    fn a_program_gets_typed_fields() {
        let rises =
            vec![Rise { trouble: Trouble::Symbol, counter: "symbol_error", count: 9, is_least: true }];
        let account = account(vec![Rail { rises, ..rail("a_0", 6 * GIB) }, rail("a_1", 3 * GIB)]);
        let document = serde_json::to_value(Document::new(&account, When::AtEnd)).unwrap();
        assert_eq!((document["seconds"].as_f64(), document["broken"].as_bool()), (Some(3600.0), Some(false)));
        assert!(document["message"].as_str().unwrap().ends_with("without an error."));
        let first = &document["rails"][0];
        assert_eq!((first["share"].as_f64(), first["sent_bytes"].as_u64()), (Some(0.6667), Some(3 * GIB)));
        assert_eq!((first["well"].as_bool(), first["down_seconds_ago"].is_null()), (Some(true), true));
        let error = serde_json::json!({"counter": "symbol_error", "count": 9, "at_least": true});
        assert_eq!(first["errors"], serde_json::json!([error]));
    }
}
