//! How long the parts of a preflight may take: the rails of a pair, the pair, a round, all of it. Pure.
//!
//! Each time is computed from the one before it, so no part can outlast the one that contains it. A
//! node ends each of its pairs at the end of the round, whatever its peer does. So node 0 waits for a
//! healthy node no longer than [`Times::first`] or [`Times::again`], and all of these together are the
//! time that PID 1 allows.

use std::time::Duration;

use crate::preflight::meet::schedule::{Extent, Schedule};

/// How long one attempt to connect to a peer may take.
pub const CONNECT: Duration = Duration::from_secs(5);

/// A peer that accepts a connection and then sends nothing for this long hangs.
pub const SILENT: Duration = Duration::from_secs(8);

/// How long a node waits for its peer's call before it asks the peer.
pub const ASK_AFTER: Duration = Duration::from_secs(3);

/// How long a call may still arrive after this node failed to ask the peer.
pub const GRACE: Duration = Duration::from_secs(3);

/// The time from the moment when both nodes of a pair are free until they test their rails or know why
/// they cannot: one waits for the other, connects, authenticates it, and gets its answer.
const LEAD: u64 = ASK_AFTER.as_secs() + CONNECT.as_secs() + 2 * SILENT.as_secs() + GRACE.as_secs();

/// Extra time for messages on their way, and for processes to start on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// The time for the rails of a pair, in addition to three tests of a port.
const RAILS: Duration = Duration::from_secs(45);

/// The most that a sound pair takes in addition to the test of a port.
const USUAL: Duration = Duration::from_secs(5);

/// How many retry rounds there is time for if each lasts as long as a round may. Most take a few
/// seconds.
const AGAIN: u32 = 8;

/// The time for the verdict: to compute it, and to send it to all nodes.
const JUDGING: Duration = Duration::from_secs(40);
pub const TELLING: Duration = Duration::from_secs(20);

/// The times of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The longest time for the test of a port.
    pub each: Duration,
}

impl Times {
    /// Returns the time for all rails of a pair, which are tested at once.
    pub fn rails(self) -> Duration {
        self.each.saturating_mul(3).saturating_add(RAILS)
    }

    /// Returns the time for a pair, once both of its nodes are free.
    pub fn pair(self) -> Duration {
        self.rails().saturating_add(Duration::from_secs(LEAD))
    }

    /// Returns the time for a round, once the round before it is over.
    pub fn round(self) -> Duration {
        self.pair().saturating_add(SLACK)
    }

    /// Returns the time for this many rounds, one after the other, and for the messages about them.
    pub fn rounds(self, rounds: u32) -> Duration {
        self.round().saturating_mul(rounds).saturating_add(SLACK)
    }

    /// Returns the time for the rounds of the schedule. In a full schedule most pairs are sound, and it
    /// would take days if none were. So its time is what sound pairs take, and in addition one round of
    /// the longest time.
    pub fn first(self, schedule: &Schedule) -> Duration {
        let rounds = schedule.rounds();
        match schedule.extent {
            Extent::Doubling => self.rounds(rounds),
            Extent::Full => {
                let sound = self.each.saturating_add(USUAL).saturating_mul(rounds);
                sound.saturating_add(self.rounds(1)).min(self.rounds(rounds))
            }
        }
    }

    /// Returns the time for all retries together.
    pub fn again(self) -> Duration {
        self.rounds(AGAIN)
    }

    /// Returns how many retry rounds may start if this much of their time is left.
    pub fn rounds_in(self, left: Duration) -> usize {
        let rounds = left.saturating_sub(SLACK).as_secs_f64() / self.round().as_secs_f64();
        rounds as usize
    }

    /// Returns how many rounds are over when this much time has passed since the first of them began.
    pub fn over_after(self, elapsed: Duration) -> usize {
        (elapsed.as_secs_f64() / self.round().as_secs_f64()) as usize
    }

