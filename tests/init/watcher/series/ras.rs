//! What NCCL's RAS says beside a pause and beside a rail that is behind.

use super::play::{HOUR, Line, Lines, MINUTE, Series, TRAINING};
use crate::support::rails::Rails;
use crate::support::ras::{SteppedServer, answer, answer_of_others};

/// Trains for ten minutes and rests for twenty, in which RAS gives these answers.
fn rests(answers: impl IntoIterator<Item = String>) -> Lines {
    let mut rails = Rails::infiniband(8);
    let server = SteppedServer::new(answers);
    let address = format!("NCCL_RAS_ADDR={}", server.address());
    rails.ras = Some(server);
    Series::new(rails, HOUR).options(&["--set", &address]).play(|rails, second| {
        if !(10 * MINUTE..30 * MINUTE).contains(&second) {
            rails.move_all(TRAINING);
        }
    })
}

fn of_ranks(lines: &Lines) -> Vec<&Line> {
    lines.all.iter().filter(|line| line.id == "stopped-ranks").collect()
}

/// In any job, some ranks are ahead of others at a moment.
#[test]
fn counts_that_differ_for_a_moment_are_at_most_noted() {
    let lines = rests([answer("2.28.9-behind"), answer("2.28.9-sound")]);
    assert!(!of_ranks(&lines).iter().any(|line| line.is_warning()), "{lines:?}");
}

/// The same while the job moves, and a rail is far behind.
#[test]
fn counts_of_a_moving_job_that_differ_for_a_moment_are_at_most_noted() {
    let mut rails = Rails::infiniband(8);
    let server = SteppedServer::new([answer("2.28.9-behind"), answer("2.28.9-sound")]);
    let address = format!("NCCL_RAS_ADDR={}", server.address());
    rails.ras = Some(server);
    let lines = Series::new(rails, HOUR).options(&["--set", &address]).play(|rails, second| {
        for rail in rails.all() {
            rails.move_bytes(rail, if rail == 4 && second > 20 * MINUTE { TRAINING / 20 } else { TRAINING });
        }
    });
    assert!(!of_ranks(&lines).iter().any(|line| line.is_warning()), "{lines:?}");
    lines.expect_line("idle-rail", 4);
}

#[test]
fn counts_that_differ_twice_without_a_change_are_a_hang() {
    let lines = rests([answer("2.28.9-behind")]);
    let hangs = of_ranks(&lines).iter().any(|line| line.is_warning() && line.message.contains("hangs"));
    assert!(!lines.is_played || hangs, "{lines:?}");
}

#[test]
fn a_dead_rank_has_a_warning() {
    let lines = rests([answer("2.28.9-dead")]);
    let is_dead = |line: &&Line| line.message.contains("is dead");
    assert!(!lines.is_played || lines.expect_warning("stopped-ranks").iter().any(is_dead), "{lines:?}");
}

#[test]
fn the_ranks_of_another_job_accuse_nobody() {
    let lines = rests([answer_of_others("2.28.9-dead")]);
    assert!(!of_ranks(&lines).iter().any(|line| line.is_warning()), "{lines:?}");
    let is_foreign = of_ranks(&lines).iter().any(|line| line.message.contains("another job"));
    assert!(!lines.is_played || is_foreign, "RAS was not asked: {lines:?}");
}
