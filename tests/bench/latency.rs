//! Measures the time from the kill of PID 1 until the signal reaches the command.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::peers::{OWN_PATH, Peer};
use super::table::{median, table};
use super::trial::{Sink, Trial};

/// The argument that makes this program the command, which answers each signal.
pub const ECHO: &str = "--echo-signals";

const ROUNDS: usize = 60;
const SIGNALS: usize = 200;

/// Answers on standard input, because no init touches it. It is a socket here.
pub fn echo() -> ! {
    // Not every init passes the mask on.
    let wanted = block();
    let stdin = std::io::stdin();
    let answer = || nix::unistd::write(stdin.as_fd(), b".");
    let _ = answer();
    loop {
        let _ = wanted.wait();
        let _ = answer();
    }
}

fn block() -> SigSet {
    let wanted = SigSet::from(Signal::SIGUSR1);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&wanted), None).expect("a signal can be blocked");
    wanted
}

pub fn measure(peers: &[Peer]) -> String {
    let mut sink = Sink::new();
    let mut times = vec![Vec::new(); peers.len()];
    let mut order: Vec<usize> = (0..peers.len()).collect();
    for _ in 0..ROUNDS {
        fastrand::shuffle(&mut order);
        for &peer in &order {
            let (near, far) = std::os::unix::net::UnixStream::pair().expect("sockets");
            let stdin = nix::unistd::dup(std::io::stdin()).expect("standard input is open");
            // SAFETY: this test owns standard input, and may replace and restore it.
            unsafe { libc::dup2(far.as_raw_fd(), 0) };
            let trial = Trial::start(&peers[peer].start(&[OWN_PATH, ECHO]), &sink);
            // SAFETY: as above.
            unsafe { libc::dup2(stdin.as_raw_fd(), 0) };
            drop(far);
            let mut byte = [0];
            let mut answer = || assert_eq!(nix::unistd::read(&near, &mut byte), Ok(1), "an answer");
            answer();
            for _ in 0..SIGNALS {
                let sent = Instant::now();
                trial.kill(libc::SIGUSR1);
                answer();
                times[peer].push(sent.elapsed().as_secs_f64() * 1e6);
            }
            trial.kill(libc::SIGKILL);
            trial.end();
            sink.empty();
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    let tini = medians[peers.iter().position(|peer| peer.name == "tini").expect("a peer")];
    let rows: Vec<_> = peers
        .iter()
        .zip(&medians)
        .map(|(peer, us)| {
            vec![
                peer.name.to_owned(),
                format!("{us:.1}"),
                format!("{:.2}", us / medians[0]),
                format!("{:.2}", us / tini),
            ]
        })
        .collect();
    table(
        "Signal latency",
        &format!("From the kill of PID 1 to the answer of the command, median of {}.", ROUNDS * SIGNALS),
        &["", "us", "/ bare", "/ tini's"],
        &rows,
    )
}
