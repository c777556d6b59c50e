//! Sound jobs.

use std::time::Duration;

use fastrand::Rng;
use nix::libc::{SIGCONT, SIGSTOP};

use super::play::{HOUR, MINUTE, Series, TICK, TRAINING, UNKNOWN};
use crate::support::rails::Rails;

/// What a rail moves for a request to a server.
const REQUEST: u64 = 1_000_000_000;

fn rails() -> Rails {
    Rails::infiniband(8)
}

#[test]
fn an_hour_of_training_has_no_line() {
    Series::new(rails(), HOUR).play(|rails, _| rails.move_all(TRAINING)).expect_silence();
}

/// A job that may have several nodes.
#[test]
fn a_job_that_compiles_for_25_minutes_is_at_most_noted() {
    let series = Series::new(rails(), HOUR).environment(UNKNOWN).command("python3", &["train.py"]);
    series.play(compiles).expect_notes();
}

#[test]
fn a_job_of_two_nodes_that_compiles_for_25_minutes_is_at_most_noted() {
    Series::new(rails(), HOUR).play(compiles).expect_notes();
}

fn compiles(rails: &mut Rails, second: u64) {
    if second >= 25 * MINUTE {
        rails.move_all(TRAINING);
    }
}

/// Trains for `busy` seconds, and then rests for `rest`, again and again.
fn rests(busy: u64, rest: u64) -> impl FnMut(&mut Rails, u64) + Send + 'static {
    move |rails, second| {
        if second % (busy + rest) < busy {
            rails.move_all(TRAINING);
        }
    }
}

#[test]
fn checkpoints_of_3_minutes_have_no_line() {
    Series::new(rails(), 52 * MINUTE).play(rests(10 * MINUTE, 3 * MINUTE)).expect_silence();
}

/// Their length is learned from the first one, which is longer than `watch-after`.
#[test]
fn checkpoints_of_12_minutes_are_at_most_noted() {
    Series::new(rails(), 51 * MINUTE + 300).play(rests(5 * MINUTE, 12 * MINUTE)).expect_notes();
}

#[test]
fn data_that_loads_for_longer_than_a_step_takes_has_no_line() {
    Series::new(rails(), 40 * MINUTE).play(rests(30, 90)).expect_silence();
}

#[test]
fn a_server_with_a_request_each_11_minutes_has_notes() {
    let series = Series::new(rails(), 6 * HOUR).command("vllm", &["serve", "model"]);
    series
        .play(|rails, second| {
            if second % (11 * MINUTE) == 0 {
                rails.move_all(REQUEST);
            }
        })
        .expect_notes();
}

/// The server's launcher does not say how many nodes it has, and its module is one of Python's.
#[test]
fn a_server_that_is_idle_for_6_hours_has_notes() {
    let command = ["-m", "sglang.launch_server", "--model-path", "model"];
    let series = Series::new(rails(), 6 * HOUR + 10 * MINUTE).command("python3", &command);
    series
        .play(|rails, second| {
            if !(5 * MINUTE..6 * HOUR + 5 * MINUTE).contains(&second) {
                rails.move_all(REQUEST);
            }
        })
        .expect_notes();
}

#[test]
fn a_server_with_requests_at_random_for_8_hours_has_notes() {
    let mut random = Rng::with_seed(7);
    let mut next = 0;
    let series = Series::new(rails(), 8 * HOUR).command("tritonserver", &["--model-repository", "models"]);
    series
        .play(move |rails, second| {
            if second >= next {
                rails.move_all(REQUEST);
                next = second + random.u64(5 * MINUTE..40 * MINUTE);
            }
        })
        .expect_notes();
}

/// A rollout generates without RDMA for longer than `watch-after`.
#[test]
fn twelve_rollouts_of_15_minutes_are_at_most_noted() {
    Series::new(rails(), 4 * HOUR)
        .play(|rails, second| {
            if second % (20 * MINUTE) >= 15 * MINUTE {
                rails.move_all(TRAINING);
            }
        })
        .expect_notes();
}

/// Six rails move gradients, and two little between the stages of a pipeline.
#[test]
fn rails_of_a_pipeline_that_move_little_from_the_start_have_no_warning() {
    Series::new(rails(), HOUR)
        .play(|rails, _| {
            for rail in rails.all() {
                rails.move_bytes(rail, if rail < 6 { TRAINING } else { TRAINING * 3 / 100 });
            }
        })
        .expect_notes();
}

