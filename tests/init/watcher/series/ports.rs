//! Faults of links, devices and GIDs.

use super::play::{HOUR, Line, Lines, MINUTE, Series, TRAINING};
use crate::support::one_hca::EMPTY;
use crate::support::rails::{RATE, Rails, gid};

fn rails() -> Rails {
    Rails::infiniband(8)
}

/// The others go on.
fn move_active(rails: &mut Rails, is_active: impl Fn(usize) -> bool) {
    for rail in rails.all().filter(|rail| is_active(*rail)) {
        rails.move_bytes(rail, TRAINING);
    }
}

#[test]
fn a_port_that_is_down_while_others_move_is_the_last_word_about_it() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        if second == 10 * MINUTE {
            rails.down(3);
        }
        move_active(rails, |rail| rail != 3 || second < 10 * MINUTE);
    });
    lines.expect_warning("link-down");
    lines.expect_only("link-down");
    lines.expect_last(3, "it is not active", Line::is_of_inactive);
}

const FLAPS_UNTIL: u64 = 7 * 90;

/// Rail 2 flaps seven times, is well for five minutes, and is `lost` then.
fn flaps(lost: impl Fn(&mut Rails, usize) + Send + 'static) -> impl FnMut(&mut Rails, u64) + Send + 'static {
    move |rails, second| {
        let is_lost = second >= FLAPS_UNTIL + 5 * MINUTE;
        match second {
            _ if second == FLAPS_UNTIL + 5 * MINUTE => lost(rails, 2),
            _ if second >= FLAPS_UNTIL => {}
            _ if second % 90 == 0 => rails.down(2),
            _ if second % 90 == 30 => rails.up(2),
            _ => {}
        }
        let is_down = second < FLAPS_UNTIL && second % 90 < 30;
        move_active(rails, |rail| rail != 2 || !(is_down || is_lost));
    }
}

/// The limit on lines does not hide the change for the worse.
#[track_caller]
fn expect_flaps(lines: &Lines) {
    let warnings = lines.expect_warning("link-down").len();
    assert!(warnings <= 14, "the limit on lines holds: {lines:?}");
    lines.expect_only("link-down");
}

#[test]
fn a_port_that_flaps_and_then_stays_down_for_40_minutes_is_not_active_in_its_last_line() {
    let lines = Series::new(rails(), FLAPS_UNTIL + 45 * MINUTE + 10).play(flaps(Rails::down));
    expect_flaps(&lines);
    lines.expect_last(2, "it is not active", Line::is_of_inactive);
}

#[test]
fn a_port_that_flaps_and_then_stays_down_for_2_hours_is_not_active_in_its_last_line() {
    let lines = Series::new(rails(), FLAPS_UNTIL + 125 * MINUTE + 10).play(flaps(Rails::down));
    expect_flaps(&lines);
    lines.expect_last(2, "it is not active", Line::is_of_inactive);
}

#[test]
fn a_port_that_flaps_and_whose_device_then_goes_is_gone_in_its_last_line() {
    let lines = Series::new(rails(), FLAPS_UNTIL + 125 * MINUTE + 10).play(flaps(Rails::take_away));
    expect_flaps(&lines);
    lines.expect_last(2, "its device is gone", |line| {
        line.id == "link-down" && ["is gone", "still gone"].iter().any(|words| line.message.contains(words))
    });
}

#[test]
fn eight_ports_that_are_down_for_30_seconds_at_once_are_one_warning() {
    let lines = Series::new(rails(), HOUR).tick(1).play(|rails, second| {
        for rail in rails.all() {
            match second {
                601 => rails.down(rail),
                _ if second == 631 => rails.up(rail),
                _ => {}
            }
        }
        if !(601..631).contains(&second) {
            rails.move_all(TRAINING);
        }
    });
    let warnings = lines.expect_warning("link-down");
    let all: Vec<usize> = warnings.iter().map(|line| line.ports.len()).collect();
    assert!(!lines.is_played || all == [8], "{lines:?}");
    let back = lines.all.iter().filter(|line| line.message.contains("active again")).count();
    assert!(!lines.is_played || back == 1, "what is equal for eight ports is one line: {lines:?}");
    assert_eq!(lines.all.len(), if lines.is_played { 2 } else { 0 }, "{lines:?}");
}

/// The subnet manager is gone, and the links are up.
#[test]
fn ports_that_wait_for_the_subnet_manager_are_in_init_and_not_down() {
    let lines = Series::new(rails(), HOUR / 2).play(|rails, second| {
        for rail in rails.all().filter(|_| second == 10 * MINUTE) {
            rails.set(rail, "state", "2: INIT");
        }
        move_active(rails, |_| second < 10 * MINUTE);
    });
    let warnings = lines.expect_warning("link-down");
    let is_right = |line: &&Line| line.ports.len() == 8 && line.message.contains("INIT");
    assert!(!lines.is_played || warnings.len() == 1 && warnings.iter().all(is_right), "{lines:?}");
    assert!(!lines.all.iter().any(|line| line.message.contains("DOWN")), "{lines:?}");
}

#[test]
fn a_link_that_becomes_slower_and_recovers_has_a_warning_and_a_note() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        match second {
            1200 => rails.set(5, "rate", "100 Gb/sec (1X NDR)"),
            2400 => rails.set(5, "rate", RATE),
            _ => {}
        }
        rails.move_all(TRAINING);
    });
    let said: Vec<(bool, bool)> =
        lines.all.iter().map(|line| (line.is_warning(), line.is_about(5))).collect();
    assert!(!lines.is_played || said == [(true, true), (false, true)], "{lines:?}");
    lines.expect_last(5, "its rate is as at the start", |line| {
        line.message.contains("400 Gb/sec (4X NDR) again")
    });
}

