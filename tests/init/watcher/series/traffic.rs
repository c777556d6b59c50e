//! Rails that fall behind, and jobs that stall.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::play::{HOUR, Line, Lines, MINUTE, Series, TICK, TRAINING, UNKNOWN};
use crate::support::rails::Rails;

/// All rails train, and from half an hour on, some carry another amount.
fn lopsided(rails: Rails, seconds: u64, amount: impl Fn(usize) -> u64 + Send + 'static) -> Lines {
    Series::new(rails, seconds).play(move |rails, second| {
        for rail in rails.all() {
            rails.move_bytes(rail, if second < HOUR / 2 { TRAINING } else { amount(rail) });
        }
    })
}

#[test]
fn a_rail_at_5_percent_that_carried_as_much_as_the_others_has_a_line() {
    let lines = lopsided(Rails::infiniband(8), HOUR, |rail| if rail == 4 { TRAINING / 20 } else { TRAINING });
    lines.expect_line("idle-rail", 4);
    lines.expect_notes();
}

/// A job may use fewer rails for a while. One that counts errors as well is no choice of the job.
#[test]
fn a_rail_at_5_percent_that_counts_errors_has_a_warning() {
    let lines = Series::new(Rails::infiniband(8), HOUR).play(|rails, second| {
        for rail in rails.all() {
            rails.move_bytes(rail, if second > HOUR / 2 && rail == 4 { TRAINING / 20 } else { TRAINING });
        }
        if second > HOUR / 2 {
            rails.rise(4, "hw_counters/local_ack_timeout_err", 20);
        }
    });
    let warnings = lines.expect_warning("idle-rail");
    assert!(!lines.is_played || warnings.len() == 1 && warnings[0].is_about(4), "{lines:?}");
    lines.expect_only("idle-rail");
}

#[test]
fn one_dead_rail_of_two_has_a_line() {
    let lines = lopsided(Rails::infiniband(2), HOUR, |rail| if rail == 1 { 0 } else { TRAINING });
    lines.expect_line("idle-rail", 1);
}

#[test]
fn one_dead_rail_of_three_has_a_line() {
    let lines = lopsided(Rails::infiniband(3), HOUR, |rail| if rail == 2 { 0 } else { TRAINING });
    lines.expect_line("idle-rail", 2);
}

/// Every rail carries less, and none less than another.
#[test]
fn rails_that_all_carry_a_fifth_for_half_an_hour_have_a_note() {
    let lines = Series::new(Rails::infiniband(8), 90 * MINUTE).play(|rails, second| {
        let is_slow = (HOUR / 2..HOUR).contains(&second);
        rails.move_all(if is_slow { TRAINING / 5 } else { TRAINING });
    });
    assert!(!lines.is_played || !lines.all.is_empty(), "nothing is said of rails that all carry a fifth");
    lines.expect_notes();
}

/// Trains for five minutes, and then hangs, but for this at each tick.
fn hangs(series: Series, mut chatter: impl FnMut(&mut Rails, u64) + Send + 'static) {
    let lines = series.play(move |rails, second| {
        if second < 5 * MINUTE {
            rails.move_all(TRAINING);
        } else {
            chatter(rails, second);
        }
    });
    let warnings = lines.expect_warning("no-traffic");
    assert!(!lines.is_played || warnings.len() == 1, "it stalls once: {lines:?}");
    lines.expect_only("no-traffic");
    let is_last = lines.all.iter().rfind(|line| line.id == "no-traffic").is_some_and(Line::is_warning);
    assert!(!lines.is_played || is_last, "its last line is not the stall: {lines:?}");
}

#[test]
fn a_hang_has_a_warning() {
    hangs(Series::new(Rails::infiniband(8), HOUR), |_, _| {});
}

#[test]
fn a_hang_beside_ipoib_on_one_rail_has_a_warning() {
    hangs(Series::new(Rails::infiniband(8), HOUR), |rails, _| rails.move_bytes(0, 50_000));
}

#[test]
fn a_hang_beside_64_bytes_in_20_seconds_on_one_rail_of_roce_has_a_warning() {
    hangs(Series::new(Rails::roce(8), HOUR), |rails, second| {
        if second % 20 == 0 {
            rails.move_bytes(5, 64);
        }
    });
}

#[test]
fn a_hang_beside_300_bytes_a_second_with_an_interval_of_5_minutes_has_a_warning() {
    let series = Series::new(Rails::infiniband(8), 2 * HOUR).options(&["--watch-interval", "5m"]);
    hangs(series, |rails, _| rails.move_all(300 * TICK));
}

/// Only management packets, in bytes a second.
fn only_management(
    environment: &[(&'static str, &'static str)],
    options: &[&str],
    amount: Range<u64>,
) -> Lines {
    let mut random = Rng::with_seed(17);
    let series =
        Series::new(Rails::infiniband(8), 40 * MINUTE).tick(1).options(options).environment(environment);
    series.command("python3", &["train.py"]).play(move |rails, _| {
        for rail in rails.all() {
            rails.move_bytes(rail, random.u64(amount.clone()));
        }
    })
}

#[test]
fn a_job_with_management_traffic_alone_has_not_moved_data() {
    for options in [&["--watch-interval", "1s"][..], &[]] {
        only_management(super::play::TWO_NODES, options, 1000..5000).expect_warning("no-traffic");
        only_management(UNKNOWN, options, 1000..5000).expect_notes();
    }
}

/// What counts is the amount in a time, and not in one look: the account has megabytes of it.
#[test]
fn more_than_management_traffic_is_data_at_any_interval() {
    for options in [&["--watch-interval", "1s"][..], &[]] {
        only_management(super::play::TWO_NODES, options, 15_000..30_000).expect_silence();
    }
}

/// A frozen container that hangs afterwards: the time in which nobody looked does not count.
#[test]
fn a_hang_after_a_freeze_has_a_warning_when_it_was_seen_for_long_enough() {
    let lines = Series::new(Rails::infiniband(8), 80 * MINUTE).play(|rails, second| match second {
        605 => rails.frozen = Some(Duration::from_secs(20 * MINUTE)),
        0..605 => rails.move_all(TRAINING),
        _ => {}
    });
    let warnings = lines.expect_warning("no-traffic");
    let are_late = warnings.iter().all(|line| line.minute() >= 59.0);
    assert!(!lines.is_played || warnings.len() == 1 && are_late, "{lines:?}");
}