#[test]
fn two_rails_that_a_later_phase_does_not_use_are_at_most_noted() {
    Series::new(rails(), HOUR)
        .play(|rails, second| {
            let used = if second < 20 * MINUTE { 8 } else { 6 };
            (0..used).for_each(|rail| rails.move_bytes(rail, TRAINING));
        })
        .expect_notes();
}

#[test]
fn phases_that_use_alternate_halves_have_no_warning() {
    Series::new(rails(), HOUR)
        .play(|rails, second| {
            let from = if (second / (10 * MINUTE)).is_multiple_of(2) { 0 } else { 4 };
            (from..from + 4).for_each(|rail| rails.move_bytes(rail, TRAINING));
        })
        .expect_notes();
}

#[test]
fn an_evaluation_on_seven_of_eight_rails_is_at_most_noted() {
    Series::new(rails(), HOUR)
        .play(|rails, second| {
            let is_evaluation = second % (30 * MINUTE) >= 20 * MINUTE;
            (0..8 - usize::from(is_evaluation)).for_each(|rail| rails.move_bytes(rail, TRAINING));
        })
        .expect_notes();
}

#[test]
fn storage_traffic_over_one_rail_while_the_others_rest_has_no_warning() {
    Series::new(rails(), HOUR)
        .play(|rails, second| match second % (15 * MINUTE) < 6 * MINUTE {
            true => rails.move_all(TRAINING),
            false => rails.move_bytes(3, TRAINING / 10),
        })
        .expect_notes();
}

/// Which experts are asked is different in each step.
#[test]
fn the_rails_of_a_mixture_of_experts_have_no_warning() {
    let mut random = Rng::with_seed(11);
    Series::new(rails(), 2 * HOUR)
        .play(move |rails, _| {
            for rail in rails.all() {
                let percent = if random.u8(..10) < 3 { 2 } else { random.u64(..=100) };
                rails.move_bytes(rail, TRAINING * percent / 100);
            }
        })
        .expect_notes();
}

/// After a node has left, all connections to it end, and the job goes on with the others.
#[test]
fn an_elastic_job_that_goes_on_without_a_node_has_notes() {
    let lines = Series::new(rails(), HOUR)
        .play(|rails, second| {
            if second == 20 * MINUTE {
                for rail in rails.all() {
                    rails.rise(rail, "hw_counters/req_transport_retries_exceeded", 16);
                }
            }
            if !(20 * MINUTE..23 * MINUTE).contains(&second) {
                rails.move_all(TRAINING);
            }
        })
        .expect_notes();
    lines.expect_line("ended-queue-pairs", 0);
}

/// A container that was frozen for longer than `watch-after`: nobody has seen it rest.
#[test]
fn a_container_that_was_frozen_has_no_line() {
    Series::new(rails(), HOUR)
        .play(|rails, second| {
            // The last look before has seen data move, and the first one afterwards comes before the next data.
            match second {
                605 => rails.frozen = Some(Duration::from_secs(20 * MINUTE)),
                1805 => {}
                _ => rails.move_all(TRAINING),
            }
        })
        .expect_silence();
}

/// The same with a signal to all processes, which interrupts what they wait for.
#[test]
fn a_job_that_was_stopped_by_a_signal_has_no_line() {
    let series = Series::new(rails(), HOUR);
    series
        .play(|rails, second| match second {
            605 => rails.signal = Some(SIGSTOP),
            1805 => rails.signal = Some(SIGCONT),
            606..1805 => {}
            _ => rails.move_all(TRAINING),
        })
        .expect_silence();
}

/// What the subnet manager and its agents send is less than data, and no sign of a stall either.
#[test]
fn management_traffic_beside_a_sound_job_has_no_line() {
    let mut random = Rng::with_seed(13);
    let series = Series::new(rails(), 30 * MINUTE).tick(1).options(&["--watch-interval", "1s"]);
    series
        .play(move |rails, second| {
            let data = if second % MINUTE < 50 { TRAINING / TICK } else { 0 };
            for rail in rails.all() {
                rails.move_bytes(rail, data + random.u64(15_000..30_000));
            }
        })
        .expect_silence();
}
