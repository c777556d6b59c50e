//! When this node's rails moved data last, and what its ports have counted around that time. Pure.

use std::time::Duration;

use super::judge::When;
use super::message::{LONGEST_PORT, Moved, PORTS, PortCounts, PortState, State};
use crate::facts::port_errors::{Rise, Trouble};
use crate::facts::port_look::PortLook;
use crate::findings::port_errors::least;
use crate::findings::port_name::names_of_port;
use crate::findings::traffic::has_moved;
use crate::watch::judge::{WatchedPort, is_movement_known};

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
    last: Vec<PortLook>,
    last_at: Duration,
    /// The look before the last movement: what a port counted just before the rails came to rest shows, too.
    before: Vec<PortLook>,
    moved: Option<Between>,
    is_known: bool,
    ports: Vec<PortCounts>,
}

impl Own {
    /// Takes a look at all ports, at this time since the start.
    pub(super) fn look(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) {
        if self.last.is_empty() {
            self.last = ports.iter().map(|port| port.first.clone()).collect();
            self.before = self.last.clone();
        }
        let pairs = || ports.iter().zip(looks);
        let is_moving =
            pairs().zip(&self.last).any(|((port, look), before)| has_moved(&port.moved(look, before)));
        if is_moving {
            self.moved = Some(Between { earlier: self.last_at, later: at });
            self.before = std::mem::take(&mut self.last);
        }
        self.is_known = is_movement_known(ports, looks, self.moved.is_some());
        let mut told: Vec<PortCounts> =
            pairs().zip(&self.before).map(|((port, look), before)| counted(port, look, before)).collect();
        told.retain(|port| *port != PortCounts { port: port.port.clone(), ..PortCounts::default() });
        told.sort_by_key(|port| std::cmp::Reverse(weight(port)));
        told.truncate(PORTS);
        self.ports = told;
        self.last = looks.to_vec();
        self.last_at = at;
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

fn counted(port: &WatchedPort, now: &PortLook, before: &PortLook) -> PortCounts {
    let rises = now.errors.since(&before.errors);
    let sum = |of: &[Trouble]| {
        // A few are not worth a word.
        let told =
            rises.iter().filter(|rise| of.contains(&rise.trouble) && rise.count >= least(rise.trouble));
        told.map(|rise: &Rise| rise.count).fold(0, u64::saturating_add)
    };
    let state = match now.errors.is_lost_since(&port.first.errors) {
        false => PortState::AsBefore,
        true if now.errors.is_gone() => PortState::Gone,
        true => PortState::Down,
    };
    let mut name = names_of_port(&port.hca, port.now.as_deref(), port.port, port.port != 1);
    if name.len() > LONGEST_PORT {
        name = name.chars().take(LONGEST_PORT / 4).collect();
    }
    PortCounts {
        port: name,
        state,
        ended: sum(&[Trouble::NoAnswer, Trouble::NotReady, Trouble::FailedRequest]),
        link_downs: sum(&[Trouble::LinkDown]),
        link_errors: sum(&[
            Trouble::LinkRecovery,
            Trouble::LinkIntegrity,
            Trouble::Symbol,
            Trouble::ReceiveError,
        ]),
        resent: sum(&[Trouble::Timeout, Trouble::ReceiverNotReady, Trouble::Missed]),
    }
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
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::read;

    const SECOND: Duration = Duration::from_secs(1);

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
        [WatchedPort { hca: "x_0".into(), port: 1, first: look("0\n", files), ..WatchedPort::default() }]
    }

    #[test]
    fn the_last_movement_is_between_two_looks() {
        let ports = ports(&[]);
        let mut own = Own::default();
        let at = |own: &mut Own, seconds: u32, sent: &str| {
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
            [WatchedPort { hca: "x_0".into(), port: 1, first: requests("7\n"), ..WatchedPort::default() }];
        let mut own = Own::default();
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
        let mut own = Own::default();
        own.look(10 * SECOND, &ports, &[gone()]);
        assert_eq!(own.when(), When::Unknown);
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
        let mut own = Own::default();
        let at = |own: &mut Own, seconds: u32, sent: &str, files: &[(&str, &str)]| {
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
