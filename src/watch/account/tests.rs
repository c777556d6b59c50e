use super::*;
use crate::facts::fake_root::FakeRoot;
use crate::facts::port_counters::Counters;
use crate::facts::port_look::read;
use crate::finding::Severity;
use crate::findings::port_name::RailId;
use crate::watch::judge::Judge;

/// A port whose files change.
struct Host(FakeRoot);

impl Host {
    fn look(&self, files: &[(&str, &str)]) -> PortLook {
        self.0.files("sys/class/infiniband/x_0/ports/1", files);
        let reader = self.0.reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }
}

/// A watcher of these ports.
struct Watching(Judge);

impl Watching {
    fn new(ports: &[WatchedPort]) -> Watching {
        Watching(Judge::patient(ports.to_vec(), seconds(600)))
    }

    /// Returns whether the look is worth keeping.
    fn look(&mut self, at: Duration, looks: &[PortLook]) -> bool {
        self.0.judge(at, looks.to_vec());
        self.0.changed().is_some()
    }

    /// Returns what it has left, as the account reads it.
    fn left(&self) -> History {
        let text = serde_json::to_string(&self.0.history).unwrap();
        assert!(text.len() < 2048 * self.0.ports().len().max(1), "{}", text.len());
        serde_json::from_str(&text).unwrap()
    }
}

/// With what the watcher has seen shortly before the end.
fn given(ports: &[WatchedPort], seen: Option<&Watching>, now: &[PortLook], ran: Duration) -> Account {
    Account::new(ports, seen.map(|seen| (ran - seconds(1), seen.left())), Some(now), ran, LOOKS).unwrap()
}

const LOOKS: Watcher = Watcher {
    has_ended: false,
    interval: Duration::from_secs(10),
    after: Duration::from_secs(600),
    expected: Expected::Traffic,
};

const SENT: &str = "counters/port_xmit_data";
const DOWNED: &str = "counters/link_downed";
const ENDED: &str = "hw_counters/req_transport_retries_exceeded";

fn start() -> (Host, Vec<WatchedPort>) {
    let host = Host(FakeRoot::new());
    let first = host.look(&[("state", "4: ACTIVE\n"), (SENT, "1000"), (DOWNED, "3"), (ENDED, "7")]);
    (host, vec![WatchedPort { rail: RailId::new("x_0", 1), first, ..WatchedPort::default() }])
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_sound_run_has_moved_and_counted_nothing_wrong() {
    let (host, ports) = start();
    let now = host.look(&[(SENT, "1500")]);
    let account = given(&ports, None, &[now], seconds(60));
    let rail = &account.rails[0];
    assert_eq!(rail.amount(Unit::Bytes), Some(2000));
    assert!(rail.is_well(account.ran) && !account.is_broken());
    assert_eq!(account.watched, Watched::Never);
    assert_eq!((account.unit(), account.share(rail)), (Some(Unit::Bytes), Some(1.0)));
    assert_eq!(account.findings(false), []);
}

#[test]
fn a_job_that_never_began_is_not_accused() {
    let (host, ports) = start();
    let told = |ran, after| {
        let watcher = Watcher { after: seconds(after), ..LOOKS };
        let now = [host.look(&[])];
        let account = Account::new(&ports, None, Some(&now), seconds(ran), watcher).unwrap();
        let told = [false, true].map(|is_cut_short| {
            account.findings(is_cut_short).iter().any(|finding| finding.id == Id::NoTraffic)
        });
        assert_eq!(told[0], told[1]);
        told[0]
    };
    assert!(told(60, 600) && !told(59, 600) && !told(1, 600));
    assert!(told(2, 2) && !told(1, 2), "a job whose traffic may pause for less begins earlier");
}

#[test]
fn the_watcher_s_looks_bridge_counters_that_begin_anew() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[(SENT, "2000"), (DOWNED, "4"), (ENDED, "9")])]);
    // The device goes, and comes back with new counters.
    seen.look(seconds(20), &[PortLook::default()]);
    seen.look(seconds(30), &[PortLook::default()]);
    seen.look(seconds(40), &[host.look(&[(SENT, "0"), (DOWNED, "0"), (ENDED, "0")])]);
    let now = host.look(&[(SENT, "500"), (ENDED, "1")]);
    let account = given(&ports, Some(&seen), std::slice::from_ref(&now), seconds(60));
    let rail = &account.rails[0];
    assert_eq!(rail.amount(Unit::Bytes), Some(4 * 1500));
    assert_eq!(rail.rises.iter().map(|rise| rise.count).collect::<Vec<_>>(), [1, 3]);
    // The link went down before the device went: these are two events.
    let down = Ago { least: seconds(50), most: seconds(60) };
    assert_eq!((rail.downs(), rail.track.removals, rail.down_ago(account.ran)), ((1, false), 1, Some(down)));
    assert!(account.is_broken() && !rail.is_lost());
    assert_eq!(account.watched, Watched::Throughout);
    // The first look and the last one alone know less.
    let account = given(&ports, None, &[now], seconds(60));
    assert_eq!(account.rails[0].amount(Unit::Bytes), Some(2000));
    assert_eq!(account.rails[0].down_ago(account.ran), None);
}

