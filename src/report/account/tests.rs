use super::*;
use crate::facts::fake_root::FakeRoot;
use crate::facts::gid::GidType;
use crate::facts::port_counters::Counters;
use crate::facts::port_errors::Trouble;
use crate::facts::port_look::{PortLook, UsedGid, read};
use crate::findings::port_name::RailId;
use crate::findings::traffic::Expected;
use crate::watch::track::{HIDDEN_LOOKS, Loss};

fn rail(hca: &str, bytes: u64) -> Rail {
    let half = CounterValue { bytes: Some(bytes / 2), packets: Some(1) };
    let host = FakeRoot::new();
    host.files("sys/class/infiniband/x_0/ports/1", &[("counters/link_downed", "0\n")]);
    let reader = host.reader();
    let mut rail = Rail::default();
    rail.track.rail = RailId::new(hca, 1);
    rail.track.moved = Traffic { sent: half, received: half, requests: None };
    rail.track.last = read(&reader, &Counters::new(&reader), "x_0", 1, None, None);
    rail
}

/// Returns a rail with something else.
fn with(mut rail: Rail, change: impl FnOnce(&mut Track)) -> Rail {
    change(&mut rail.track);
    rail
}

fn loss(is_gone: bool) -> Option<Loss> {
    Some(Loss { since: Duration::ZERO, is_gone, was_gone: is_gone })
}

fn account(rails: Vec<Rail>) -> Account {
    let beginning = Duration::from_secs(60);
    Account {
        ran: Duration::from_secs(3600),
        rails,
        watched: Watched::Throughout,
        beginning,
        omitted: Vec::new(),
        rested: None,
        tells_rest_from: Duration::from_secs(600),
        expected: Expected::Traffic,
        pauses: (0, Duration::ZERO),
    }
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
    let at = |seconds| Some((Duration::from_secs(seconds), Duration::from_secs(seconds)));
    let flapped = Rail {
        rises: vec![
            rise(Trouble::LinkDown, "link_downed", 3),
            rise(Trouble::NoAnswer, "req_transport_retries_exceeded", 4),
            rise(Trouble::Timeout, "local_ack_timeout_err", 5),
        ],
        ..with(rail("a_1", 2 * GIB), |track| track.down_at = at(3596))
    };
    let gone = Rail {
        rises: vec![Rise { is_least: true, ..rise(Trouble::LinkDown, "link_downed", 1) }],
        ..with(rail("a_2", 0), |track| {
            track.loss = loss(true);
            track.moved = Traffic::default();
            track.down_at = at(3600);
            track.removals = 1;
        })
    };
    let flaps = "its link went down 3 times, last seen down 4s before the end; 4 queue pairs failed without an answer from the peer (error 12 in NCCL's log)";
    assert_eq!(
        said(vec![rail("a_0", 6 * GIB), flapped.clone(), rail("a_3", 8 * GIB)]),
        [
            "2 rails (a_0, a_3) sent 7 GiB and received 7 GiB, 38 to 50 % each, without an error".to_owned(),
            format!("a_1 sent 1 GiB and received 1 GiB (13 %): {flaps}")
        ]
    );
    let running = lines(&account(vec![flapped]), When::Running, &[]);
    assert!(running[0].contains("3 times, last seen down 4s ago;"), "{running:?}");
    // What is not counted for all rails is no share.
    assert_eq!(
        said(vec![rail("a_0", 6 * GIB), gone]),
        ["a_0 sent 3 GiB and received 3 GiB", "a_2: its device is gone; its link went down at least 1 time"]
    );
}

#[test]
fn no_time_is_told_that_is_not_known() {
    let told = |from, to, when| {
        let [from, to] = [from, to].map(Duration::from_millis);
        let flapped = with(rail("a_1", 0), |track| (track.losses, track.down_at) = (1, Some((from, to))));
        let said = lines(&account(vec![flapped]), when, &[]).remove(0);
        said.split_once("1 time, last ").unwrap().1.to_owned()
    };
    assert_eq!(told(3_582_800, 3_600_000, When::AtEnd), "some time in the last 17s of the job");
    assert_eq!(told(3_582_800, 3_600_000, When::Running), "some time in the last 17s");
    assert_eq!(told(3_582_680, 3_592_700, When::AtEnd), "between 17s and 7s before the end");
    assert_eq!(told(3_582_680, 3_592_700, When::Running), "between 17s and 7s ago");
    assert_eq!(told(3_599_980, 3_599_980, When::AtEnd), "seen down 1s before the end");
    assert_eq!(told(3_594_100, 3_594_900, When::AtEnd), "about 5s before the end");
}

