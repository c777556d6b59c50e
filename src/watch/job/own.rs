//! When this node's rails moved data last, and what its ports have counted around that time. Pure.

use std::time::Duration;

use super::judge::When;
use super::message::{LONGEST_PORT, Moved, PORTS, PortCounts, PortState, State};
use crate::facts::port_errors::{Rise, Trouble};
use crate::finding::Id;
use crate::findings::port_errors::kind;
use crate::findings::port_name::RailId;
use crate::watch::judge::Judge;
use crate::watch::track::Track;

/// The two looks between which something was seen to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Between {
    pub earlier: Duration,
    pub later: Duration,
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Unknown,
    Never,
    Moves,
    Rests,
}

#[derive(Default)]
pub(super) struct Own {
    moved: Option<Between>,
    is_known: bool,
    ports: Vec<PortCounts>,
}

impl Own {
    /// Takes what the judge knows after a look.
    pub(super) fn look(&mut self, judge: &Judge) {
        let moved = judge.movement_seen();
        self.is_known = moved.is_some();
        if let Some(Some((earlier, later))) = moved {
            self.moved = Some(Between { earlier, later });
        }
        let mut counted: Vec<PortCounts> = judge.history.tracks.iter().filter_map(counts).collect();
        counted.sort_by_key(|port| std::cmp::Reverse(weight(port)));
        counted.truncate(PORTS);
        self.ports = counted;
    }

    /// Returns between which looks something moved last.
    pub(super) fn when(&self) -> When {
        match self.moved {
            _ if !self.is_known => When::Unknown,
            None => When::Never,
            Some(between) => When::At(between),
        }
    }

    /// Returns whether something moves, as far as this node knows. What has not moved for `rest` has come to rest.
    pub(super) fn motion(&self, now: Duration, rest: Duration) -> Motion {
        match self.when() {
            When::Unknown => Motion::Unknown,
            When::Never => Motion::Never,
            When::At(between) if now.saturating_sub(between.later) < rest => Motion::Moves,
            When::At(_) => Motion::Rests,
        }
    }

    pub(super) fn ports(&self) -> &[PortCounts] {
        &self.ports
    }

    pub(super) fn state(&self, now: Duration) -> State {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let moved = match self.when() {
            When::Unknown => Moved::Unknown,
            When::Never => Moved::Never,
            When::At(Between { earlier, later }) => Moved::Ago {
                ms: ms(now.saturating_sub(later)),
                // Rounded up, so that what is between the looks is in this time.
                between_ms: ms(later.saturating_sub(earlier)).saturating_add(1),
            },
        };
        State { moved, ports: self.ports.clone() }
    }
}

/// Returns what a port has counted since shortly before it came to rest; `None` if there is nothing to tell.
fn counts(track: &Track) -> Option<PortCounts> {
    let rises = track.last.errors.since(&track.before_rest);
    // A few are not worth a word, and packets out of order are no loss.
    let worth = |rise: &&Rise| {
        rise.count >= kind(rise.trouble).least
            && !matches!(rise.trouble, Trouble::OutOfOrder | Trouble::Discarded)
    };
    let sum = |id: Id| {
        let counted = rises.iter().filter(worth).filter(|rise| kind(rise.trouble).id == id);
        counted.map(|rise| rise.count).fold(0, u64::saturating_add)
    };
    let rail = RailId { is_one_of_several: track.rail.port != 1, ..track.rail.clone() };
    let mut port = rail.to_string();
    if port.len() > LONGEST_PORT {
        port = port.chars().take(LONGEST_PORT / 4).collect();
    }
    let counts = PortCounts {
        state: match track.loss {
            None => PortState::AsBefore,
            Some(loss) if loss.is_gone => PortState::Gone,
            Some(_) => PortState::Down,
        },
        ended: sum(Id::EndedQueuePairs),
        link_downs: sum(Id::LinkDown),
        link_errors: sum(Id::LinkErrors),
        resent: sum(Id::LostPackets),
        port: String::new(),
    };
    (counts != PortCounts::default()).then_some(PortCounts { port, ..counts })
}

