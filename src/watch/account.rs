//! The account of a job's ports: what each of them has moved and counted since the command was started. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::WatchedPort;
use crate::facts::port_errors::{Rise, Tally, Trouble};
use crate::facts::port_look::PortLook;
use crate::facts::traffic::Traffic;
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, PortRises, is_worth_reporting};
use crate::findings::traffic::{self, PortTraffic};

/// What the looks at the ports have shown so far. The watcher saves it after each look that shows something new, so
/// that the account at the end covers what happened in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    ports: Vec<SeenPort>,
    /// Whether something was taken; before, there is nothing to keep.
    has_begun: bool,
    /// When it looked last.
    looked_at: Duration,
}

/// Sums over the looks, because a counter may begin anew in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenPort {
    /// The last look, with the last known value of each counter.
    last: PortLook,
    moved: Traffic,
    errors: Tally,
    /// Whether the port was active at the start, and is not now.
    is_lost: bool,
    is_gone: bool,
    /// How often its link was found down, and how often its device was found gone.
    losses: u32,
    removals: u32,
    down_at: Option<SeenDown>,
}

/// When a link was down last, since the start: between two looks if only a counter shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SeenDown {
    from: Duration,
    to: Duration,
}

impl SeenPort {
    fn add(&mut self, port: &WatchedPort, now: &PortLook) {
        self.moved = self.moved.plus(now.traffic.since(self.last.traffic));
        self.errors.add(&now.errors.since(&self.last.errors));
        self.is_lost = now.errors.is_lost_since(&port.first.errors);
        self.is_gone = now.errors.is_gone() && !port.first.errors.is_gone();
        self.last = now.clone().with_known(&self.last);
    }
}

impl Seen {
    /// Begins with the first look at these ports.
    pub(crate) fn new(ports: &[WatchedPort]) -> Seen {
        let port = |port: &WatchedPort| SeenPort {
            last: port.first.clone(),
            // Zero for what the port counts, and `None` for the rest.
            moved: port.first.traffic.since(port.first.traffic),
            errors: Tally::default(),
            is_lost: false,
            is_gone: false,
            losses: 0,
            removals: 0,
            down_at: None,
        };
        Seen { ports: ports.iter().map(port).collect(), has_begun: false, looked_at: Duration::ZERO }
    }

    /// Takes what the watcher sees of the ports, in their order, at this time since the start. Returns whether that is
    /// new.
    pub(crate) fn watch(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) -> bool {
        let mut is_new = !std::mem::replace(&mut self.has_begun, true);
        for ((seen, port), now) in self.ports.iter_mut().zip(ports).zip(looks) {
            let is_lost = now.errors.is_lost_since(&port.first.errors);
            match is_lost && now.errors.is_gone() {
                true if !seen.is_gone => seen.removals = seen.removals.saturating_add(1),
                false if is_lost && !seen.is_lost => seen.losses = seen.losses.saturating_add(1),
                _ => {}
            }
            let mut rises = now.errors.since(&seen.last.errors);
            rises.retain(|rise| rise.trouble == Trouble::LinkDown);
            if is_lost && !now.errors.is_gone() {
                seen.down_at = Some(SeenDown { from: at, to: at });
            } else if !rises.is_empty() {
                seen.down_at = Some(SeenDown { from: self.looked_at, to: at });
            }
            is_new |= is_lost || *now != seen.last;
            seen.add(port, now);
        }
        self.looked_at = at;
        is_new
    }
}

/// A port of the job, from the start on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rail {
    pub hca: String,
    pub port: u32,
    pub is_infiniband: bool,
    pub moved: Traffic,
    pub rises: Vec<Rise>,
    /// It was active at the start, and is not now: it is inactive, or gone.
    pub is_lost: bool,
    pub is_gone: bool,
    /// How often its link went down, by the counter or as the watcher has seen it, and whether it was at least so
    /// often.
    pub downs: (u64, bool),
    /// How often the watcher has found its device gone.
    pub removals: u32,
    /// How long ago its link was down last, if the watcher knows.
    pub down_ago: Option<Ago>,
}

