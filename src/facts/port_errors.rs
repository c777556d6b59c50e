//! The errors that a port has counted: links that went down, queue pairs that ended, packets that were lost.
//! Each driver names its counters in its own way, and some counters are so small that they reach their
//! maximum.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::port_counters::PortCounters;

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The link went down.
    LinkDown,
    /// A queue pair ended because its peer did not acknowledge a packet: `IBV_WC_RETRY_EXC_ERR`.
    NoAnswer,
    /// A queue pair ended because its peer was not ready to receive: `IBV_WC_RNR_RETRY_EXC_ERR`.
    NotReady,
    /// A request failed, and its queue pair with it: a peer refused the access to its memory, or a read or a write of
    /// EFA failed.
    FailedRequest,
    /// A completion had an error that no other counter explains.
    Completion,
    /// The link recovered from an error by itself.
    LinkRecovery,
    /// The link had more errors than its hardware accepts.
    LinkIntegrity,
    /// A symbol on the link was wrong.
    Symbol,
    /// A packet came with an error.
    ReceiveError,
    /// A packet was sent again because no acknowledgement came in time.
    Timeout,
    /// The peer was not ready, and the packet was sent again.
    ReceiverNotReady,
    /// The peer missed a packet and said so, and the packet was sent again; or the NIC itself found that it had to.
    Missed,
    /// The congestion control began anew after a packet was lost.
    SlowRestart,
    /// The NIC dropped a packet: it had no room for it, or no use.
    Discarded,
    /// A packet arrived out of order: one before it was lost, or took another path. A fabric that routes adaptively does
    /// that by design, so this alone is no loss.
    OutOfOrder,
}

/// What a counter does at its maximum.
#[derive(Debug, Clone, Copy)]
enum Width {
    /// It keeps this value.
    StopsAt(u64),
    /// After 32 bits, it begins anew.
    Wraps,
    /// It has 64 bits, and never reaches its maximum.
    Endless,
}

/// Where a counter is: in `counters`, or in `hw_counters`.
enum Place {
    Port,
    Hardware,
}

use Place::{Hardware, Port};
use Width::{Endless, StopsAt, Wraps};

