use super::*;
use crate::facts::Reader;
use crate::facts::device_identity::DeviceIdentity;
use crate::facts::port_counters::Counters;
use crate::facts::port_look::read;
use crate::finding::Severity;
use crate::findings::port_errors::FIX_OF_GONE;
use crate::findings::port_errors::fix_of_lost;
use crate::findings::port_name::RailId;

/// Makes a reading of a soft-RoCE port with this state and these counters; without a state, the port is
/// gone.
fn look(state: Option<&str>, counters: &[(&str, u64)]) -> PortLook {
    let root = tempfile::tempdir().unwrap();
    let port = root.path().join("sys/class/infiniband/x_0/ports/1");
    if let Some(state) = state {
        std::fs::create_dir_all(port.join("hw_counters")).unwrap();
        std::fs::write(port.join("state"), state).unwrap();
        for (name, count) in counters {
            std::fs::write(port.join("hw_counters").join(name), format!("{count}\n")).unwrap();
        }
    }
    let reader = Reader::new(root.path());
    read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
}

const SECOND: Duration = Duration::from_secs(1);

fn up(sent: u64) -> PortLook {
    look(Some("4: ACTIVE\n"), &[("sent_pkts", sent), ("rcvd_pkts", 0), ("link_downed", 0)])
}

fn judge(after: u64) -> Judge {
    let port = |hca: &str| WatchedPort { rail: RailId::new(hca, 1), first: up(0), ..WatchedPort::default() };
    Judge::patient(vec![port("mlx5_1"), port("mlx5_2")], Duration::from_secs(after))
}

/// Does the same for a job that is expected to move so much, with a limit of 20 s.
fn expecting(expected: Expected) -> Judge {
    let mut judge = judge(20);
    judge.limits.expected = expected;
    judge
}