/// By what a port is worse than another.
pub(super) fn weight(port: &PortCounts) -> impl Ord + use<> {
    let state = match port.state {
        PortState::AsBefore => 0,
        PortState::Down => 1,
        PortState::Gone => 2,
    };
    (state, port.link_downs, port.ended, port.link_errors, port.resent)
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::Deref;

    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::PortLook;
    use crate::facts::port_look::read;
    use crate::watch::track::WatchedPort;

    const SECOND: Duration = Duration::from_secs(1);

    /// What a node knows, with the judge that it has it from.
    #[derive(Default)]
    pub(in crate::watch::job) struct Watched {
        own: Own,
        judge: Option<Judge>,
    }

    impl Watched {
        pub(in crate::watch::job) fn look(
            &mut self,
            at: Duration,
            ports: &[WatchedPort],
            looks: &[PortLook],
        ) {
            let judge = self.judge.get_or_insert_with(|| Judge::patient(ports.to_vec(), Duration::MAX / 4));
            judge.judge(at, looks.to_vec());
            self.own.look(judge);
        }
    }

    impl Deref for Watched {
        type Target = Own;

        fn deref(&self) -> &Own {
            &self.own
        }
    }

    /// Looks at an mlx5 port with these counters.
    fn look(sent: &str, files: &[(&str, &str)]) -> PortLook {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        root.files(port, &[("state", "4: ACTIVE\n"), ("counters/port_xmit_data", sent)]);
        root.files(port, files);
        let reader = root.reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }

    fn gone() -> PortLook {
        let reader = FakeRoot::new().reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }

    fn ports(files: &[(&str, &str)]) -> [WatchedPort; 1] {
        [WatchedPort { rail: RailId::new("x_0", 1), first: look("0\n", files), ..WatchedPort::default() }]
    }

    #[test]
    fn the_last_movement_is_between_two_looks() {
        let ports = ports(&[]);
        let mut own = Watched::default();
        let at = |own: &mut Watched, seconds: u32, sent: &str| {
            own.look(seconds * SECOND, &ports, &[look(sent, &[])]);
            own.state((seconds + 2) * SECOND).moved
        };
        assert_eq!(own.state(SECOND).moved, Moved::Unknown);
        assert_eq!(at(&mut own, 10, "0\n"), Moved::Never);
        assert_eq!(at(&mut own, 20, "5\n"), Moved::Ago { ms: 2000, between_ms: 10_001 });
        assert_eq!(at(&mut own, 30, "5\n"), Moved::Ago { ms: 12_000, between_ms: 10_001 });
        let last = When::At(Between { earlier: 10 * SECOND, later: 20 * SECOND });
        assert_eq!(own.when(), last);
        own.look(40 * SECOND, &ports, &[look("N/A\n", &[])]);
        assert_eq!((own.state(40 * SECOND).moved, own.when()), (Moved::Unknown, When::Unknown));
        // A node whose last device is gone has stopped.
        own.look(50 * SECOND, &ports, &[gone()]);
        assert_eq!((own.when(), own.ports()[0].state), (last, PortState::Gone));
    }

    /// As mlx5 in a network namespace that shares the HCAs of the host's.
    #[test]
    fn requests_of_peers_that_rose_and_stand_still_are_a_rest() {
        let requests = |count: &str| {
            let root = FakeRoot::new();
            let files = [("state", "4: ACTIVE\n"), ("hw_counters/rx_write_requests", count)];
            root.files("sys/class/infiniband/x_0/ports/1", &files);
            let reader = root.reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        };
        let ports =
            [WatchedPort { rail: RailId::new("x_0", 1), first: requests("7\n"), ..WatchedPort::default() }];
        let mut own = Watched::default();
        let mut at = |seconds: u32, count: &str| {
            own.look(seconds * SECOND, &ports, &[requests(count)]);
            own.when()
        };
        assert_eq!(at(10, "7\n"), When::Unknown, "that it never moved is not known");
        let moved = When::At(Between { earlier: 10 * SECOND, later: 20 * SECOND });
        assert_eq!((at(20, "9\n"), at(30, "9\n")), (moved, moved));
    }

    #[test]
    fn devices_that_are_gone_and_never_counted_prove_nothing() {
        let ports = [WatchedPort { first: look("N/A\n", &[]), ..ports(&[])[0].clone() }];
        let mut own = Watched::default();
        own.look(10 * SECOND, &ports, &[gone()]);
        assert_eq!(own.when(), When::Unknown);
        let mut own = Watched::default();
        own.look(20 * SECOND, &[], &[]);
        assert_eq!(own.when(), When::Unknown);
    }

    #[test]
    fn what_the_ports_counted_since_shortly_before_they_came_to_rest_is_told() {
        let counted = |ended: &'static str, resent: &'static str| {
            [
                ("hw_counters/req_transport_retries_exceeded", ended),
                ("hw_counters/local_ack_timeout_err", resent),
            ]
        };
        let ports = ports(&counted("7\n", "100\n"));
        let mut own = Watched::default();
        let at = |own: &mut Watched, seconds: u32, sent: &str, files: &[(&str, &str)]| {
            own.look(seconds * SECOND, &ports, &[look(sent, files)]);
            own.ports().to_vec()
        };
        // While the job runs, what is long ago is forgotten.
        assert_eq!(at(&mut own, 10, "5\n", &counted("7\n", "900\n"))[0].resent, 800);
        assert!(at(&mut own, 20, "6\n", &counted("7\n", "930\n")).is_empty(), "a few are not told");
        // It moved for the last time before the look at 30, and 800 packets were sent again in that time.
        at(&mut own, 30, "7\n", &counted("7\n", "1730\n"));
        let told = at(&mut own, 40, "7\n", &counted("9\n", "4341\n"));
        let wanted = PortCounts { port: "x_0".into(), ended: 2, resent: 3411, ..PortCounts::default() };
        assert_eq!(told, std::slice::from_ref(&wanted));
        let down = [&counted("9\n", "4341\n")[..], &[("state", "1: DOWN\n")]].concat();
        assert_eq!(at(&mut own, 50, "7\n", &down), [PortCounts { state: PortState::Down, ..wanted }]);
    }
}