struct Counter(Trouble, Place, &'static str, Width);

/// The counters of `counters` have the widths of the IBTA's PortCounters. Of the others, those of mlx5 have 32
/// bits (`query_q_counter_out` of `linux/mlx5/mlx5_ifc.h`). bnxt_re has the same names for counters of 64 bits,
/// which [`Width::Wraps`] understands as well, as long as they are small.
const COUNTERS: &[Counter] = &[
    Counter(Trouble::LinkDown, Port, "link_downed", StopsAt(0xff)),
    Counter(Trouble::LinkRecovery, Port, "link_error_recovery", StopsAt(0xff)),
    Counter(Trouble::LinkIntegrity, Port, "local_link_integrity_errors", StopsAt(0xf)),
    Counter(Trouble::LinkIntegrity, Port, "excessive_buffer_overrun_errors", StopsAt(0xf)),
    Counter(Trouble::Symbol, Port, "symbol_error", StopsAt(0xffff)),
    Counter(Trouble::ReceiveError, Port, "port_rcv_errors", StopsAt(0xffff)),
    Counter(Trouble::Discarded, Port, "port_xmit_discards", StopsAt(0xffff)),
    // drivers/infiniband/hw/mlx5/counters.c
    Counter(Trouble::NoAnswer, Hardware, "req_transport_retries_exceeded", Wraps),
    Counter(Trouble::NotReady, Hardware, "req_rnr_retries_exceeded", Wraps),
    Counter(Trouble::Timeout, Hardware, "local_ack_timeout_err", Wraps),
    Counter(Trouble::ReceiverNotReady, Hardware, "rnr_nak_retry_err", Wraps),
    Counter(Trouble::Missed, Hardware, "packet_seq_err", Wraps),
    Counter(Trouble::Missed, Hardware, "implied_nak_seq_err", Wraps),
    Counter(Trouble::Missed, Hardware, "roce_adp_retrans", Wraps),
    Counter(Trouble::OutOfOrder, Hardware, "out_of_sequence", Wraps),
    Counter(Trouble::FailedRequest, Hardware, "req_remote_access_errors", Wraps),
    Counter(Trouble::FailedRequest, Hardware, "resp_remote_access_errors", Wraps),
    Counter(Trouble::FailedRequest, Hardware, "req_remote_invalid_request", Wraps),
    Counter(Trouble::Completion, Hardware, "req_cqe_error", Wraps),
    Counter(Trouble::Completion, Hardware, "resp_cqe_error", Wraps),
    Counter(Trouble::SlowRestart, Hardware, "roce_slow_restart", Wraps),
    Counter(Trouble::ReceiveError, Hardware, "rx_icrc_encapsulated", Endless),
    // drivers/infiniband/hw/bnxt_re/hw_counters.c, with the names of older kernels
    Counter(Trouble::NoAnswer, Hardware, "max_retry_exceeded", Endless),
    Counter(Trouble::Timeout, Hardware, "to_retransmits", Endless),
    Counter(Trouble::ReceiverNotReady, Hardware, "rnr_naks_rcvd", Endless),
    Counter(Trouble::Missed, Hardware, "seq_err_naks_rcvd", Endless),
    Counter(Trouble::Missed, Hardware, "missing_resp", Endless),
    Counter(Trouble::FailedRequest, Hardware, "remote_access_err", Endless),
    Counter(Trouble::ReceiveError, Hardware, "rx_roce_errors", Endless),
    Counter(Trouble::Discarded, Hardware, "rx_roce_discards", Endless),
    Counter(Trouble::Discarded, Hardware, "tx_roce_discards", Endless),
    // drivers/infiniband/hw/efa/efa_verbs.c
    Counter(Trouble::FailedRequest, Hardware, "rdma_read_wr_err", Endless),
    Counter(Trouble::FailedRequest, Hardware, "rdma_write_wr_err", Endless),
    Counter(Trouble::Timeout, Hardware, "retrans_timeout_events", Endless),
    Counter(Trouble::Timeout, Hardware, "unresponsive_remote_events", Endless),
    Counter(Trouble::Timeout, Hardware, "impaired_remote_conn_events", Endless),
    Counter(Trouble::Discarded, Hardware, "rx_drops", Endless),
    // drivers/infiniband/sw/rxe/rxe_hw_counters.c
    Counter(Trouble::LinkDown, Hardware, "link_downed", Endless),
    Counter(Trouble::NoAnswer, Hardware, "retry_exceeded_err", Endless),
    Counter(Trouble::NotReady, Hardware, "retry_rnr_exceeded_err", Endless),
    Counter(Trouble::Timeout, Hardware, "completer_retry_err", Endless),
    Counter(Trouble::ReceiverNotReady, Hardware, "rcvd_rnr_err", Endless),
    Counter(Trouble::Missed, Hardware, "rcvd_seq_err", Endless),
    Counter(Trouble::OutOfOrder, Hardware, "out_of_seq_request", Endless),
];

/// What a port showed at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortErrors {
    /// `enum ib_port_state` of `rdma/ib_verbs.h`.
    state: Option<u64>,
    /// In the order of [`COUNTERS`].
    counts: Vec<Option<u64>>,
    /// The error with which its state cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unreadable: Option<i32>,
}

/// ACTIVE, and ACTIVE_DEFER: the link is up as well, and the hardware is about to change its state.
const ACTIVE: [u64; 2] = [4, 5];

/// By how much a counter has risen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Rise {
    #[serde(skip)]
    pub trouble: Trouble,
    /// The name of the counter.
    pub counter: &'static str,
    pub count: u64,
    /// Whether the counter has reached its maximum, so that the real number may be larger.
    #[serde(rename = "at_least")]
    pub is_least: bool,
}

/// Returns the counts of a port since its driver was loaded.
pub(crate) fn read(counters: &PortCounters) -> PortErrors {
    let counts = COUNTERS.iter().map(|counter| counter.read(counters)).collect();
    PortErrors::new(counters, counts)
}