/// As the watcher has said while the job ran: a job is not sound because its counters are.
#[test]
fn what_the_watcher_has_warned_of_is_in_the_account() {
    let spell = |since: Option<u64>, until: Option<u64>| {
        let mut spell = Spell::default();
        spell.set(Duration::from_secs(1000), Some(Duration::from_secs(since.unwrap_or(1000))));
        if let Some(until) = until {
            spell.set(Duration::from_secs(until), None);
        }
        spell
    };
    let moved = "a_1 sent 3 GiB and received 3 GiB (25 %)";
    let told = |change: &dyn Fn(&mut Track)| {
        let mut changed = with(rail("a_1", 6 * GIB), change);
        changed.port.first.rate = Some("200 Gb/sec (4X HDR)".to_owned());
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        changed.port.gid = Some(UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: None });
        let account = account(vec![changed, rail("a_2", 18 * GIB)]);
        assert!(account.is_noteworthy() && !account.is_broken());
        let lines = lines(&account, When::AtEnd, &[]);
        assert!(lines[0].starts_with("a_2 ") && lines[0].ends_with(", without an error"), "{lines:?}");
        lines[1].strip_prefix(moved).unwrap().to_owned()
    };
    let slow =
        |spell| told(&|track| (track.slow, track.slow_rate) = (spell, "50 Gb/sec (1X HDR)".to_owned()));
    assert_eq!(
        slow(spell(Some(600), None)),
        ": it has run at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR) for 50m"
    );
    assert_eq!(
        slow(spell(None, Some(1020))),
        ": it ran at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR) for 20s"
    );
    let gid = |spell, place| told(&|track| (track.astray, track.place) = (spell, Some(place)));
    assert_eq!(
        gid(spell(Some(600), None), GidPlace::At(5)),
        ": its GID has not been at index 3 for 50m, and is at index 5"
    );
    let gone = GidPlace::Gone { has_address: false };
    assert_eq!(gid(spell(None, Some(1030)), gone), ": its GID was not at index 3 for 30s");
    assert_eq!(
        told(&|track| track.behind = spell(Some(600), None)),
        ": it has moved far less than the other rails for 50m"
    );
}

/// A server's pauses are no trouble, and there may be dozens in a day.
#[test]
fn pauses_that_ended_are_one_line() {
    let pauses = |count, longest| {
        let pauses = (count, Duration::from_secs(longest));
        lines(&Account { pauses, ..account(vec![rail("a_0", 6 * GIB)]) }, When::AtEnd, &[]).split_off(1)
    };
    assert_eq!(pauses(0, 0), [""; 0]);
    assert_eq!(pauses(1, 900), ["Traffic paused 1 time for 15m, and went on"]);
    assert_eq!(pauses(33, 2400), ["Traffic paused 33 times for up to 40m, and went on"]);
}

#[test]
fn a_job_that_rested_in_the_end_is_told_for_how_long() {
    let of = |seconds, needs_no_rdma| Account {
        rested: Some(Duration::from_secs(seconds)),
        expected: if needs_no_rdma { Expected::Nothing } else { Expected::Traffic },
        ..account(vec![rail("a_0", 6 * GIB)])
    };
    let said = |account: &Account, when| lines(account, when, &[]).get(1).cloned();
    let line = "No data has moved in the last 12m of the job";
    assert_eq!(said(&of(720, false), When::AtEnd).unwrap(), line);
    assert_eq!(said(&of(720, false), When::Running).unwrap(), "No data has moved for 12m");
    assert!(of(720, false).is_noteworthy() && !of(599, false).is_noteworthy());
    assert_eq!((said(&of(599, false), When::AtEnd), said(&of(720, true), When::AtEnd)), (None, None));
}

#[test]
fn what_is_not_counted_is_not_without_an_error() {
    let blind = with(rail("a_1", 6 * GIB), |track| track.last = PortLook::default());
    assert_eq!(said(vec![blind.clone()]), ["a_1 sent 3 GiB and received 3 GiB, and no error is visible"]);
    let both = said(vec![rail("a_0", 6 * GIB), blind]).remove(0);
    assert!(both.ends_with(", 50 % each, and no error is visible"), "{both}");
}

#[test]
fn congestion_is_told_and_is_no_trouble() {
    let jammed = |hca: &str, sent, ecn_marked| Rail {
        congestion: Congestion { cnps_sent: Some(sent), cnps_handled: Some(0), ecn_marked },
        ..rail(hca, 6 * GIB)
    };
    let both = account(vec![jammed("a_0", 5, Some(7)), jammed("a_1", 0, None)]);
    let line = "2 rails (a_0, a_1) sent 6 GiB and received 6 GiB, 50 % each, without an error";
    let counts = "congestion: 5 CNPs sent, 7 packets received with ECN's mark";
    assert_eq!(lines(&both, When::AtEnd, &[]), [format!("{line}; {counts}")]);
    assert!(!both.is_noteworthy() && both.findings(false).is_empty());
    let document = serde_json::to_value(Document::new(&both, When::AtEnd)).unwrap();
    let wanted = serde_json::json!({"cnps_sent": 0, "cnps_handled": 0, "ecn_marked": null});
    assert_eq!((&document["rails"][1]["congestion"], &document["rails"][0]["well"]), (&wanted, &true.into()));
}

