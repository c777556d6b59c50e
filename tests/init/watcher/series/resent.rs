//! What ports count while they move data: lost packets, errors of links, and what only looks like these.

use super::play::{HOUR, Line, Lines, MINUTE, Series, TICK, TRAINING};
use crate::support::rails::Rails;

/// A training job of this many seconds on which a shape counts something, besides its data.
fn counts(rails: Rails, seconds: u64, mut shape: impl FnMut(&mut Rails, u64) + Send + 'static) -> Lines {
    Series::new(rails, seconds).play(move |rails, second| {
        rails.move_all(TRAINING);
        shape(rails, second);
    })
}

/// Lets a counter of one rail rise by so much in each minute.
fn steady(
    counter: &'static str,
    rail: usize,
    in_a_minute: u64,
) -> impl FnMut(&mut Rails, u64) + Send + 'static {
    let mut done = 0;
    move |rails, second| {
        let due = in_a_minute * second / MINUTE;
        rails.rise(rail, counter, due - done);
        done = due;
    }
}

/// A rate just below the limit says nothing, and one above is said, in few lines as long as it lasts.
#[track_caller]
fn has_limit(id: &str, counter: &'static str, seconds: u64, below: u64, above: u64) {
    counts(Rails::roce(8), seconds, steady(counter, 3, below)).expect_silence();
    let lines = counts(Rails::roce(8), seconds, steady(counter, 3, above));
    lines.expect_line(id, 3);
    lines.expect_only(id);
    // That a counter is full is another line.
    let is_rate = |line: &&Line| line.id == id && line.message.contains(" rose by ");
    let count = lines.all.iter().filter(is_rate).count();
    assert!(!lines.is_played || count == 1, "a steady rate is said once: {lines:?}");
}

#[test]
fn timeouts_are_said_from_60_a_minute_on() {
    has_limit("lost-packets", "hw_counters/local_ack_timeout_err", HOUR / 2, 50, 70);
}

#[test]
fn sequence_errors_are_said_from_60_a_minute_on() {
    has_limit("lost-packets", "hw_counters/packet_seq_err", HOUR / 2, 50, 70);
}

#[test]
fn recovered_links_are_said_from_5_a_minute_on() {
    has_limit("link-errors", "counters/link_error_recovery", HOUR / 2, 4, 6);
}

/// 120 an hour.
#[test]
fn symbol_errors_are_said_from_2_a_minute_on() {
    has_limit("link-errors", "counters/symbol_error", HOUR, 1, 3);
}

#[test]
fn receive_errors_are_said_from_600_a_minute_on() {
    has_limit("link-errors", "counters/port_rcv_errors", HOUR / 2, 500, 700);
}

