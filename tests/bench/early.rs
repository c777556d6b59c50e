//! Sends SIGTERM shortly after the clone, and counts how often it is lost. The kernel drops a signal for
//! PID 1 that PID 1 neither blocks nor handles yet.

use std::time::{Duration, Instant};

use nix::libc::{SIGKILL, SIGTERM};

use super::peers::{BARE, Peer};
use super::table::table;
use super::trial::{Sink, Trial};

const ROUNDS: usize = 50;
const DELAYS: std::ops::RangeInclusive<u64> = 0..=1200;
const STEP: usize = 100;

/// Every init ends sooner than this after a SIGTERM. One that is still running has lost the signal, and
/// would run forever.
const LOST: Duration = Duration::from_millis(60);

pub fn measure(peers: &[Peer]) -> String {
    let peers: Vec<&Peer> = peers.iter().filter(|peer| peer.name != BARE).collect();
    let delays: Vec<u64> = DELAYS.step_by(STEP).collect();
    let arguments: Vec<_> = peers.iter().map(|peer| peer.start(&["/bin/sleep", "1000"])).collect();
    let mut lost = vec![vec![0; peers.len()]; delays.len()];
    let mut sink = Sink::new();
    let mut order: Vec<(usize, usize)> =
        (0..delays.len()).flat_map(|delay| (0..peers.len()).map(move |peer| (delay, peer))).collect();
    for _ in 0..ROUNDS {
        fastrand::shuffle(&mut order);
        for &(delay, peer) in &order {
            let trial = Trial::start(&arguments[peer], &sink);
            let until = trial.started + Duration::from_micros(delays[delay]);
            // This loop spins, because a sleep would end later than one step of the delays.
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            trial.kill(SIGTERM);
            if !trial.ends_within(LOST) {
                lost[delay][peer] += 1;
                trial.kill(SIGKILL);
            }
            trial.end();
            sink.empty();
        }
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (delay, lost) in delays.iter().zip(&lost) {
        let counts = lost.iter().map(|lost: &usize| lost.to_string());
        rows.push(std::iter::once(format!("{delay} us")).chain(counts).collect());
    }
    let sum = |peer: usize| lost.iter().map(|lost| lost[peer]).sum::<usize>();
    let sums = (0..peers.len()).map(|peer| sum(peer).to_string());
    rows.push(std::iter::once("in all".to_owned()).chain(sums).collect());
    let names = peers.iter().map(|peer| peer.name);
    table(
        "Early stops that are lost",
        &format!("SIGTERM so long after the clone, of {ROUNDS} each."),
        &std::iter::once("").chain(names).collect::<Vec<_>>(),
        &rows,
    )
}