#[test]
fn a_counter_that_is_not_shown_for_a_look_loses_nothing() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    let looks =
        [[(SENT, "1100"), (ENDED, "8")], [(SENT, "N/A"), (ENDED, "")], [(SENT, "1300"), (ENDED, "9")]];
    for (at, files) in (1..).zip(&looks) {
        seen.look(seconds(10 * at), &[host.look(files)]);
    }
    let account = Account::new(&ports, Some((seconds(10), seen.left())), None, seconds(60), LOOKS).unwrap();
    let rail = &account.rails[0];
    assert_eq!((rail.amount(Unit::Bytes), rail.rises[0].count), (Some(4 * 300), 2));
    // One that is not there at the end is known from before.
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[(SENT, "1300"), (ENDED, "9")])]);
    let account = given(&ports, Some(&seen), &[PortLook::default()], seconds(60));
    let rail = &account.rails[0];
    assert_eq!((rail.amount(Unit::Bytes), rail.is_gone(), rail.is_lost()), (Some(4 * 300), true, true));
}

#[test]
fn a_look_like_the_last_one_is_nothing_new() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    let mut is_new = |files: &[(&str, &str)]| seen.look(seconds(10), &[host.look(files)]);
    assert!(is_new(&[]), "the first one is");
    assert!(!is_new(&[]) && is_new(&[(SENT, "1001")]) && !is_new(&[]) && is_new(&[(ENDED, "8")]));
    // When it was seen down last is new each time.
    assert!(is_new(&[("state", "1: DOWN")]) && is_new(&[]) && is_new(&[("state", "4: ACTIVE")]));
    assert!(is_new(&[]), "its GID may come back after its link");
    assert!(!is_new(&[]));
}

#[test]
fn a_device_that_came_back_under_another_name_has_not_only_lost_its_link() {
    let (host, ports) = start();
    let called = |downs: &str| PortLook { renamed: Some("x_9".into()), ..host.look(&[(DOWNED, downs)]) };
    let mut seen = Watching::new(&ports);
    assert!(seen.look(seconds(10), &[host.look(&[])]));
    assert!(seen.look(seconds(20), &[called("4")]));
    seen.look(seconds(30), &[called("4")]);
    assert!(!seen.look(seconds(40), &[called("4")]));
    let account = given(&ports, Some(&seen), &[called("5")], seconds(60));
    let rail = &account.rails[0];
    assert_eq!(
        (rail.track.rail.now.as_deref(), rail.downs(), rail.track.removals),
        (Some("x_9"), (1, false), 0)
    );
    assert!(account.is_broken() && !rail.is_well(account.ran) && !rail.is_lost());
}

#[test]
fn another_name_alone_breaks_nothing() {
    let (host, ports) = start();
    let called = || PortLook { renamed: Some("x_9".into()), ..host.look(&[]) };
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[called()]);
    let account = given(&ports, Some(&seen), &[called()], seconds(60));
    assert!(!account.is_broken() && !account.rails[0].is_well(account.ran));
    assert_eq!(account.rails[0].track.rail.id(), "x_9:1");
}

#[test]
fn a_device_that_could_not_be_read_for_three_looks_has_failed() {
    let (host, ports) = start();
    let hidden = || {
        let root = FakeRoot::new();
        root.folder("sys/class/infiniband/x_0/ports/1/state");
        Host(root).look(&[])
    };
    let after = |looks: &[PortLook]| {
        let mut seen = Watching::new(&ports);
        for (at, look) in (1..).zip(looks) {
            seen.look(seconds(10 * at), std::slice::from_ref(look));
        }
        let account =
            Account::new(&ports, Some((seconds(55), seen.left())), None, seconds(60), LOOKS).unwrap();
        let rail = &account.rails[0];
        (
            rail.track.is_hidden(),
            rail.track.was_hidden,
            account.is_broken(),
            rail.is_well(account.ran),
            rail.is_gone(),
        )
    };
    assert_eq!(after(&[hidden(), hidden(), host.look(&[])]), (false, false, false, true, false));
    assert_eq!(after(&[hidden(), hidden(), hidden(), hidden()]), (true, true, true, false, false));
    assert_eq!(after(&[hidden(), hidden(), hidden(), host.look(&[])]), (false, true, true, false, false));
}