/// Neither a look nor a counter shows it, so nothing is made up.
#[test]
fn a_link_that_is_down_between_two_looks_without_a_counter_has_no_line() {
    let mut machine = rails();
    machine.remove(1, "counters/link_downed");
    Series::new(machine, HOUR)
        .tick(1)
        .play(|rails, second| {
            match second % 600 {
                303 => rails.set(1, "state", "1: DOWN"),
                306 => rails.set(1, "state", "4: ACTIVE"),
                _ => {}
            }
            move_active(rails, |rail| rail != 1 || !(303..306).contains(&(second % 600)));
        })
        .expect_silence();
}

/// With the counter, the same link has a line each time, up to the limit.
#[test]
fn a_link_that_is_down_between_two_looks_with_a_counter_has_a_warning() {
    let lines = Series::new(rails(), HOUR).tick(1).play(|rails, second| {
        match second {
            303 => rails.down(1),
            306 => rails.up(1),
            _ => {}
        }
        move_active(rails, |rail| rail != 1 || !(303..306).contains(&second));
    });
    assert_eq!(lines.expect_warning("link-down").len(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_line("link-down", 1);
}

#[test]
fn a_device_that_is_gone_is_the_last_word_about_it() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        if second == 20 * MINUTE {
            rails.take_away(6);
        }
        move_active(rails, |rail| rail != 6 || second < 20 * MINUTE);
    });
    lines.expect_warning("link-down");
    lines.expect_only("link-down");
    lines.expect_last(6, "its device is gone", |line| line.message.contains("gone"));
}

#[test]
fn a_device_with_another_name_is_recognized() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        if second == 20 * MINUTE {
            rails.rename(4, "rdma4");
        }
        rails.move_all(TRAINING);
    });
    let names = |line: &&Line| line.message.contains("rdma4") && line.message.contains("mlx5_4");
    assert_eq!(lines.all.iter().filter(names).count(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_only("link-down");
}

#[test]
fn eight_devices_that_are_gone_are_one_warning_and_one_note() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| match second {
        1200 => rails.all().for_each(|rail| rails.take_away(rail)),
        0..1200 => rails.move_all(TRAINING),
        _ => {}
    });
    let warnings = lines.expect_warning("link-down");
    assert!(!lines.is_played || warnings.len() == 1 && warnings[0].ports.len() == 8, "{lines:?}");
    lines.expect_only("link-down");
}

#[test]
fn a_state_that_cannot_be_read_for_2_minutes_has_a_warning_and_a_note() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        match second {
            1200 => rails.set(7, "state", "nonsense"),
            1320 => rails.set(7, "state", "4: ACTIVE"),
            _ => {}
        }
        rails.move_all(TRAINING);
    });
    let said: Vec<(bool, bool)> =
        lines.all.iter().map(|line| (line.is_warning(), line.is_about(7))).collect();
    assert!(!lines.is_played || said == [(true, true), (false, true)], "{lines:?}");
    lines.expect_last(7, "its state can be read", |line| line.message.contains("can be read again"));
}

/// Another counter of the same port is believed all the same.
#[test]
fn a_counter_that_turns_to_text_hides_no_other_one() {
    let lines = Series::new(rails(), HOUR).play(|rails, second| {
        match second {
            600 => rails.set(0, "counters/symbol_error", "N/A (no PMA)"),
            1200 => rails.set(0, "hw_counters/local_ack_timeout_err", "nonsense"),
            2400 => rails.rise(0, "hw_counters/req_transport_retries_exceeded", 3),
            _ => {}
        }
        rails.move_all(TRAINING);
    });
    assert_eq!(lines.expect_warning("ended-queue-pairs").len(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_only("ended-queue-pairs");
}

#[test]
fn a_gid_that_moves_to_another_index_has_a_warning() {
    let lines = Series::new(Rails::roce(4), HOUR).play(|rails, second| {
        if second == 20 * MINUTE {
            rails.set(2, "gid_attrs/types/2", "RoCE v2");
            rails.set(2, "gid_attrs/ndevs/2", "lo");
            rails.set(2, "gids/2", &gid(2));
            rails.set(2, "gids/1", EMPTY);
        }
        rails.move_all(TRAINING);
    });
    assert_eq!(lines.expect_warning("gid-changed").len(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_last(2, "its GID has moved", |line| line.message.contains("has moved from index 1"));
}

#[test]
fn a_gid_that_vanishes_has_a_warning() {
    let lines = Series::new(Rails::roce(4), HOUR).play(|rails, second| {
        if second == 20 * MINUTE {
            rails.set(3, "gids/1", EMPTY);
        }
        rails.move_all(TRAINING);
    });
    assert_eq!(lines.expect_warning("gid-changed").len(), usize::from(lines.is_played), "{lines:?}");
    lines.expect_last(3, "its GID is gone", |line| line.message.contains("is gone from index 1"));
}