/// How long ago something was: so long, or between the two if only the looks around it are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ago {
    pub least: Duration,
    pub most: Duration,
}

/// What the ports have moved and counted in the time that the job has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub ran: Duration,
    pub rails: Vec<Rail>,
    pub watched: Watched,
    /// For how long at least a job runs that moves data.
    pub beginning: Duration,
}

/// For how long the watcher has seen what happened on the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// There was no watcher.
    Never,
    /// Until its last look, at this time since the start: then it ended, or a driver hung.
    Until(Duration),
    Throughout,
}

/// What is known about the watcher itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watcher {
    /// Whether its process ended before the command.
    pub has_ended: bool,
    /// How often it looks.
    pub interval: Duration,
    /// How long traffic may pause before it reports that.
    pub after: Duration,
}

impl Watcher {
    /// A watcher looks at least this often, unless it hangs: a look itself may take long.
    fn longest_pause(self) -> Duration {
        3 * self.interval + Duration::from_secs(5)
    }

    /// Returns whether its last look, at this time since the start, shows the ports as they are.
    pub(crate) fn is_recent(self, last_look: Option<Duration>, ran: Duration) -> bool {
        self.watched(last_look, ran) == Watched::Throughout
    }

    fn watched(self, last_look: Option<Duration>, ran: Duration) -> Watched {
        match last_look {
            None if self.has_ended => Watched::Until(Duration::ZERO),
            None => Watched::Never,
            Some(at) if self.has_ended || ran.saturating_sub(at) > self.longest_pause() => Watched::Until(at),
            Some(_) => Watched::Throughout,
        }
    }
}

/// A job that ends in this time may not have begun to communicate. torchrun alone waits 30 s for nodes
/// that are late (`last_call_timeout` of its rendezvous); then the ranks import their framework and make communicators.
const BEGINNING: Duration = Duration::from_secs(60);

/// What all rails count, and can be compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Packets,
    Requests,
}

impl Account {
    /// `now`: a last look at these ports; `seen`: when the watcher looked last, and what it has left, if there was one.
    /// `None` without both.
    pub(crate) fn new(
        ports: &[WatchedPort],
        seen: Option<(Duration, Seen)>,
        now: Option<&[PortLook]>,
        ran: Duration,
        watcher: Watcher,
    ) -> Option<Account> {
        let seen = seen.filter(|(_, seen)| seen.ports.len() == ports.len());
        let watched = watcher.watched(seen.as_ref().map(|(at, _)| *at), ran);
        // A look that shows nothing new is not saved, but its time is.
        let seen = seen.map(|(at, seen)| Seen { looked_at: at, ..seen });
        let mut seen = match now {
            None => seen?,
            Some(_) => seen.unwrap_or_else(|| Seen::new(ports)),
        };
        match now {
            Some(now) if watched != Watched::Never => drop(seen.watch(ran, ports, now)),
            Some(now) => {
                let pairs = seen.ports.iter_mut().zip(ports).zip(now);
                pairs.for_each(|((seen, port), now)| seen.add(port, now));
            }
            None => {}
        }
        let rails = ports.iter().zip(seen.ports).map(|(port, seen)| Rail::new(port, seen, ran)).collect();
        Some(Account { ran, rails, watched, beginning: BEGINNING.min(watcher.after) })
    }