/// Only then has the watcher given the fix.
#[test]
fn what_was_said_without_its_fix_is_not_said() {
    let (host, ports) = start();
    let link = |finding: Finding| finding.about_ports(["x_0:1"]);
    let after = |said: &[Finding]| {
        let mut seen = Watching::new(&ports);
        seen.0.pass(seconds(10), said.to_vec());
        let account = given(&ports, Some(&seen), &[host.look(&[("state", "1: DOWN")])], seconds(60));
        let findings = account.findings(false);
        (account.was_said(&findings[0]), account.rails[0].fixes(&findings).len())
    };
    assert_eq!(after(&[link(Finding::info(Id::LinkDown, "It is active again."))]), (false, 1));
    let renamed = link(Finding::warning(Id::LinkDown, "It has another name.")).with_fix("Start it again.");
    assert_eq!(after(&[renamed]), (false, 1));
    let down = link(Finding::warning(Id::LinkDown, "It is down.")).with_fix(port_errors::FIX_OF_LINK);
    assert_eq!(after(&[down]), (true, 0));
}

#[test]
fn what_the_watcher_saw_counts_where_no_counter_does() {
    let host = Host(FakeRoot::new());
    let first = host.look(&[("state", "4: ACTIVE\n")]);
    let ports = [WatchedPort { rail: RailId::new("x_0", 1), first, ..WatchedPort::default() }];
    let mut seen = Watching::new(&ports);
    for (at, state) in [(10, "1: DOWN"), (20, "4: ACTIVE"), (30, "1: DOWN"), (40, "1: DOWN")] {
        seen.look(seconds(at), &[host.look(&[("state", state)])]);
    }
    let account = given(&ports, Some(&seen), &[host.look(&[("state", "4: ACTIVE")])], seconds(44));
    let rail = &account.rails[0];
    assert_eq!(
        (rail.downs(), rail.down_ago(account.ran)),
        ((2, false), Some(Ago { least: seconds(4), most: seconds(4) }))
    );
    assert_eq!((account.unit(), account.share(rail)), (None, None));
    assert!(account.is_broken());
    // A record of other ports says nothing.
    let other = Watching::new(&[]);
    let account = given(&ports, Some(&other), &[PortLook::default()], seconds(44));
    let rail = &account.rails[0];
    assert_eq!((rail.is_lost(), rail.is_gone(), rail.downs().0), (true, true, 0));
    assert!(account.is_broken() && account.watched == Watched::Never);
}

#[test]
fn a_flap_after_the_last_look_has_no_time_of_its_own() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[])]);
    let now = host.look(&[(DOWNED, "4")]);
    // The look at 43 s showed nothing new, so that only its time was saved.
    let account =
        Account::new(&ports, Some((seconds(43), seen.left())), Some(&[now]), seconds(60), LOOKS).unwrap();
    // Its counters may have been read in the look before.
    let down = Ago { least: Duration::ZERO, most: seconds(27) };
    assert_eq!((account.rails[0].downs().0, account.rails[0].down_ago(account.ran)), (1, Some(down)));
}

/// Only every second look at a port that rests reads its counters.
#[test]
fn a_flap_of_a_port_at_rest_is_since_the_last_look_at_its_counters() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[])]);
    assert!(!seen.look(seconds(20), &[PortLook { is_partial: true, ..host.look(&[]) }]));
    seen.look(seconds(30), &[host.look(&[(DOWNED, "4")])]);
    let account = Account::new(&ports, Some((seconds(30), seen.left())), None, seconds(34), LOOKS).unwrap();
    let down = Ago { least: seconds(4), most: seconds(24) };
    assert_eq!(account.rails[0].down_ago(account.ran), Some(down));
}

#[test]
fn a_device_that_came_back_between_two_looks_was_removed() {
    let (host, ports) = start();
    let directory = |directory| PortLook { directory: Some((1, directory)), ..host.look(&[(DOWNED, "4")]) };
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[directory(7)]);
    seen.look(seconds(20), &[directory(8)]);
    let account = given(&ports, Some(&seen), &[directory(8)], seconds(60));
    let rail = &account.rails[0];
    assert_eq!((rail.track.removals, rail.is_gone(), account.is_broken()), (1, false, true));
}

#[test]
fn a_job_that_stopped_moving_data_is_told_since_when() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[])]);
    let account = given(&ports, Some(&seen), &[host.look(&[])], seconds(2000));
    assert_eq!((account.rested, account.rest()), (None, None), "it never moved any");
    seen.look(seconds(20), &[host.look(&[(SENT, "2000")])]);
    seen.look(seconds(30), &[host.look(&[])]);
    let rested = |ran| {
        let account = given(&ports, Some(&seen), &[host.look(&[])], seconds(ran));
        (account.rested, account.rest())
    };
    assert_eq!(rested(619), (Some(seconds(599)), None));
    assert_eq!(rested(620), (Some(seconds(600)), Some(seconds(600))));
    let alone = Watcher { expected: Expected::Nothing, ..LOOKS };
    let of =
        Account::new(&ports, Some((seconds(619), seen.left())), Some(&[host.look(&[])]), seconds(620), alone);
    assert_eq!(of.unwrap().rest(), None);
    // Something has moved since the last look.
    let account = given(&ports, Some(&seen), &[host.look(&[(SENT, "2001")])], seconds(700));
    assert_eq!(account.rested, Some(Duration::ZERO));
}

