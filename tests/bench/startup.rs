//! Measures the time from the clone of PID 1 until its command, `true`, has ended.

use super::peers::{BARE, OURS, Peer};
use super::table::{median, table};
use super::trial::{Sink, Trial};

const ROUNDS: usize = 2000;

/// Fewer rounds, because a script takes longer than everything else.
const ROUNDS_OF_SCRIPTS: usize = 200;

/// Returns the median of each peer, in microseconds.
fn medians(peers: &[Peer], rounds: usize) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); peers.len()];
    let arguments: Vec<_> = peers.iter().map(|peer| peer.start(&["/bin/true"])).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    let mut sink = Sink::new();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &peer in &order {
            peers[peer].before_start();
            let (time, status) = Trial::start(&arguments[peer], &sink).end();
            assert_eq!(status, 0, "{} failed", peers[peer].name);
            times[peer].push(time.as_secs_f64() * 1e6);
            sink.empty();
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

/// Measures rdma-init and other inits.
pub fn measure(peers: &[Peer]) -> String {
    let medians = medians(peers, ROUNDS);
    let added = |peer: usize| medians[peer] - medians[0];
    let of = |name: &str| peers.iter().position(|peer| peer.name == name).expect("a peer");
    let rows: Vec<_> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| {
            vec![
                peer.name.to_owned(),
                format!("{:.0}", medians[index]),
                format!("{:.2}", medians[index] / medians[0]),
                format!("{:.0}", added(index)),
                format!("{:.2}", added(index) / added(of("tini"))),
                format!("{:.2}", added(index) / added(of("tini-static"))),
            ]
        })
        .collect();
    table(
        "Start-up",
        &format!(
            "From the clone to the end of `true`, median of {ROUNDS}, on a machine without RDMA devices. \
             `added` is what is beyond `bare`. rdma-init leaves its state in a fresh layer in memory; `disk`: \
             in a fresh layer on a disk; `restart`: in place of the state of an earlier start; `no state`: \
             nowhere."
        ),
        &["", "us", "/ bare", "added us", "added / tini's", "added / tini-static's"],
        &rows,
    )
}

/// Measures rdma-init and scripts that do its work.
pub fn measure_scripts(host: &str, peers: &[Peer]) -> String {
    let medians = medians(peers, ROUNDS_OF_SCRIPTS);
    let of = |name: &str| medians[peers.iter().position(|peer| peer.name == name).expect("a peer")];
    let added = |median: f64| median - of(BARE);
    let rows: Vec<_> = peers
        .iter()
        .zip(&medians)
        .map(|(peer, median)| {
            vec![
                peer.name.to_owned(),
                format!("{median:.0}"),
                format!("{:.0}", added(*median)),
                format!("{:.1}", added(*median) / added(of(OURS))),
            ]
        })
        .collect();
    table(
        &format!("Beside a script, {host}"),
        &format!(
            "From the clone to the end of `true`, median of {ROUNDS_OF_SCRIPTS}. The script \
             (tests/bench/entrypoint.sh) looks for the devices, chooses a GID, and exports variables."
        ),
        &["", "us", "added us", "added / rdma-init's"],
        &rows,
    )
}