fn said(judge: &mut Judge, seconds: u64, looks: [PortLook; 2]) -> Vec<String> {
    let findings = judge.judge(Duration::from_secs(seconds), looks.into());
    findings.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn a_sound_job_is_silent() {
    let mut judge = judge(600);
    for look in 1..200 {
        assert!(said(&mut judge, look * 10, [up(look), up(0)]).is_empty());
    }
}

#[test]
fn a_port_whose_nic_has_another_one_may_be_replaced() {
    let port = |hca: &str| WatchedPort {
        rail: RailId::new(hca, 1),
        first: up(0),
        fails_over: true,
        ..WatchedPort::default()
    };
    let mut judge = Judge::patient(vec![port("mlx5_1"), port("mlx5_2")], Duration::from_secs(600));
    let line =
        "mlx5_2 is gone. NCCL may continue over another port of the NIC (NCCL_IB_RESILIENCY_PORT_FAILOVER).";
    assert_eq!(said(&mut judge, 10, [up(1), look(None, &[])]), [line]);
}

#[test]
fn a_link_that_goes_down_and_comes_back_is_told_once_each() {
    let mut judge = judge(600);
    let down = || look(Some("1: DOWN\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 1)]);
    let again = || look(Some("4: ACTIVE\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 1)]);
    assert_eq!(said(&mut judge, 10, [up(1), down()]), ["mlx5_2 is no longer active."]);
    assert!(said(&mut judge, 20, [up(2), down()]).is_empty());
    assert_eq!(said(&mut judge, 30, [up(3), again()]), ["mlx5_2 is active again, after 20s."]);
    assert!(said(&mut judge, 40, [up(4), again()]).is_empty());
    // The link went down and up between two readings, so only the counter shows it.
    let flapped = look(Some("4: ACTIVE\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 2)]);
    assert_eq!(said(&mut judge, 50, [up(5), flapped]), ["The link went down within 10s: mlx5_2, 1 time."]);
}

#[test]
fn a_device_that_goes_and_comes_back_with_new_counters_is_no_error() {
    let mut judge = judge(600);
    assert_eq!(said(&mut judge, 10, [up(1), look(None, &[])]), ["mlx5_2 is gone."]);
    let back = "mlx5_2 is back, after 10s. Connections over it from before have failed.";
    assert_eq!(said(&mut judge, 20, [up(2), up(0)]), [back]);
    assert_eq!(said(&mut judge, 30, [look(None, &[]), look(None, &[])]), ["mlx5_1, mlx5_2 are gone."]);
}

#[test]
fn a_state_that_cannot_be_read_changes_nothing() {
    let mut judge = judge(600);
    let hidden = || look(Some("?\n"), &[]);
    assert!(said(&mut judge, 10, [up(1), hidden()]).is_empty());
    assert!(said(&mut judge, 20, [up(2), up(0)]).is_empty());
    assert_eq!(said(&mut judge, 30, [up(3), look(None, &[])]), ["mlx5_2 is gone."]);
    assert!(said(&mut judge, 40, [up(4), hidden()]).is_empty());
    let back = "mlx5_2 is back, after 20s. Connections over it from before have failed.";
    assert_eq!(said(&mut judge, 50, [up(5), up(0)]), [back]);
}

/// What the counter has counted is said first.
#[test]
fn that_a_counter_is_full_is_told_below_its_warning() {
    let mlx5 = |downs: &str| {
        let root = crate::facts::fake_root::FakeRoot::new();
        let files = [("state", "4: ACTIVE\n"), ("counters/link_downed", downs)];
        root.files("sys/class/infiniband/x_0/ports/1", &files);
        let reader = root.reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    };
    let mut judge = judge(600);
    judge.ports[1].first = mlx5("3\n");
    judge.history.tracks[1].last = mlx5("3\n");
    let told = said(&mut judge, 10, [up(1), mlx5("255\n")]);
    let [down, full] = &told[..] else { panic!("{told:?}") };
    assert!(down.starts_with("The link went down within 10s: mlx5_2, at least 252 times"), "{told:?}");
    assert!(full.starts_with("Counters of mlx5_2 have reached their maximum"), "{told:?}");
}

#[test]
fn a_device_that_goes_after_its_link_is_told_as_well() {
    let mut judge = judge(600);
    let down = || look(Some("1: DOWN\n"), &[("link_downed", 1)]);
    assert_eq!(said(&mut judge, 10, [up(1), down()]), ["mlx5_2 is no longer active."]);
    assert_eq!(said(&mut judge, 20, [up(2), look(None, &[])]), ["mlx5_2 is gone."]);
    assert!(said(&mut judge, 30, [up(3), look(None, &[])]).is_empty());
    assert_eq!(said(&mut judge, 40, [up(4), down()]), ["mlx5_2 is no longer active."]);
    let back = "mlx5_2 is back, after 40s. Connections over it from before have failed.";
    assert_eq!(said(&mut judge, 50, [up(5), up(0)]), [back]);
    let told = judge.judge(60 * SECOND, vec![up(6), down()]).remove(0);
    assert_eq!(told.message, "mlx5_2 is no longer active.");
    let again = "mlx5_2 is active again, after 10s.";
    assert_eq!(said(&mut judge, 70, [up(7), up(0)]), [again], "this time, only the link was down");
}

/// As recorded with soft-RoCE: the new device counts from zero, or goes on.
#[test]
fn a_device_that_comes_back_under_another_name_is_told_in_one_line() {
    let device = DeviceIdentity { pci_address: Some("0000:17:00.0".into()), node_guid: None };
    let judge = || {
        let mut judge = judge(600);
        judge.ports[1].device = device.clone();
        judge
    };
    let called = |name: &str, state: &'static str, downed| PortLook {
        renamed: Some(name.to_owned()),
        ..look(Some(state), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", downed)])
    };
    let active = |name: &str| called(name, "4: ACTIVE\n", 1);
    let line = |end: &str| format!("mlx5_2 (PCI function 0000:17:00.0) came back under {end}.");
    // Between two looks.
    let mut one = judge();
    assert_eq!(said(&mut one, 10, [up(1), active("mlx5_9")]), [line("another name: it is mlx5_9 now")]);
    assert!(said(&mut one, 20, [up(2), active("mlx5_9")]).is_empty());
    let gone = one.judge(30 * SECOND, vec![up(3), look(None, &[])]).remove(0);
    assert_eq!(gone.message, "mlx5_2 (now mlx5_9) is gone.");
    assert_eq!(
        (gone.about.ports.as_slice(), &gone.fix.as_deref()),
        (&["mlx5_9:1".to_owned()][..], &Some(FIX_OF_GONE))
    );
    let again = "mlx5_2 (now mlx5_9) is back, after 10s. Connections over it from before have failed.";
    assert_eq!(said(&mut one, 40, [up(4), active("mlx5_9")]), [again]);
    assert_eq!(said(&mut one, 50, [up(5), up(0)]), ["mlx5_2 came back under its original name."]);
    // After it was seen to be gone; and its link comes up later.
    let mut two = judge();
    assert_eq!(said(&mut two, 10, [up(1), look(None, &[])]), ["mlx5_2 is gone."]);
    let inactive = || called("rocep9s0", "1: DOWN\n", 0);
    let back = "another name: it is rocep9s0 now, after 20s, and is not active yet";
    assert_eq!(said(&mut two, 30, [up(2), inactive()]), [line(back)]);
    assert!(said(&mut two, 40, [up(3), inactive()]).is_empty());
    let again = "mlx5_2 (now rocep9s0) is back, after 40s. Connections over it from before have failed.";
    assert_eq!(said(&mut two, 50, [up(4), active("rocep9s0")]), [again]);
}

/// The line names what the device was recognized by.
#[test]
fn a_device_at_another_function_is_named_by_its_guid() {
    let mut judge = judge(600);
    let guid = "b859:9f03:00aa:0001";
    judge.ports[1].device =
        DeviceIdentity { pci_address: Some("0000:17:00.0".into()), node_guid: Some(guid.into()) };
    let moved = PortLook { renamed: Some("mlx5_9".into()), is_found_by_guid: true, ..up(0) };
    let line = format!("mlx5_2 (node GUID {guid}) came back under another name: it is mlx5_9 now.");
    assert_eq!(said(&mut judge, 10, [up(1), moved]), [line]);
}

#[test]
fn devices_that_swap_their_names_are_told_apart() {
    let mut judge = judge(600);
    let called = |name: &str, state: &'static str| PortLook {
        renamed: Some(name.to_owned()),
        ..look(Some(state), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 0)])
    };
    let up = |name| called(name, "4: ACTIVE\n");
    assert_eq!(said(&mut judge, 10, [up("mlx5_2"), up("mlx5_1")]).len(), 2);
    let down = judge.judge(20 * SECOND, vec![called("mlx5_2", "1: DOWN\n"), up("mlx5_1")]).remove(0);
    assert_eq!(down.message, "mlx5_1 (now mlx5_2) is no longer active.");
    assert_eq!(down.about.ports, ["mlx5_2:1"]);
}

fn judge_of_two_ports() -> Judge {
    let port = |port| WatchedPort {
        rail: RailId { is_one_of_several: true, ..RailId::new("mlx5_1", port) },
        first: up(0),
        ..WatchedPort::default()
    };
    Judge::patient(vec![port(1), port(2)], 600 * SECOND)
}

#[test]
fn a_device_with_two_ports_has_one_line_for_its_name() {
    let mut judge = judge_of_two_ports();
    let called =
        |state| PortLook { renamed: Some("roce1".into()), ..look(Some(state), &[("link_downed", 0)]) };
    let looks = vec![called("4: ACTIVE\n"), called("1: DOWN\n")];
    let found = judge.judge(10 * SECOND, looks);
    let [found] = &found[..] else { panic!("{found:?}") };
    let line = "mlx5_1 came back under another name: it is roce1 now, and mlx5_1:2 is not active yet.";
    assert_eq!(found.message, line);
    assert_eq!(found.about.ports, ["roce1:1", "roce1:2"]);
}

/// As after the firmware has failed: every read gives an error.
fn unreadable() -> PortLook {
    let root = crate::facts::fake_root::FakeRoot::new();
    root.folder("sys/class/infiniband/x_0/ports/1/state");
    let reader = root.reader();
    read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
}

#[test]
fn a_device_that_cannot_be_read_for_long_is_told_once_and_hides_no_stall() {
    let mut judge = judge(40);
    assert!(said(&mut judge, 10, [up(5), unreadable()]).is_empty());
    assert!(said(&mut judge, 20, [up(5), unreadable()]).is_empty());
    let told = judge.judge(30 * SECOND, vec![up(5), unreadable()]).remove(0);
    assert_eq!(told.message, "The state of mlx5_2 cannot be read (EISDIR).");
    assert!(told.fix.is_some() && told.about.ports == ["mlx5_2:1"]);
    assert!(said(&mut judge, 40, [up(5), unreadable()]).is_empty());
    let told = said(&mut judge, 50, [up(5), unreadable()]);
    assert!(matches!(&told[..], [one] if one.ends_with("the job may have stalled.")), "{told:?}");
    let told = said(&mut judge, 60, [up(5), up(5)]);
    assert_eq!(told[0], "The state of mlx5_2 can be read again, after 50s.");
    assert!(told[1].starts_with("Data moves over mlx5_2 again"), "{told:?}");
    // All of them, later.
    for at in [70, 80] {
        assert!(said(&mut judge, at, [unreadable(), unreadable()]).is_empty());
    }
    let told = said(&mut judge, 90, [unreadable(), unreadable()]);
    assert_eq!(told, ["The state of mlx5_1, mlx5_2 cannot be read (EISDIR)."]);
    let told = said(&mut judge, 160, [unreadable(), unreadable()]);
    assert!(matches!(&told[..], [one] if one.ends_with("none of these HCAs can be read.")), "{told:?}");
}

#[test]
fn each_of_two_ports_of_an_hca_has_its_number() {
    let mut judge = judge_of_two_ports();
    let down = || look(Some("1: DOWN\n"), &[("link_downed", 0)]);
    assert_eq!(said(&mut judge, 10, [up(1), down()]), ["mlx5_1:2 is no longer active."]);
    assert_eq!(said(&mut judge, 20, [look(None, &[]), look(None, &[])]), ["mlx5_1:1, mlx5_1:2 are gone."]);
}

#[test]
fn the_time_of_what_was_counted_begins_when_it_was_last_seen() {
    let mut judge = judge(600);
    let ended = |count| {
        let counters =
            [("sent_pkts", 9), ("rcvd_pkts", 0), ("link_downed", 0), ("retry_exceeded_err", count)];
        look(Some("4: ACTIVE\n"), &counters)
    };
    assert!(said(&mut judge, 10, [ended(0), up(0)]).is_empty());
    assert_eq!(said(&mut judge, 20, [look(None, &[]), up(0)]), ["mlx5_1 is gone."]);
    let told = said(&mut judge, 30, [ended(3), up(0)]);
    assert_eq!(told[0], "mlx5_1 is back, after 10s. Connections over it from before have failed.");
    assert!(told[1].starts_with("Queue pairs failed in 20s: mlx5_1: 3 "), "{told:?}");
}

#[test]
fn queue_pairs_that_ended_are_told_and_a_few_retries_are_not() {
    let mut judge = judge(600);
    let counted = |name: &str, count| {
        look(Some("4: ACTIVE\n"), &[("sent_pkts", 9), ("rcvd_pkts", 0), ("link_downed", 0), (name, count)])
    };
    assert!(said(&mut judge, 10, [counted("retry_exceeded_err", 0), up(0)]).is_empty());
    let told = said(&mut judge, 20, [counted("retry_exceeded_err", 2), up(0)]);
    assert!(matches!(&told[..], [one] if one.starts_with("Queue pairs failed in 10s: mlx5_1: 2 ")));
    assert!(said(&mut judge, 30, [counted("completer_retry_err", 0), up(0)]).is_empty());
    assert!(said(&mut judge, 40, [counted("completer_retry_err", 5), up(0)]).is_empty());
    let told = said(&mut judge, 50, [counted("completer_retry_err", 905), up(0)]);
    assert!(
        matches!(&told[..], [one] if one.starts_with("Packets were lost or sent again in 10s: mlx5_1: "))
    );
}

#[test]
fn errors_that_were_counted_while_a_counter_did_not_show_are_told() {
    let mut judge = judge(600);
    let counted = |count: &[(&str, u64)]| {
        look(
            Some("4: ACTIVE\n"),
            &[&[("sent_pkts", 9), ("rcvd_pkts", 0), ("link_downed", 0)], count].concat(),
        )
    };
    let ended = |count| counted(&[("retry_exceeded_err", count)]);
    assert!(said(&mut judge, 10, [ended(1), up(0)]).is_empty());
    assert!(said(&mut judge, 20, [counted(&[]), up(0)]).is_empty());
    let told = said(&mut judge, 30, [ended(3), up(0)]);
    assert!(
        matches!(&told[..], [one] if one.starts_with("Queue pairs failed in 10s: mlx5_1: 2 ")),
        "{told:?}"
    );
    assert!(said(&mut judge, 40, [ended(3), up(0)]).is_empty());
}

#[test]
fn a_job_that_moves_nothing_or_stops_moving_is_told_once() {
    let mut judge = judge(20);
    assert!(said(&mut judge, 10, [up(0), up(0)]).is_empty());
    let told = said(&mut judge, 20, [up(0), up(0)]);
    assert!(
        matches!(&told[..], [one] if one.contains("no data has moved over mlx5_1, mlx5_2 in the first 20s"))
    );
    assert!(said(&mut judge, 50, [up(0), up(0)]).is_empty());
    assert_eq!(said(&mut judge, 55, [up(5), up(0)]), ["Data moves over mlx5_1, after 55s."]);
    let stall = |time: &str| {
        [format!(
            "No data has moved over mlx5_1, mlx5_2 for {time}, after earlier traffic: the job may have stalled."
        )]
    };
    assert_eq!(
        said(&mut judge, 100, [up(5), up(0)]),
        stall("45s"),
        "what came before the first data is no pause"
    );
    assert!(said(&mut judge, 105, [up(5), up(0)]).is_empty());
    assert_eq!(said(&mut judge, 110, [up(5), up(7)]), ["Data moves over mlx5_2 again, after 55s."]);
    assert!(said(&mut judge, 215, [up(5), up(7)]).is_empty(), "it has paused for 55s before");
    assert_eq!(said(&mut judge, 220, [up(5), up(7)]), stall("1m 50s"));
}

#[test]
fn a_lost_device_hides_no_stall() {
    let mut judge = judge(20);
    assert!(said(&mut judge, 10, [up(5), up(5)]).is_empty());
    assert_eq!(said(&mut judge, 20, [up(5), look(None, &[])]), ["mlx5_2 is gone."]);
    let told = said(&mut judge, 30, [up(5), look(None, &[])]);
    assert!(matches!(&told[..], [one] if one.contains("the job may have stalled")), "{told:?}");
}

#[test]
fn a_node_whose_devices_are_all_gone_has_stopped() {
    let gone = || [look(None, &[]), look(None, &[])];
    let mut judge = judge(20);
    assert!(said(&mut judge, 10, [up(5), up(5)]).is_empty());
    assert_eq!(said(&mut judge, 20, gone()), ["mlx5_1, mlx5_2 are gone."]);
    assert_eq!(
        said(&mut judge, 30, gone()),
        ["No data has moved over mlx5_1, mlx5_2 for 20s, after earlier traffic: all of these HCAs are gone."]
    );
    assert_eq!(judge.doubt(), Some(Doubt::Rests));
    assert!(said(&mut judge, 40, gone()).is_empty());
}

#[test]
fn infiniband_management_traffic_never_counts_as_data() {
    let port = |hca: &str| WatchedPort {
        rail: RailId::new(hca, 1),
        is_infiniband: true,
        first: up(0),
        ..WatchedPort::default()
    };
    let mut judge = Judge::patient(vec![port("mlx5_1")], Duration::from_secs(600));
    for look in 1..60 {
        let findings = judge.judge(Duration::from_secs(look * 10), vec![up(look)]);
        assert!(findings.is_empty(), "{findings:?}");
    }
    let findings = judge.judge(Duration::from_secs(600), vec![up(60)]);
    assert!(findings[0].message.contains("no data has moved"), "{findings:?}");
}

#[test]
fn counters_that_are_not_there_prove_no_stall() {
    let unknown = || look(Some("4: ACTIVE\n"), &[]);
    let mut judge = judge(20);
    assert!(said(&mut judge, 100, [unknown(), unknown()]).is_empty());
}

/// Each state has its own fix.
#[test]
fn a_port_that_the_subnet_manager_has_not_activated_is_told_as_that() {
    let infiniband = |hca: &str| WatchedPort {
        rail: RailId::new(hca, 1),
        is_infiniband: true,
        first: up(0),
        ..WatchedPort::default()
    };
    let mut judge = Judge::patient(vec![infiniband("mlx5_0"), infiniband("mlx5_1")], 600 * SECOND);
    let found = judge.judge(10 * SECOND, vec![look(Some("2: INIT\n"), &[]), look(Some("1: DOWN\n"), &[])]);
    let told: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(told, ["mlx5_1 is no longer active.", "mlx5_0 is no longer active. Its state is INIT."]);
    assert_eq!(found[0].fix.as_deref(), Some(fix_of_lost(false, false)));
    assert!(found[1].fix.as_deref().unwrap().contains("check the subnet manager"), "{found:?}");
    // Deferred, the port is active all the same.
    let mut judge = judge_of_two_ports();
    assert!(said(&mut judge, 10, [look(Some("5: ACTIVE_DEFER\n"), &[]), up(0)]).is_empty());
}

#[test]
fn a_device_that_came_back_between_two_looks_is_told() {
    let mut judge = judge(600);
    let known = |directory, sent| PortLook { directory: Some((1, directory)), ..up(sent) };
    assert!(said(&mut judge, 10, [known(1, 1), known(2, 0)]).is_empty());
    assert!(said(&mut judge, 20, [known(1, 2), known(2, 0)]).is_empty());
    let found = judge.judge(30 * SECOND, vec![known(1, 3), known(3, 0)]);
    let [found] = &found[..] else { panic!("{found:?}") };
    let line =
        "mlx5_2 was gone since the last look, and is back. Connections over it from before have failed.";
    assert_eq!((found.message.as_str(), found.fix.as_deref()), (line, Some(FIX_OF_GONE)));
    assert!(said(&mut judge, 40, [known(1, 4), known(3, 0)]).is_empty());
    // Its return from a look at which it was gone is another line.
    assert_eq!(said(&mut judge, 50, [known(1, 5), look(None, &[])]), ["mlx5_2 is gone."]);
    assert_eq!(said(&mut judge, 60, [known(1, 6), known(4, 0)]).len(), 1);
}

/// As mlx5 in a network namespace that shares the HCAs of the host's.
#[test]
fn requests_that_rose_and_stand_still_are_a_stall_and_those_that_never_rose_are_not() {
    let requests = |count| look(Some("4: ACTIVE\n"), &[("rx_write_requests", count)]);
    let port =
        |hca: &str| WatchedPort { rail: RailId::new(hca, 1), first: requests(7), ..WatchedPort::default() };
    let mut judge = Judge::patient(vec![port("mlx5_1"), port("mlx5_2")], 20 * SECOND);
    for at in (10..100).step_by(10) {
        assert!(said(&mut judge, at, [requests(7), requests(7)]).is_empty(), "{at}");
    }
    assert!(said(&mut judge, 100, [requests(9), requests(7)]).is_empty());
    assert!(said(&mut judge, 110, [requests(9), requests(7)]).is_empty());
    assert!(said(&mut judge, 119, [requests(9), requests(7)]).is_empty());
    let told = judge.judge(120 * SECOND, vec![requests(9), requests(7)]).remove(0);
    let stall =
        "No data has moved over mlx5_1, mlx5_2 for 20s, after earlier traffic: the job may have stalled.";
    assert!(told.message == stall && told.fix.is_some(), "{told:?}");
    assert_eq!(judge.doubt(), Some(Doubt::Rests));
    assert_eq!(
        said(&mut judge, 130, [requests(9), requests(8)]),
        ["Data moves over mlx5_2 again, after 30s."]
    );
    assert_eq!(judge.doubt(), None);
}

#[test]
fn a_job_on_one_node_is_not_accused() {
    let mut judge = expecting(Expected::Nothing);
    for at in (10..100).step_by(10) {
        assert!(said(&mut judge, at, [up(0), up(0)]).is_empty());
    }
    assert_eq!(judge.doubt(), None);
    assert_eq!(said(&mut judge, 100, [up(0), look(None, &[])]), ["mlx5_2 is gone."], "that is a trouble");
}

/// Nothing but its length tells a pause of a sound job from a stall.
#[test]
fn a_pause_is_a_note_until_it_lasts_or_something_explains_it() {
    let severities = |found: Vec<Finding>| found.iter().map(|one| one.severity).collect::<Vec<_>>();
    let mut judge = judge(20);
    let at = |judge: &mut Judge, seconds, looks: [PortLook; 2]| {
        severities(judge.judge(seconds * SECOND, looks.into()))
    };
    assert!(at(&mut judge, 10, [up(5), up(5)]).is_empty());
    assert_eq!(at(&mut judge, 30, [up(5), up(5)]), [Severity::Info]);
    assert!(at(&mut judge, 69, [up(5), up(5)]).is_empty());
    assert_eq!(at(&mut judge, 70, [up(5), up(5)]), [Severity::Warning]);
    assert!(at(&mut judge, 999, [up(5), up(5)]).is_empty());
    // Queue pairs that fail are reason enough.
    let mut judge = self::judge(20);
    let ended = |sent, count| {
        let counters =
            [("sent_pkts", sent), ("rcvd_pkts", 0), ("link_downed", 0), ("retry_exceeded_err", count)];
        look(Some("4: ACTIVE\n"), &counters)
    };
    assert!(at(&mut judge, 10, [ended(5, 0), ended(5, 0)]).is_empty());
    assert_eq!(at(&mut judge, 20, [ended(5, 7), ended(5, 7)]), [Severity::Info], "all rails, so a peer");
    assert_eq!(at(&mut judge, 30, [ended(5, 7), ended(5, 7)]), [Severity::Warning]);
}

/// The link comes back after hours, and the job goes on then.
#[test]
fn a_pause_that_a_broken_link_explains_is_not_learned() {
    let mut judge = judge(20);
    let down = || look(Some("1: DOWN\n"), &[("sent_pkts", 5), ("rcvd_pkts", 0), ("link_downed", 1)]);
    let seconds = [10, 20, 30, 9000, 9010].map(|seconds| seconds * SECOND);
    let looks = [[up(5), up(5)], [down(), up(5)], [down(), up(5)], [down(), up(5)], [up(5), up(5)]];
    for (at, looks) in seconds.into_iter().zip(looks) {
        judge.judge(at, looks.into());
    }
    assert!(judge.pauses().is_broken);
    judge.judge(9020 * SECOND, [up(9), up(9)].into());
    let Pauses { note, is_broken, .. } = judge.pauses();
    assert_eq!(
        (note, is_broken, judge.history.pauses),
        (20 * SECOND, true, 0),
        "the link came back right before"
    );
    judge.judge(9190 * SECOND, [up(90), up(90)].into());
    judge.judge(9200 * SECOND, [up(99), up(99)].into());
    assert!(!judge.pauses().is_broken);
    // A job that goes on without a link does not stop because of it.
    for second in [9210, 9400, 9500] {
        judge.judge(second * SECOND, [down(), up(second.into())].into());
    }
    assert!(!judge.pauses().is_broken);
}

#[test]
fn where_the_number_of_nodes_is_not_known_or_requests_are_served_a_rest_is_a_note() {
    let severities = |mut judge: Judge, sent| {
        let mut all = judge.judge(10 * SECOND, vec![up(sent), up(sent)]);
        for at in 2..60 {
            all.extend(judge.judge(10 * at * SECOND, vec![up(sent), up(sent)]));
        }
        all.iter().map(|one| one.severity).collect::<Vec<_>>()
    };
    let both = [Severity::Info, Severity::Warning];
    assert_eq!(severities(expecting(Expected::Traffic), 0), both);
    assert_eq!(severities(expecting(Expected::Unknown), 0), [Severity::Info]);
    assert_eq!(severities(expecting(Expected::Unknown), 5), both, "it has moved data");
    let mut server = expecting(Expected::Traffic);
    server.limits.is_server = true;
    assert_eq!(severities(server, 5), [Severity::Info]);
}

/// Whoever stops the watcher stops the job as well (SIGSTOP, the freezer, a suspended machine).
#[test]
fn a_time_in_which_nobody_looked_is_no_rest() {
    let mut judge = judge(20);
    judge.limits.interval = 5 * SECOND;
    assert!(said(&mut judge, 5, [up(5), up(5)]).is_empty());
    assert!(said(&mut judge, 1000, [up(5), up(5)]).is_empty());
    assert!(said(&mut judge, 1002, [up(5), up(6)]).is_empty());
}

#[test]
fn chatter_is_no_progress() {
    let mut judge = judge(20);
    let moved = |sent| [up(sent), up(0)];
    assert!(said(&mut judge, 10, moved(10_000_000)).is_empty());
    // 5 packets a second beside a million before.
    assert!(said(&mut judge, 20, moved(10_000_050)).is_empty());
    assert!(said(&mut judge, 30, moved(10_000_100))[0].starts_with("No data has moved over"));
}

/// The subnet manager sends so much in 10 s, and not in each look.
#[test]
fn management_traffic_is_measured_by_time() {
    let infiniband = || {
        let mut judge = judge(20);
        judge.ports.iter_mut().for_each(|port| port.is_infiniband = true);
        judge
    };
    let mut fast = infiniband();
    for at in 1..100 {
        assert!(said(&mut fast, at, [up(200 * at), up(0)]).is_empty(), "{at}");
    }
    let mut slow = infiniband();
    assert!(said(&mut slow, 19, [up(250), up(0)]).is_empty());
    assert!(said(&mut slow, 300, [up(5000), up(0)])[0].contains("no data has moved"));
}

/// NCCL's collectives are in lockstep: one rail that is slow slows all of them.
#[test]
fn a_job_that_slows_down_for_long_is_a_note() {
    let mut judge = judge(6000);
    let mut sent = 0;
    let mut at = 0;
    let mut run = |looks: u64, packets: u64| {
        let mut all = Vec::new();
        for _ in 0..looks {
            (at, sent) = (at + 10, sent + packets);
            all.extend(judge.judge(at * SECOND, vec![up(sent), up(sent)]));
        }
        all.into_iter().map(|one| (one.severity, one.message)).collect::<Vec<_>>()
    };
    assert!(run(180, 100_000).is_empty());
    assert!(run(100, 0).is_empty());
    let slow = "The job's rate has been 4000 packets/s in its last 20 minutes of traffic, 20 % of that in its best 10 minutes (20000 packets/s): no rail shows errors.";
    assert_eq!(run(180, 20_000), [(Severity::Info, slow.to_owned())]);
    let back = "The job moves about as much as before again.";
    assert_eq!(run(120, 100_000), [(Severity::Info, back.to_owned())]);
}

/// One page for one cause.
#[test]
fn a_job_whose_devices_are_gone_has_one_warning() {
    let mut judge = judge(20);
    let gone = || vec![look(None, &[]), look(None, &[])];
    let severities = |found: Vec<Finding>| found.iter().map(|one| one.severity).collect::<Vec<_>>();
    assert_eq!(severities(judge.judge(10 * SECOND, gone())), [Severity::Warning]);
    assert_eq!(severities(judge.judge(20 * SECOND, gone())), [Severity::Info]);
}

/// Only every second look at a port that rests reads its counters.
#[test]
fn the_time_of_what_a_port_at_rest_has_counted_is_since_they_were_read() {
    let mut judge = judge(600);
    let partial = || PortLook { is_partial: true, ..up(0) };
    assert!(said(&mut judge, 10, [up(0), up(0)]).is_empty());
    assert!(said(&mut judge, 20, [partial(), partial()]).is_empty());
    let ended = look(Some("4: ACTIVE\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 1)]);
    assert_eq!(said(&mut judge, 30, [up(0), ended]), ["The link went down within 20s: mlx5_2, 1 time."]);
}

#[test]
fn what_was_warned_of_is_kept_for_the_account() {
    let mut judge = judge(600);
    let fast = |rate: &str| PortLook { rate: Some(rate.to_owned()), ..up(0) };
    judge.ports[1].first = fast("200 Gb/sec (4X HDR)");
    let slow = |judge: &Judge| judge.history.tracks.iter().map(|track| track.slow).collect::<Vec<_>>();
    assert!(slow(&judge).iter().all(|slow| !slow.ever()));
    assert_eq!(said(&mut judge, 10, [up(1), fast("50 Gb/sec (1X HDR)")]).len(), 1);
    let [first, second] = slow(&judge)[..] else { panic!() };
    assert!(!first.ever() && second.is_so());
    assert_eq!(judge.history.tracks[1].slow_rate, "50 Gb/sec (1X HDR)");
    assert_eq!(second.until(30 * SECOND), 20 * SECOND);
    assert_eq!(said(&mut judge, 40, [up(2), fast("200 Gb/sec (4X HDR)")]).len(), 1);
    let second = slow(&judge)[1];
    assert_eq!((second.is_so(), second.until(99 * SECOND)), (false, 30 * SECOND));
}