    /// Returns the findings about the whole run, the worst first. `is_cut_short`: the command failed, or was stopped.
    pub(crate) fn findings(&self, is_cut_short: bool) -> Vec<Finding> {
        let wrong: Vec<PortRises> = self.rails.iter().map(Rail::wrong).collect();
        let moved: Vec<PortTraffic> = self.rails.iter().map(Rail::traffic).collect();
        let mut findings = port_errors::findings(&wrong, self.ran);
        // A fabric that broke is reason enough.
        if !self.is_broken() {
            let of_traffic = traffic::finding(&moved, self.ran, is_cut_short);
            let is_too_early = |finding: &Finding| finding.id == Id::NoTraffic && self.ran < self.beginning;
            findings.extend(of_traffic.filter(|finding| !is_too_early(finding)));
        }
        findings
    }

    /// Whether the fabric broke: a link went down, a queue pair failed, or an HCA is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.rails.iter().any(Rail::is_broken)
    }

    /// Returns what all rails count; `None` if there is nothing of the kind.
    pub(crate) fn unit(&self) -> Option<Unit> {
        let units = [Unit::Bytes, Unit::Packets, Unit::Requests];
        let all = |unit: &Unit| self.rails.iter().all(|rail| rail.amount(*unit).is_some());
        units.into_iter().find(all).filter(|_| !self.rails.is_empty())
    }

    /// Returns the share of a rail in what all of them have moved; `None` if nothing has moved, or it is not known.
    pub(crate) fn share(&self, rail: &Rail) -> Option<f64> {
        let unit = self.unit()?;
        let of = |rail: &Rail| rail.amount(unit).unwrap_or_default() as f64;
        let whole: f64 = self.rails.iter().map(of).sum();
        (whole > 0.0).then(|| of(rail) / whole)
    }
}

impl Rail {
    fn new(port: &WatchedPort, seen: SeenPort, ran: Duration) -> Rail {
        let rises = seen.errors.rises();
        let counted = rises.iter().filter(|rise| rise.trouble == Trouble::LinkDown);
        let (count, is_least) =
            counted.fold((0, false), |(sum, least), rise| (rise.count + sum, rise.is_least || least));
        Rail {
            hca: port.hca.clone(),
            port: port.port,
            is_infiniband: port.is_infiniband,
            moved: seen.moved,
            is_lost: seen.is_lost,
            is_gone: seen.is_gone,
            downs: (count.max(seen.losses.into()), is_least),
            removals: seen.removals,
            down_ago: seen.down_at.map(|SeenDown { from, to }| Ago {
                least: ran.saturating_sub(to),
                most: ran.saturating_sub(from),
            }),
            rises,
        }
    }

    fn wrong(&self) -> PortRises {
        let (hca, rises) = (self.hca.clone(), self.rises.clone());
        PortRises { hca, port: self.port, is_lost: self.is_lost, is_gone: self.is_gone, rises }
    }

    fn traffic(&self) -> PortTraffic {
        let (hca, is_infiniband) = (self.hca.clone(), self.is_infiniband);
        PortTraffic { hca, port: self.port, is_infiniband, traffic: self.moved }
    }

    /// Returns the rises that are worth telling, without those of links that went down, which `downs` has.
    pub(crate) fn told(&self, ran: Duration) -> impl Iterator<Item = &Rise> {
        let rises = self.rises.iter().filter(|rise| rise.trouble != Trouble::LinkDown);
        rises.filter(move |rise| is_worth_reporting(rise, ran))
    }

    /// Whether there is nothing to tell about it but what it has moved.
    pub(crate) fn is_well(&self, ran: Duration) -> bool {
        !self.is_lost && self.removals == 0 && self.downs.0 == 0 && self.told(ran).next().is_none()
    }

    fn is_broken(&self) -> bool {
        let has_failed = |rise: &Rise| {
            matches!(rise.trouble, Trouble::NoAnswer | Trouble::NotReady | Trouble::FailedRequest)
        };
        self.is_lost || self.removals > 0 || self.downs.0 > 0 || self.rises.iter().any(has_failed)
    }