    /// Returns the time for everything, from the moment when all nodes have joined to the end.
    pub fn whole(self, schedule: &Schedule) -> Duration {
        // The round in which all nodes move data at once, and the one from one rail to another.
        let others = self.rounds(1).saturating_mul(2);
        let parts = [self.first(schedule), self.again(), others, JUDGING, TELLING];
        parts.into_iter().fold(Duration::ZERO, Duration::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PREFLIGHT_TIME, Rounds};
    use crate::facts::launchers::MOST_NODES;
    use crate::self_test::isolate;
    use crate::verbs::port_test::DEFAULT_TIME;

    const EACH: [Duration; 4] = [Duration::ZERO, DEFAULT_TIME, Duration::from_secs(60), isolate::LONGEST];

    fn schedules() -> impl Iterator<Item = Schedule> {
        let numbers = [2, 3, 8, 9, 600, 10_000, MOST_NODES];
        let extents = [Extent::Doubling, Extent::Full];
        numbers.into_iter().flat_map(move |nodes| extents.map(|extent| Schedule { nodes, extent }))
    }

    #[test]
    fn each_part_has_room_in_the_one_that_contains_it() {
        for times in EACH.map(|each| Times { each }) {
            assert!(times.each < times.rails() && times.rails() < times.pair());
            // The two ways to reach a peer: this node calls it, or waits for its call and then asks it.
            let called = CONNECT + SILENT + SILENT;
            let asked = ASK_AFTER + CONNECT + SILENT + SILENT + GRACE;
            assert!(called.max(asked) + times.rails() <= times.pair());
            assert!(times.pair() + SLACK <= times.round());
            assert!(times.round() < times.rounds(1));
            for schedule in schedules() {
                let whole = times.whole(&schedule);
                let parts = times.first(&schedule) + times.again() + times.rounds(1) * 2 + TELLING;
                assert!(times.rounds(1) <= times.first(&schedule) && parts < whole, "{schedule:?}");
            }
        }
    }

    #[test]
    fn a_node_that_is_well_ends_the_last_round_of_the_usual_schedule_in_time() {
        for times in EACH.map(|each| Times { each }) {
            for schedule in schedules().filter(|schedule| schedule.extent == Extent::Doubling) {
                let last = times.round() * schedule.rounds();
                assert!(last + SLACK <= times.first(&schedule), "{schedule:?}");
                assert_eq!(times.over_after(times.first(&schedule)), schedule.rounds() as usize);
            }
        }
    }

    #[test]
    fn second_tries_begin_only_where_they_end_in_time() {
        let times = Times { each: DEFAULT_TIME };
        assert_eq!(times.rounds_in(times.again()), AGAIN as usize);
        assert_eq!(times.rounds_in(times.rounds(1)), 1);
        assert_eq!(times.rounds_in(times.round()), 0);
        assert_eq!(times.rounds_in(Duration::ZERO), 0);
    }

    #[test]
    fn pid_1_allows_what_the_largest_job_may_take() {
        for (extent, rounds) in [(Extent::Doubling, Rounds::Log), (Extent::Full, Rounds::Full)] {
            for each in EACH {
                let whole = Times { each }.whole(&Schedule { nodes: MOST_NODES, extent });
                let asked = Config { preflight_rounds: rounds, preflight_each: each, ..Config::default() };
                assert!(whole <= asked.longest_preflight(), "{extent:?}: {whole:?}");
            }
        }
        assert_eq!(Config::default().longest_preflight(), PREFLIGHT_TIME);
        assert_eq!(Config::default().preflight_each, DEFAULT_TIME);
    }

    #[test]
    fn the_manual_has_these_times() {
        let minutes = |nodes| {
            let schedule = Schedule { nodes, extent: Extent::Doubling };
            Times { each: DEFAULT_TIME }.whole(&schedule).as_secs_f64() / 60.0
        };
        let [few, many] = [minutes(8), minutes(256)];
        let page = include_str!("../../../docs/preflight.md");
        assert!(page.contains(&format!("| {few:.1} min for 8 nodes, {many:.1} min for 256 nodes |")));
        // These times include the 10 minutes of preflight-wait.
        let [few, many] = [few, many].map(|time| (time + 10.0).ceil());
        let page = include_str!("../../../docs/entering.md");
        assert!(page.contains(&format!("{few} minutes for 8 nodes, {many} minutes for 256 nodes")));
        let page = include_str!("../../../examples/startup-probe/README.md");
        assert!(few + 1.0 <= 33.0 && page.contains("`failureThreshold: 990` for 33 minutes"));
    }

    #[test]
    fn a_full_schedule_is_bounded_by_what_sound_pairs_take() {
        let schedule = Schedule { nodes: 600, extent: Extent::Full };
        let first = Times { each: DEFAULT_TIME }.first(&schedule);
        assert!(first > Duration::from_secs(599 * 10) && first < Duration::from_secs(599 * 11), "{first:?}");
    }
}