#[test]
fn one_integrity_error_of_a_link_has_a_warning() {
    let lines = counts(Rails::infiniband(8), HOUR, |rails, second| {
        if second == 20 * MINUTE {
            rails.rise(1, "counters/local_link_integrity_errors", 1);
        }
    });
    assert_eq!(lines.expect_warning("link-errors").len(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_line("link-errors", 1);
    lines.expect_only("link-errors");
}

/// A steady rate is said once, and a much higher one is news.
#[test]
fn a_rate_that_grows_tenfold_is_said_again() {
    let mut slow = steady("hw_counters/local_ack_timeout_err", 3, 100);
    let mut fast = steady("hw_counters/local_ack_timeout_err", 3, 2000);
    let lines = counts(Rails::roce(8), 2 * HOUR, move |rails, second| match second < HOUR {
        true => slow(rails, second),
        false => fast(rails, second - HOUR),
    });
    let about = lines.all.iter().filter(|line| line.id == "lost-packets" && line.is_about(3));
    let minutes: Vec<f64> = about.map(Line::minute).collect();
    let is_right = minutes.first().is_some_and(|minute| *minute < 10.0)
        && minutes.iter().any(|minute| (60.0..75.0).contains(minute))
        && minutes.len() <= 4;
    assert!(!lines.is_played || is_right, "{lines:?}");
}

/// Requests to a peer that has ended.
#[test]
fn queue_pairs_that_end_on_all_rails_before_nothing_moves_have_a_line_and_make_it_a_stall() {
    let lines = Series::new(Rails::infiniband(8), HOUR).play(|rails, second| {
        if second == 20 * MINUTE {
            for rail in rails.all() {
                rails.rise(rail, "hw_counters/req_transport_retries_exceeded", 16);
            }
        }
        if second < 20 * MINUTE {
            rails.move_all(TRAINING);
        }
    });
    for rail in 0..8 {
        lines.expect_line("ended-queue-pairs", rail);
    }
    let stall = lines.expect_warning("no-traffic");
    assert!(!lines.is_played || stall.len() == 1 && stall[0].minute() < 31.0, "{lines:?}");
}

#[test]
fn errors_of_remote_access_have_a_line() {
    rises_once("hw_counters/req_remote_access_errors", 50);
}

#[test]
fn errors_of_completions_have_a_line() {
    rises_once("hw_counters/req_cqe_error", 50);
}

#[test]
fn a_million_discards_of_bnxt_re_have_a_line() {
    rises_once("hw_counters/rx_roce_discards", 1_000_000);
}

/// A counter of one rail rises once, and a line tells of it.
#[track_caller]
fn rises_once(counter: &'static str, by: u64) {
    let mut machine = Rails::roce(8);
    machine.all().for_each(|rail| machine.count(rail, counter, 3));
    let lines = counts(machine, HOUR, move |rails, second| {
        if second == 20 * MINUTE {
            rails.rise(6, counter, by);
        }
    });
    let name = counter.trim_start_matches("hw_counters/");
    let is = lines.all.iter().any(|line| {
        line.is_about(6) && (line.message.contains(name) || line.message.contains(&by.to_string()))
    });
    assert!(!lines.is_played || is, "nothing tells of {name}: {lines:?}");
}

/// Several paths bring packets in another order, at any rate.
#[test]
fn packets_out_of_order_alone_have_no_line() {
    counts(Rails::roce(8), 2 * HOUR, |rails, _| {
        rails.all().for_each(|rail| rails.rise(rail, "hw_counters/out_of_sequence", 5000 * TICK));
    })
    .expect_silence();
}

/// With one that is sent again, some were lost.
#[test]
fn packets_out_of_order_beside_timeouts_have_a_warning() {
    for counter in
        ["hw_counters/local_ack_timeout_err", "hw_counters/packet_seq_err", "hw_counters/roce_adp_retrans"]
    {
        let mut late = steady("hw_counters/out_of_sequence", 2, 60_000);
        let mut again = steady(counter, 2, 100);
        let lines = counts(Rails::roce(8), HOUR / 2, move |rails, second| {
            late(rails, second);
            again(rails, second);
        });
        lines.expect_line("lost-packets", 2);
    }
}

#[test]
fn congestion_has_no_line() {
    let counters = ["np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"];
    let mut machine = Rails::roce(8);
    for rail in machine.all() {
        counters.iter().for_each(|counter| machine.count(rail, &format!("hw_counters/{counter}"), 0));
    }
    counts(machine, HOUR, move |rails, _| {
        for rail in rails.all() {
            counters
                .iter()
                .for_each(|counter| rails.rise(rail, &format!("hw_counters/{counter}"), 10_000 * TICK));
            rails.rise(rail, "counters/port_xmit_wait", 1_000_000);
        }
    })
    .expect_silence();
}

/// A receiver that is not ready, for a moment each time: the queue pairs go on.
#[test]
fn receivers_that_are_not_ready_are_at_most_noted() {
    counts(Rails::roce(8), HOUR, |rails, _| {
        rails.all().for_each(|rail| rails.rise(rail, "hw_counters/rnr_nak_retry_err", 2 * TICK));
    })
    .expect_notes();
}

#[test]
fn hardware_counters_of_32_bits_that_begin_anew_have_no_line() {
    const END: u64 = 1 << 32;
    let counters =
        ["local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "req_transport_retries_exceeded"];
    let mut machine = Rails::roce(8);
    for rail in machine.all() {
        counters.iter().for_each(|counter| machine.count(rail, &format!("hw_counters/{counter}"), END - 20));
    }
    // The first three count a few, and the last one nothing.
    counts(machine, HOUR, move |rails, second| {
        for rail in rails.all().filter(|_| second % MINUTE == 0) {
            for counter in &counters[..3] {
                let counter = format!("hw_counters/{counter}");
                let next = (rails.counted(rail, &counter) + 3) % END;
                rails.count(rail, &counter, next);
            }
        }
    })
    .expect_silence();
}

#[test]
fn counters_that_are_full_from_the_start_are_at_most_noted() {
    let mut machine = Rails::infiniband(8);
    for rail in machine.all() {
        for (counter, most) in [
            ("link_downed", 255),
            ("link_error_recovery", 255),
            ("local_link_integrity_errors", 15),
            ("excessive_buffer_overrun_errors", 15),
            ("symbol_error", 65535),
            ("port_rcv_errors", 65535),
        ] {
            machine.count(rail, &format!("counters/{counter}"), most);
        }
    }
    counts(machine, HOUR, |_, _| {}).expect_notes();
}

/// As by `perfquery -R`.
#[test]
fn counters_that_are_cleared_while_the_job_runs_have_no_line() {
    let counters = ["link_downed", "symbol_error", "port_rcv_errors", "local_link_integrity_errors"];
    let mut machine = Rails::infiniband(8);
    for rail in machine.all() {
        counters.iter().for_each(|counter| machine.count(rail, &format!("counters/{counter}"), 9));
    }
    counts(machine, HOUR, move |rails, second| {
        for rail in rails.all().filter(|_| second % 1200 == 600) {
            counters.iter().for_each(|counter| rails.count(rail, &format!("counters/{counter}"), 0));
            for counter in ["xmit_data", "rcv_data"] {
                rails.count(rail, &format!("counters/port_{counter}"), 0);
            }
        }
    })
    .expect_silence();
}

#[test]
fn two_hundred_and_fifty_six_ports_have_no_line() {
    counts(Rails::infiniband(256), 15 * MINUTE, |_, _| {}).expect_silence();
}

/// In most Pods, mlx5 shows only what its peers have asked for.
#[test]
fn served_requests_alone_are_data() {
    let mut machine = Rails::infiniband(8);
    for rail in machine.all() {
        machine.remove(rail, "counters");
        machine.count(rail, "hw_counters/rx_write_requests", 0);
    }
    Series::new(machine, HOUR)
        .play(|rails, _| {
            rails.all().for_each(|rail| rails.rise(rail, "hw_counters/rx_write_requests", 100_000));
        })
        .expect_silence();
}

/// Each driver has names of its own, and counts data and a few errors.
#[test]
fn the_counters_of_other_drivers_have_no_line() {
    for counters in [
        ["tx_bytes", "rx_bytes", "rdma_read_bytes", "rx_drops", "retrans_bytes", "keep_alive_rcvd"],
        ["ip4InOctets", "ip4OutOctets", "cnpSent", "cnpHandled", "RxECNMrkd", "iwInRdmaWrites"],
        [
            "tx_bytes",
            "rx_bytes",
            "rx_roce_only_bytes",
            "tx_cnp_pkts",
            "rx_ecn_marked_pkts",
            "out_of_sequence",
        ],
        [
            "tx_bytes_cnt",
            "rx_bytes_cnt",
            "tx_packets_cnt",
            "rx_packets_cnt",
            "hw_tx_bytes_cnt",
            "hw_rx_bytes_cnt",
        ],
        [
            "tx_rdma_ucast_bytes",
            "rx_rdma_ucast_bytes",
            "tx_rdma_cnp_pkts",
            "rx_rdma_ecn_pkts",
            "req_rx_rnr_retry_err",
            "resp_rx_dup_request",
        ],
    ] {
        let mut machine = Rails::infiniband(2);
        for rail in machine.all() {
            machine.remove(rail, "hw_counters");
            counters.iter().for_each(|counter| machine.count(rail, &format!("hw_counters/{counter}"), 0));
        }
        let lines = counts(machine, 20 * MINUTE, move |rails, _| {
            for rail in rails.all() {
                for counter in &counters[..3] {
                    rails.rise(rail, &format!("hw_counters/{counter}"), TRAINING);
                }
                counters[3..]
                    .iter()
                    .for_each(|counter| rails.rise(rail, &format!("hw_counters/{counter}"), 1));
            }
        });
        assert!(lines.all.is_empty(), "{counters:?}: {lines:?}");
    }
}
