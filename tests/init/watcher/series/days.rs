//! A day of each of five kinds of job.

use fastrand::Rng;

use super::play::{DAY, HOUR, MINUTE, Series, TRAINING, UNKNOWN};
use crate::support::rails::Rails;

/// Fewer than those of the other series, because a day has so many looks.
fn rails() -> Rails {
    Rails::infiniband(4)
}

/// A checkpoint of some minutes each hour, and an evaluation on one rail less.
#[test]
fn a_day_of_training_has_no_warning() {
    let mut random = Rng::with_seed(1);
    let mut pause = 4 * MINUTE;
    Series::new(rails(), DAY)
        .play(move |rails, second| {
            let of_hour = second % HOUR;
            if of_hour == 0 {
                pause = random.u64(2 * MINUTE..9 * MINUTE);
            }
            let used = if of_hour < 10 * MINUTE { 3 } else { 4 };
            if of_hour < HOUR - pause {
                (0..used).for_each(|rail| rails.move_bytes(rail, TRAINING));
            }
        })
        .expect_notes();
}

/// Rollouts of about 15 minutes.
#[test]
fn a_day_of_reinforcement_learning_has_no_warning() {
    let mut random = Rng::with_seed(2);
    let (mut rolls_until, mut trains_until) = (0, 0);
    Series::new(rails(), DAY)
        .play(move |rails, second| {
            if second >= trains_until {
                rolls_until = second + random.u64(11 * MINUTE..19 * MINUTE);
                trains_until = rolls_until + random.u64(3 * MINUTE..7 * MINUTE);
            }
            if second >= rolls_until {
                rails.move_all(TRAINING);
            }
        })
        .expect_notes();
}

#[test]
fn a_day_of_an_idle_server_has_notes() {
    let series = Series::new(rails(), DAY).command("vllm", &["serve", "model"]);
    series
        .play(|rails, second| {
            if [0, 3 * HOUR, 3 * HOUR + 20 * MINUTE, 15 * HOUR].contains(&second) {
                rails.move_all(1_000_000_000);
            }
        })
        .expect_notes();
}

/// Every three hours, a node leaves: its connections end, and the job goes on a few minutes later.
#[test]
fn a_day_of_an_elastic_job_has_no_warning() {
    let lines = Series::new(rails(), DAY).play(|rails, second| {
        let of_turn = second % (3 * HOUR);
        if (1..DAY).contains(&second) && of_turn == 0 {
            for rail in rails.all() {
                rails.rise(rail, "hw_counters/req_transport_retries_exceeded", 16);
            }
        }
        if second < 3 * HOUR || of_turn >= 4 * MINUTE {
            rails.move_all(TRAINING);
        }
    });
    let lines = lines.expect_notes();
    lines.expect_line("ended-queue-pairs", 0);
}

/// Many starts in one shell: some minutes of traffic, and pauses of an hour in which someone thinks. The first such pause
/// cannot be told from a stall.
#[test]
fn a_day_of_debugging_has_one_warning_at_the_most() {
    let mut random = Rng::with_seed(3);
    let (mut begins, mut ends) = (2 * MINUTE, 5 * MINUTE);
    let series = Series::new(rails(), DAY).environment(UNKNOWN).command("bash", &["debug.sh"]);
    series
        .play(move |rails, second| {
            if (begins..ends).contains(&second) {
                rails.move_all(TRAINING / 10);
            }
            if second >= ends {
                begins = second + if random.bool() { random.u64(40 * MINUTE..90 * MINUTE) } else { MINUTE };
                ends = begins + random.u64(MINUTE..6 * MINUTE);
            }
        })
        .expect_warnings(1);
}