#[test]
fn a_removed_device_is_no_link_that_went_down() {
    let gone = |removals, is_gone| {
        let loss = if is_gone { loss(true) } else { None };
        said(vec![with(rail("a_1", 0), |track| (track.removals, track.loss) = (removals, loss))]).remove(0)
    };
    let moved = "a_1 sent 0 bytes and received 0 bytes";
    assert_eq!(gone(1, true), format!("{moved}: its device is gone"));
    assert_eq!(gone(2, true), format!("{moved}: its device is gone; its device was gone 2 times"));
    assert_eq!(gone(1, false), format!("{moved}: its device was gone 1 time"));
    let rename = |track: &mut Track, now: Option<&str>| {
        (track.rail.now, track.was_renamed) = (now.map(str::to_owned), true);
    };
    let renamed = |removals, now: Option<&str>| {
        let renamed = with(rail("a_1", 0), |track| {
            track.removals = removals;
            rename(track, now);
        });
        said(vec![renamed]).remove(0)
    };
    assert_eq!(renamed(0, Some("a_9")), format!("{moved}: its device came back as a_9"));
    assert_eq!(
        renamed(1, Some("a_9")),
        format!("{moved}: its device was gone 1 time; its device came back as a_9")
    );
    assert_eq!(renamed(0, None), format!("{moved}: its device had another name for some time"));
    let gone = with(rail("a_1", 0), |track| {
        (track.removals, track.loss) = (1, loss(true));
        rename(track, Some("a_9"));
    });
    assert_eq!(said(vec![gone]), [format!("{moved}: its device is gone; it was a_9 when it was last there")]);
}

#[test]
fn a_device_that_cannot_be_read_is_told() {
    let hidden = |is_hidden| {
        let looks = if is_hidden { HIDDEN_LOOKS } else { 0 };
        let rail = with(rail("a_1", 0), |track| (track.hidden.0, track.was_hidden) = (looks, true));
        said(vec![rail]).remove(0)
    };
    let moved = "a_1 sent 0 bytes and received 0 bytes";
    assert_eq!(hidden(true), format!("{moved}: its state cannot be read"));
    assert_eq!(hidden(false), format!("{moved}: its state could not be read for some time"));
}

#[test]
fn packets_and_requests_count_where_no_byte_does() {
    let one = |port, sent, received| {
        let [sent, received] = [sent, received].map(|packets| CounterValue { bytes: None, packets });
        with(rail("b_0", 0), |track| {
            (track.rail.port, track.rail.is_one_of_several) = (port, true);
            track.moved = Traffic { sent, received, requests: None };
        })
    };
    assert_eq!(
        said(vec![one(1, Some(2), Some(1)), one(2, None, Some(1))]),
        ["2 rails (b_0:1, b_0:2) sent 2 packets and received 2 packets, 25 to 75 % each, without an error"]
    );
    let served = |requests| {
        let moved = Traffic { requests: Some(requests), ..Traffic::default() };
        with(rail("c_0", 0), |track| track.moved = moved)
    };
    assert_eq!(said(vec![served(4211)]), ["c_0 served 4211 RDMA requests of peers, without an error"]);
    assert_eq!(said(vec![served(0)]), ["c_0 served 0 RDMA requests of peers, without an error"]);
    assert_eq!(said(vec![with(rail("d_0", 0), |track| track.moved = Traffic::default())]), [""; 0]);
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
    let rises = vec![Rise { trouble: Trouble::Symbol, counter: "symbol_error", count: 9, is_least: true }];
    let account = account(vec![Rail { rises, ..rail("a_0", 6 * GIB) }, rail("a_1", 3 * GIB)]);
    let document = serde_json::to_value(Document::new(&account, When::AtEnd)).unwrap();
    assert_eq!((document["seconds"].as_f64(), document["broken"].as_bool()), (Some(3600.0), Some(false)));
    assert!(document["message"].as_str().unwrap().ends_with("with no more errors than usual."));
    let first = &document["rails"][0];
    assert_eq!((first["share"].as_f64(), first["sent_bytes"].as_u64()), (Some(0.6667), Some(3 * GIB)));
    assert_eq!((first["well"].as_bool(), first["down_seconds_ago"].is_null()), (Some(true), true));
    let error = serde_json::json!({"counter": "symbol_error", "count": 9, "at_least": true});
    assert_eq!(first["errors"], serde_json::json!([error]));
}