/// As [`read`], but without the counters that an earlier look at the port did not show: most of them are those of other
/// drivers. A port that showed none of them is looked at as a whole.
pub(crate) fn read_again(counters: &PortCounters, before: &PortErrors) -> PortErrors {
    if before.counts.iter().all(Option::is_none) {
        return read(counters);
    }
    let known = COUNTERS.iter().zip(&before.counts);
    let count = |(counter, before): (&Counter, &Option<u64>)| before.and_then(|_| counter.read(counters));
    PortErrors::new(counters, known.map(count).collect())
}

impl Counter {
    fn read(&self, counters: &PortCounters) -> Option<u64> {
        match self {
            Counter(_, Port, name, _) => counters.of_port(name),
            // Each queue pair that ends in order flushes what is left in it, and this counts as an error, too.
            Counter(Trouble::Completion, Hardware, name, _) => {
                let flushed =
                    counters.of_hardware(&name.replace("_error", "_flush_error")).unwrap_or_default();
                Some(counters.of_hardware(name)?.saturating_sub(flushed))
            }
            Counter(_, Hardware, name, _) => counters.of_hardware(name),
        }
    }
}

impl PortErrors {
    fn new(counters: &PortCounters, counts: Vec<Option<u64>>) -> PortErrors {
        let state = counters.readable_state();
        let unreadable = state.as_ref().err().map(|errno| *errno as i32);
        PortErrors { state: state.ok().flatten(), counts, unreadable }
    }

    /// Returns why the state of a port cannot be read that is there, or may be. One such look proves nothing.
    pub(crate) fn hidden_by(&self) -> Option<Errno> {
        self.unreadable.map(Errno::from_raw)
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.unreadable.is_some()
    }

    /// Returns what was counted since an earlier look. A counter that one of the two does not show is left
    /// out.
    pub(crate) fn since(&self, before: &PortErrors) -> Vec<Rise> {
        let pairs = COUNTERS.iter().zip(self.counts.iter().zip(&before.counts));
        let rises = pairs.filter_map(|(Counter(trouble, _, counter, width), (now, before))| {
            let (count, is_least) = rise((*before)?, (*now)?, *width);
            (count > 0).then_some(Rise { trouble: *trouble, counter, count, is_least })
        });
        rises.collect()
    }

    /// Returns whether the port was ACTIVE at an earlier look, and is not now: it has another state, or is
    /// not there.
    pub(crate) fn is_lost_since(&self, before: &PortErrors) -> bool {
        before.is_active() && (self.state.is_some_and(|state| !ACTIVE.contains(&state)) || self.is_gone())
    }

    /// Returns this look with the last known value of each counter that it does not show.
    pub(crate) fn with_known(mut self, before: &PortErrors) -> PortErrors {
        self.counts.resize(self.counts.len().max(before.counts.len()), None);
        for (now, before) in self.counts.iter_mut().zip(&before.counts) {
            *now = now.or(*before);
        }
        self
    }

    pub(crate) fn has_state(&self, state: Option<u64>) -> bool {
        self.state == state
    }

    pub(crate) fn state(&self) -> Option<u64> {
        self.state
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state.is_some_and(|state| ACTIVE.contains(&state))
    }

    /// Returns whether the link is up, but the subnet manager has not activated the port, with the kernel's name of the
    /// state.
    pub(crate) fn waits_for_manager(&self) -> Option<&'static str> {
        match self.state? {
            2 => Some("INIT"),
            3 => Some("ARMED"),
            _ => None,
        }
    }

    /// Returns whether the port shows how often its link went down, or a counter of packets that were lost or of queue
    /// pairs that ended. Without either, that nothing was counted proves nothing.
    pub(crate) fn counts_losses(&self) -> bool {
        let is_loss = |trouble: Trouble| {
            !matches!(
                trouble,
                Trouble::LinkRecovery | Trouble::LinkIntegrity | Trouble::Symbol | Trouble::ReceiveError
            )
        };
        COUNTERS
            .iter()
            .zip(&self.counts)
            .any(|(Counter(trouble, ..), count)| count.is_some() && is_loss(*trouble))
    }

    /// Returns the counters that have reached their maximum and no longer count.
    pub(crate) fn full(&self) -> impl Iterator<Item = &'static str> {
        let all = COUNTERS.iter().zip(&self.counts);
        all.filter_map(|(Counter(_, _, counter, width), count)| match width {
            StopsAt(end) if *count == Some(*end) => Some(*counter),
            _ => None,
        })
    }

    /// Whether the port shows nothing at all.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.is_none() && !self.is_hidden() && self.counts.iter().all(Option::is_none)
    }
}

