//! Compares the cost of rdma-init as PID 1 with that of the inits that people use. `make bench`
//! runs it.
//!
//! All inits are measured within one run, in an order that is shuffled for each round, and
//! shown as ratios, because absolute figures depend on the machine and on its load at that
//! hour.

mod awake;
mod early;
mod latency;
mod memory;
mod peers;
mod startup;
mod table;
mod trial;

use std::process::ExitCode;

use peers::Peer;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == latency::ECHO) {
        latency::echo();
    }
    // `cargo bench` adds `--bench`; the other arguments name the parts to measure.
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| *a != "--bench").collect();
    let wants = |part: &str| wanted.is_empty() || wanted.contains(&part);
    let peers = match Peer::all() {
        Ok(peers) => peers,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let _awake = awake::Awake::keep();
    print!("{}", table::machine(&peers));
    if wants("startup") {
        print!("{}", startup::measure(&peers));
    }
    if wants("memory") {
        print!("{}", memory::measure(&peers));
    }
    if wants("latency") {
        print!("{}", latency::measure(&peers));
    }
    if wants("early") {
        print!("{}", early::measure(&peers));
    }
    ExitCode::SUCCESS
}
