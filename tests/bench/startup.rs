//! Measures the time from the clone of PID 1 until its command, `true`, has ended.

use super::peers::Peer;
use super::table::{median, table};
use super::trial::{Sink, Trial};

const ROUNDS: usize = 2000;

pub fn measure(peers: &[Peer]) -> String {
    let mut times = vec![Vec::with_capacity(ROUNDS); peers.len()];
    let arguments: Vec<_> = peers.iter().map(|peer| peer.start(&["/bin/true"])).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    let mut sink = Sink::new();
    for _ in 0..ROUNDS {
        fastrand::shuffle(&mut order);
        for &peer in &order {
            peers[peer].before_start();
            let (time, status) = Trial::start(&arguments[peer], &sink).end();
            assert_eq!(status, 0, "{} failed", peers[peer].name);
            times[peer].push(time.as_secs_f64() * 1e6);
            sink.empty();
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
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
