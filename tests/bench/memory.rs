//! Measures how much memory PID 1 holds while its command sleeps.

use std::fs;
use std::time::Duration;

use nix::libc::SIGKILL;

use super::peers::{BARE, Peer};
use super::table::{median, table};
use super::trial::{Sink, Trial};

const ROUNDS: usize = 21;

pub fn measure(peers: &[Peer]) -> String {
    let mut sink = Sink::new();
    let peers: Vec<&Peer> = peers.iter().filter(|peer| peer.name != BARE).collect();
    let mut found = vec![Vec::new(); peers.len()];
    let mut order: Vec<usize> = (0..peers.len()).collect();
    for _ in 0..ROUNDS {
        fastrand::shuffle(&mut order);
        // All peers run at the same time, so that Pss divides a shared page among the same number of
        // sharers for each of them.
        let trials: Vec<(usize, Trial)> = order
            .iter()
            .map(|&peer| (peer, Trial::start(&peers[peer].start(&["/bin/sleep", "1000"]), &sink)))
            .collect();
        for (peer, trial) in &trials {
            settle(trial.pid);
            found[*peer].push((kilobytes(trial.pid, "Rss:"), kilobytes(trial.pid, "Pss:")));
        }
        for (_, trial) in trials {
            trial.kill(SIGKILL);
            trial.end();
        }
        sink.empty();
    }
    let medians: Vec<(u64, u64)> = found
        .into_iter()
        .map(|found| {
            let (mut rss, mut pss): (Vec<u64>, Vec<u64>) = found.into_iter().unzip();
            (median(&mut rss), median(&mut pss))
        })
        .collect();
    let of = |name: &str| medians[peers.iter().position(|peer| peer.name == name).expect("a peer")];
    let ratio = |a: u64, b: u64| format!("{:.2}", a as f64 / b as f64);
    let rows: Vec<_> = peers
        .iter()
        .zip(&medians)
        .map(|(peer, &(rss, pss))| {
            vec![
                peer.name.to_owned(),
                rss.to_string(),
                ratio(rss, of("tini").0),
                pss.to_string(),
                ratio(pss, of("tini-static").1),
            ]
        })
        .collect();
    table(
        "Memory",
        &format!("PID 1 beside `sleep`, one of each at a time, median of {ROUNDS}."),
        &["", "Rss kB", "/ tini's", "Pss kB", "/ tini-static's"],
        &rows,
    )
}

/// Waits until the command runs, and PID 1 sleeps with nothing left to do. No event tells of
/// this. PID 1 counts as settled when it was not scheduled once in a short while.
pub fn settle(pid: i32) {
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().filter(|line| line.contains("ctxt_switches")).collect::<String>()
    };
    loop {
        let before = switches();
        std::thread::sleep(Duration::from_millis(30));
        if switches() == before {
            return;
        }
    }
}

pub fn kilobytes(pid: i32, field: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = rollup.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel shows it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