    /// Returns what it has moved in both directions.
    pub(crate) fn amount(&self, unit: Unit) -> Option<u64> {
        let both = self.moved.both();
        match unit {
            Unit::Bytes => both.bytes,
            Unit::Packets => both.packets,
            Unit::Requests => self.moved.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::read;

    /// A port whose files change.
    struct Host(FakeRoot);

    impl Host {
        fn look(&self, files: &[(&str, &str)]) -> PortLook {
            self.0.files("sys/class/infiniband/x_0/ports/1", files);
            let reader = self.0.reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        }
    }

    /// With what the watcher has seen shortly before the end.
    fn given(ports: &[WatchedPort], seen: Option<Seen>, now: &[PortLook], ran: Duration) -> Account {
        Account::new(ports, seen.map(|seen| (ran - seconds(1), seen)), Some(now), ran, LOOKS).unwrap()
    }

    const LOOKS: Watcher = Watcher { has_ended: false, interval: Duration::from_secs(10), after: Duration::from_secs(600) };

    const SENT: &str = "counters/port_xmit_data";
    const DOWNED: &str = "counters/link_downed";
    const ENDED: &str = "hw_counters/req_transport_retries_exceeded";

    fn start() -> (Host, Vec<WatchedPort>) {
        let host = Host(FakeRoot::new());
        let first = host.look(&[("state", "4: ACTIVE\n"), (SENT, "1000"), (DOWNED, "3"), (ENDED, "7")]);
        (host, vec![WatchedPort { hca: "x_0".into(), port: 1, first, ..WatchedPort::default() }])
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
        let mut seen = Seen::new(&ports);
        seen.watch(seconds(10), &ports, &[host.look(&[(SENT, "2000"), (DOWNED, "4"), (ENDED, "9")])]);
        // The device goes, and comes back with new counters.
        seen.watch(seconds(20), &ports, &[PortLook::default()]);
        seen.watch(seconds(30), &ports, &[PortLook::default()]);
        seen.watch(seconds(40), &ports, &[host.look(&[(SENT, "0"), (DOWNED, "0"), (ENDED, "0")])]);
        let text = serde_json::to_string(&seen).unwrap();
        assert_eq!(serde_json::from_str::<Seen>(&text).unwrap(), seen);
        assert!(text.len() < 2048, "{}", text.len());
        let now = host.look(&[(SENT, "500"), (ENDED, "1")]);
        let account = given(&ports, Some(seen), std::slice::from_ref(&now), seconds(60));
        let rail = &account.rails[0];
        assert_eq!(rail.amount(Unit::Bytes), Some(4 * 1500));
        assert_eq!(rail.rises.iter().map(|rise| rise.count).collect::<Vec<_>>(), [1, 3]);
        // The link went down before the device went: these are two events.
        let down = Ago { least: seconds(50), most: seconds(60) };
        assert_eq!((rail.downs, rail.removals, rail.down_ago), ((1, false), 1, Some(down)));
        assert!(account.is_broken() && !rail.is_lost);
        assert_eq!(account.watched, Watched::Throughout);
        // The first look and the last one alone know less.
        let account = given(&ports, None, &[now], seconds(60));
        assert_eq!(account.rails[0].amount(Unit::Bytes), Some(2000));
        assert_eq!(account.rails[0].down_ago, None);
    }

    #[test]
    fn a_counter_that_is_not_shown_for_a_look_loses_nothing() {
        let (host, ports) = start();
        let mut seen = Seen::new(&ports);
        let looks =
            [[(SENT, "1100"), (ENDED, "8")], [(SENT, "N/A"), (ENDED, "")], [(SENT, "1300"), (ENDED, "9")]];
        for (at, files) in (1..).zip(&looks) {
            seen.watch(seconds(10 * at), &ports, &[host.look(files)]);
        }
        let account = Account::new(&ports, Some((seconds(10), seen)), None, seconds(60), LOOKS).unwrap();
        let rail = &account.rails[0];
        assert_eq!((rail.amount(Unit::Bytes), rail.rises[0].count), (Some(4 * 300), 2));
        // One that is not there at the end is known from before.
        let mut seen = Seen::new(&ports);
        seen.watch(seconds(10), &ports, &[host.look(&[(SENT, "1300"), (ENDED, "9")])]);
        let account = given(&ports, Some(seen), &[PortLook::default()], seconds(60));
        let rail = &account.rails[0];
        assert_eq!((rail.amount(Unit::Bytes), rail.is_gone, rail.is_lost), (Some(4 * 300), true, true));
    }

    #[test]
    fn a_look_like_the_last_one_is_nothing_new() {
        let (host, ports) = start();
        let mut seen = Seen::new(&ports);
        let mut is_new = |files: &[(&str, &str)]| seen.watch(seconds(10), &ports, &[host.look(files)]);
        assert!(is_new(&[]), "the first one is");
        assert!(!is_new(&[]) && is_new(&[(SENT, "1001")]) && !is_new(&[]) && is_new(&[(ENDED, "8")]));
        // When it was seen down last is new each time.
        assert!(is_new(&[("state", "1: DOWN")]) && is_new(&[]) && is_new(&[("state", "4: ACTIVE")]));
        assert!(!is_new(&[]));
    }

    #[test]
    fn what_the_watcher_saw_counts_where_no_counter_does() {
        let host = Host(FakeRoot::new());
        let first = host.look(&[("state", "4: ACTIVE\n")]);
        let ports = [WatchedPort { hca: "x_0".into(), port: 1, first, ..WatchedPort::default() }];
        let mut seen = Seen::new(&ports);
        for (at, state) in [(10, "1: DOWN"), (20, "4: ACTIVE"), (30, "1: DOWN"), (40, "1: DOWN")] {
            seen.watch(seconds(at), &ports, &[host.look(&[("state", state)])]);
        }
        let account = given(&ports, Some(seen), &[host.look(&[("state", "4: ACTIVE")])], seconds(44));
        let rail = &account.rails[0];
        assert_eq!((rail.downs, rail.down_ago), ((2, false), Some(Ago { least: seconds(4), most: seconds(4) })));
        assert_eq!((account.unit(), account.share(rail)), (None, None));
        assert!(account.is_broken());
        // A record of other ports says nothing.
        let other = Some(Seen { ports: Vec::new(), has_begun: true, looked_at: seconds(40) });
        let account = given(&ports, other, &[PortLook::default()], seconds(44));
        let rail = &account.rails[0];
        assert_eq!((rail.is_lost, rail.is_gone, rail.downs.0), (true, true, 0));
        assert!(account.is_broken() && account.watched == Watched::Never);
    }

    #[test]
    fn a_flap_after_the_last_look_has_no_time_of_its_own() {
        let (host, ports) = start();
        let mut seen = Seen::new(&ports);
        seen.watch(seconds(10), &ports, &[host.look(&[])]);
        let now = host.look(&[(DOWNED, "4")]);
        // The look at 43 s showed nothing new, so that only its time was saved.
        let account = Account::new(&ports, Some((seconds(43), seen)), Some(&[now]), seconds(60), LOOKS).unwrap();
        let down = Ago { least: Duration::ZERO, most: seconds(17) };
        assert_eq!((account.rails[0].downs.0, account.rails[0].down_ago), (1, Some(down)));
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
    fn without_a_last_look_the_account_is_what_the_watcher_has_seen() {
        let (host, ports) = start();
        let mut seen = Seen::new(&ports);
        seen.watch(seconds(10), &ports, &[host.look(&[(ENDED, "3")])]);
        let account = Account::new(&ports, Some((seconds(10), seen)), None, seconds(60), LOOKS).unwrap();
        assert!(account.is_broken() && account.watched == Watched::Until(seconds(10)));
        assert_eq!(Account::new(&ports, None, None, seconds(60), LOOKS), None);
    }
}