/// What a port has counted over several looks: the sum of each counter's rises, and whether that is the least. So a
/// counter that begins anew on the way, or is full for a while, loses little.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally(
    /// In the order of [`COUNTERS`].
    Vec<(u64, bool)>,
);

impl Tally {
    pub(crate) fn add(&mut self, rises: &[Rise]) {
        self.0.resize(COUNTERS.len(), (0, false));
        for rise in rises {
            let is_it =
                |Counter(trouble, _, name, _): &Counter| (*trouble, *name) == (rise.trouble, rise.counter);
            let place = COUNTERS.iter().position(is_it);
            if let Some((sum, is_least)) = place.and_then(|place| self.0.get_mut(place)) {
                *sum = sum.saturating_add(rise.count);
                *is_least |= rise.is_least;
            }
        }
    }

    pub(crate) fn rises(&self) -> Vec<Rise> {
        let risen = COUNTERS.iter().zip(&self.0).filter(|(_, (count, _))| *count > 0);
        let rise = |(Counter(trouble, _, counter, _), (count, is_least)): (&Counter, &(u64, bool))| Rise {
            trouble: *trouble,
            counter,
            count: *count,
            is_least: *is_least,
        };
        risen.map(rise).collect()
    }
}

/// By how much a counter has risen, and whether that is the least.
fn rise(before: u64, now: u64, width: Width) -> (u64, bool) {
    /// A counter of 32 bits that is this close to its end, and then lower, began anew by itself. One that was cleared
    /// is seldom so close.
    const CLOSE: u64 = 1 << 28;
    const END: u64 = 1 << 32;
    match width {
        StopsAt(end) => (now.checked_sub(before).unwrap_or(now), now == end),
        Wraps if now < before && (END - CLOSE..END).contains(&before) && now < CLOSE => {
            (now + END - before, false)
        }
        // A counter that is lower than before was cleared, or its driver was loaded anew.
        Wraps | Endless => (now.checked_sub(before).unwrap_or(now), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;

    #[test]
    fn a_counter_rises_begins_anew_or_stays_at_its_end() {
        for (before, now, width, wanted) in [
            (3, 5, Endless, (2, false)),
            (5, 5, Endless, (0, false)),
            // Cleared.
            (5, 3, Endless, (3, false)),
            (u64::MAX, 1, Endless, (1, false)),
            (5, 3, Wraps, (3, false)),
            (0xffff_fff0, 0x10, Wraps, (0x20, false)),
            (0xf000_0000, 0, Wraps, (0x1000_0000, false)),
            // Cleared.
            (0xefff_ffff, 7, Wraps, (7, false)),
            (0xffff_fff0, 0x1000_0000, Wraps, (0x1000_0000, false)),
            (1 << 40, 3, Wraps, (3, false)),
            (3, 254, StopsAt(255), (251, false)),
            (3, 255, StopsAt(255), (252, true)),
            // It was full before, so it says no more.
            (255, 255, StopsAt(255), (0, true)),
            (255, 2, StopsAt(255), (2, false)),
        ] {
            assert_eq!(rise(before, now, width), wanted, "{before} {now} {width:?}");
        }
    }

    #[test]
    fn each_counter_is_read_where_its_driver_has_it() {
        let root = FakeRoot::new();
        let look = |files: &[(&str, &str)]| {
            root.files("sys/class/infiniband/x_0/ports/1", files);
            read(&Counters::new(&root.reader()).of("x_0", 1))
        };
        let nothing = look(&[]);
        assert!(!nothing.is_lost_since(&nothing));
        assert_eq!(nothing.since(&PortErrors::default()), []);
        let before = look(&[
            ("state", "4: ACTIVE\n"),
            ("counters/link_downed", "254\n"),
            ("counters/symbol_error", "N/A (no PMA)\n"),
            ("hw_counters/req_transport_retries_exceeded", "7\n"),
        ]);
        assert!(nothing.is_lost_since(&before) && !before.is_lost_since(&nothing));
        assert_eq!(before.since(&nothing), [], "what was not there before says nothing");
        let after = look(&[
            ("counters/link_downed", "255\n"),
            ("counters/symbol_error", "9\n"),
            ("hw_counters/req_transport_retries_exceeded", "9\n"),
        ]);
        let rise = |trouble, counter, count, is_least| Rise { trouble, counter, count, is_least };
        assert_eq!(
            after.since(&before),
            [
                rise(Trouble::LinkDown, "link_downed", 1, true),
                rise(Trouble::NoAnswer, "req_transport_retries_exceeded", 2, false),
            ]
        );
        assert_eq!(after.since(&after), []);
        assert_eq!((before.full().count(), after.full().collect::<Vec<_>>()), (0, vec!["link_downed"]));
        assert!(!after.is_lost_since(&before));
        assert!(look(&[("state", "1: DOWN\n")]).is_lost_since(&before));
    }

    #[test]
    fn a_tally_survives_counters_that_begin_anew() {
        let of = |counter, count, is_least| Rise { trouble: Trouble::LinkDown, counter, count, is_least };
        let mut tally = Tally::default();
        assert_eq!(tally.rises(), []);
        tally.add(&[of("link_downed", 3, false)]);
        tally.add(&[]);
        tally.add(&[of("link_downed", 200, true), of("no such counter", 1, false)]);
        assert_eq!(tally.rises(), [of("link_downed", 203, true)]);
        let text = serde_json::to_string(&tally).unwrap();
        assert_eq!(serde_json::from_str::<Tally>(&text).unwrap(), tally);
        // One of another release is no reason to fail.
        assert_eq!(serde_json::from_str::<Tally>("[[1,false]]").unwrap().rises().len(), 1);
    }

    #[test]
    fn a_state_that_cannot_be_read_proves_nothing() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let look = || read(&Counters::new(&root.reader()).of("x_0", 1));
        assert!(look().is_gone() && !look().is_hidden());
        // Reading a directory fails.
        root.folder(&format!("{port}/state"));
        let hidden = look();
        assert!(hidden.is_hidden() && !hidden.is_gone() && !hidden.is_active());
        assert_eq!(hidden.hidden_by(), Some(Errno::EISDIR));
        let text = serde_json::to_string(&hidden).unwrap();
        assert_eq!(serde_json::from_str::<PortErrors>(&text).unwrap(), hidden);
        root.file("sys/class/infiniband/y_0/ports/1/state", "?\n");
        assert!(read(&Counters::new(&root.reader()).of("y_0", 1)).is_hidden());
    }

    #[test]
    fn a_later_look_reads_what_the_first_one_has_shown() {
        let root = FakeRoot::new();
        let look = |files: &[(&str, &str)], before: &PortErrors| {
            root.files("sys/class/infiniband/x_0/ports/1", files);
            read_again(&Counters::new(&root.reader()).of("x_0", 1), before)
        };
        let link_downed = [("state", "4: ACTIVE\n"), ("counters/link_downed", "3\n")];
        let first = look(&link_downed, &PortErrors::default());
        let counts = |look: &PortErrors| look.counts.iter().flatten().copied().collect::<Vec<_>>();
        assert_eq!(counts(&first), [3], "all of them, as nothing is known");
        let more = [("counters/link_downed", "4\n"), ("counters/symbol_error", "9\n")];
        let second = look(&more, &first);
        assert_eq!((counts(&second), second.is_active()), (vec![4], true));
        assert_eq!(counts(&look(&[], &PortErrors::default())), [4, 9]);
    }

    #[test]
    fn the_counters_of_many_ports_fit_into_a_note() {
        let full =
            PortErrors { state: Some(4), counts: vec![Some(1 << 40); COUNTERS.len()], unreadable: Some(5) };
        assert!(serde_json::to_string(&full).unwrap().len() < 700);
    }
}