#[test]
fn a_job_on_one_node_needs_no_traffic() {
    let (host, ports) = start();
    let severities = |expected| {
        let watcher = Watcher { expected, ..LOOKS };
        let now = [host.look(&[])];
        let account = Account::new(&ports, None, Some(&now), seconds(3600), watcher).unwrap();
        account.findings(false).iter().map(|one| one.severity).collect::<Vec<_>>()
    };
    assert_eq!(severities(Expected::Traffic), [Severity::Warning]);
    assert_eq!(
        (severities(Expected::Unknown), severities(Expected::Nothing)),
        (vec![Severity::Info], vec![])
    );
}

#[test]
fn a_watcher_that_ended_or_hangs_has_not_seen_all() {
    let watched = |has_ended, last: Option<u64>, ran| {
        Watcher { has_ended, ..LOOKS }.watched(last.map(seconds), seconds(ran))
    };
    assert_eq!(watched(false, None, 60), Watched::Never);
    assert_eq!(watched(true, None, 60), Watched::Until(Duration::ZERO));
    assert_eq!(watched(false, Some(55), 60), Watched::Throughout);
    assert_eq!(watched(true, Some(55), 60), Watched::Until(seconds(55)));
    let is_recent = |has_ended, last: Option<u64>| {
        Watcher { has_ended, ..LOOKS }.is_recent(last.map(seconds), seconds(60))
    };
    assert!(is_recent(false, Some(25)) && !is_recent(false, Some(24)));
    assert!(!is_recent(true, Some(59)) && !is_recent(false, None));
    assert_eq!(
        [watched(false, Some(25), 60), watched(false, Some(24), 60)],
        [Watched::Throughout, Watched::Until(seconds(24))]
    );
}

#[test]
fn a_few_retries_break_nothing_and_a_queue_pair_does() {
    let (host, ports) = start();
    let timeouts = "hw_counters/local_ack_timeout_err";
    let now = host.look(&[(timeouts, "5")]);
    assert!(!given(&ports, None, &[now], seconds(60)).is_broken(), "it was not there before");
    let before = host.look(&[]);
    let ports = [WatchedPort { first: before, ..ports[0].clone() }];
    let now = host.look(&[(timeouts, "70")]);
    let account = given(&ports, None, &[now], seconds(60));
    assert!(!account.is_broken() && !account.rails[0].is_well(account.ran));
    let now = host.look(&[(ENDED, "8")]);
    assert!(given(&ports, None, &[now], seconds(60)).is_broken());
}

#[test]
fn what_the_watcher_has_said_of_a_port_stays_in_the_account() {
    let (host, _) = start();
    let timeouts = "hw_counters/local_ack_timeout_err";
    let ports = [1, 2].map(|number| {
        let first = host.look(&[(timeouts, "0")]);
        WatchedPort { rail: RailId::new("x_0", number), first, ..WatchedPort::default() }
    });
    let burst = host.look(&[(timeouts, "100")]);
    let mut seen = Watching::new(&ports);
    // The first port counted as many, but over a longer time.
    for count in 1..=10_u64 {
        let slow = host.look(&[(timeouts, &(10 * count).to_string())]);
        let fast = if count < 10 { ports[1].first.clone() } else { burst.clone() };
        seen.look(seconds(20 * count), &[slow, fast]);
    }
    let account = given(&ports, Some(&seen), &[burst.clone(), burst], seconds(3600));
    let well = account.rails.iter().map(|rail| rail.is_well(account.ran)).collect::<Vec<_>>();
    assert_eq!(well, [true, false], "100 in an hour alone are no trouble");
    assert_eq!(account.rails[1].worth_telling(account.ran).next().unwrap().count, 100);
}

#[test]
fn without_a_last_look_the_account_is_what_the_watcher_has_seen() {
    let (host, ports) = start();
    let mut seen = Watching::new(&ports);
    seen.look(seconds(10), &[host.look(&[(ENDED, "3")])]);
    let account = Account::new(&ports, Some((seconds(10), seen.left())), None, seconds(60), LOOKS).unwrap();
    assert!(account.is_broken() && account.watched == Watched::Until(seconds(10)));
    assert_eq!(Account::new(&ports, None, None, seconds(60), LOOKS), None);
}
