use super::*;

fn rail(hca: &str, bytes: u64) -> Rail {
    let half = CounterValue { bytes: Some(bytes / 2), packets: Some(1) };
    Rail {
        hca: hca.to_owned(),
        port: 1,
        moved: Traffic { sent: half, received: half, requests: None },
        counts_losses: true,
        ..Rail::default()
    }
}

fn ago(least: u64, most: u64) -> Ago {
    Ago { least: Duration::from_millis(least), most: Duration::from_millis(most) }
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
        needs_no_rdma: false,
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
    assert_eq!(told(ago(5100, 5900), When::AtEnd), "about 5s before the end");
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
    let told = |told: PortTold| {
        let first_rate = Some("200 Gb/sec (4X HDR)".to_owned());
        let rail_told = Rail { told, first_rate, gid_index: Some(3), ..rail("a_1", 6 * GIB) };
        let account = account(vec![rail_told, rail("a_2", 18 * GIB)]);
        assert!(account.is_noteworthy() && !account.is_broken());
        let lines = lines(&account, When::AtEnd, &[]);
        assert!(lines[0].starts_with("a_2 ") && lines[0].ends_with(", without an error"), "{lines:?}");
        lines[1].strip_prefix(moved).unwrap().to_owned()
    };
    let slow = |slow| PortTold { slow, rate: "50 Gb/sec (1X HDR)".to_owned(), ..PortTold::default() };
    assert_eq!(
        told(slow(spell(Some(600), None))),
        ": it has run at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR) for 50m"
    );
    assert_eq!(
        told(slow(spell(None, Some(1020)))),
        ": it ran at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR) for 20s"
    );
    let gid = |astray, place| PortTold { astray, place: Some(place), ..PortTold::default() };
    assert_eq!(
        told(gid(spell(Some(600), None), GidPlace::At(5))),
        ": its GID has not been at index 3 for 50m, and is at index 5"
    );
    let gone = GidPlace::Gone { has_address: false };
    assert_eq!(told(gid(spell(None, Some(1030)), gone)), ": its GID was not at index 3 for 30s");
    assert_eq!(
        told(PortTold { behind: spell(Some(600), None), ..PortTold::default() }),
        ": it has moved far less than the other rails for 50m"
    );
}

#[test]
fn a_job_that_rested_in_the_end_is_told_for_how_long() {
    let of = |seconds, needs_no_rdma| Account {
        rested: Some(Duration::from_secs(seconds)),
        needs_no_rdma,
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
    let blind = Rail { counts_losses: false, ..rail("a_1", 6 * GIB) };
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
        said(vec![Rail { removals, is_gone, is_lost: is_gone, ..rail("a_1", 0) }]).remove(0)
    };
    let moved = "a_1 sent 0 bytes and received 0 bytes";
    assert_eq!(gone(1, true), format!("{moved}: its device is gone"));
    assert_eq!(gone(2, true), format!("{moved}: its device is gone; its device was gone 2 times"));
    assert_eq!(gone(1, false), format!("{moved}: its device was gone 1 time"));
    let renamed = |removals, renamed: Option<&str>| {
        let renamed = renamed.map(str::to_owned);
        said(vec![Rail { removals, renamed, was_renamed: true, ..rail("a_1", 0) }]).remove(0)
    };
    assert_eq!(renamed(0, Some("a_9")), format!("{moved}: its device came back as a_9"));
    assert_eq!(
        renamed(1, Some("a_9")),
        format!("{moved}: its device was gone 1 time; its device came back as a_9")
    );
    assert_eq!(renamed(0, None), format!("{moved}: its device had another name for some time"));
    let gone = Rail {
        is_gone: true,
        is_lost: true,
        removals: 1,
        renamed: Some("a_9".to_owned()),
        was_renamed: true,
        ..rail("a_1", 0)
    };
    assert_eq!(said(vec![gone]), [format!("{moved}: its device is gone; it was a_9 when it was last there")]);
}

#[test]
fn a_device_that_cannot_be_read_is_told() {
    let hidden = |is_hidden| said(vec![Rail { is_hidden, was_hidden: true, ..rail("a_1", 0) }]).remove(0);
    let moved = "a_1 sent 0 bytes and received 0 bytes";
    assert_eq!(hidden(true), format!("{moved}: its state cannot be read"));
    assert_eq!(hidden(false), format!("{moved}: its state could not be read for some time"));
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
    let one = |port, sent, received| Rail { port, is_one_of_several: true, ..packets("b_0", sent, received) };
    assert_eq!(
        said(vec![one(1, Some(2), Some(1)), one(2, None, Some(1))]),
        ["2 rails (b_0:1, b_0:2) sent 2 packets and received 2 packets, 25 to 75 % each, without an error"]
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
    let rises = vec![Rise { trouble: Trouble::Symbol, counter: "symbol_error", count: 9, is_least: true }];
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
