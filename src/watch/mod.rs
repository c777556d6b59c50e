//! What happens while the job runs.

mod fold;
mod judge;
pub(crate) mod ras;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::finding::Finding;
use judge::Judge;
pub(crate) use judge::{PortLook, WatchedPort};

/// Looks at the ports after each interval, and says what it finds. Does not return: its process is killed when the
/// job has ended.
pub(crate) fn run(
    ports: Vec<WatchedPort>,
    interval: Duration,
    after: Duration,
    look: impl Fn(&WatchedPort) -> PortLook,
    say: impl Fn(&Finding),
) -> ! {
    let started = Instant::now();
    let mut judge = Judge::new(ports, after);
    loop {
        sleep(interval);
        let looks = judge.ports().iter().map(&look).collect();
        judge.judge(started.elapsed(), looks).iter().for_each(&say);
    }
}
