//! What PID 1 costs, beside the inits that people use: run with `make bench`.
//!
//! Everything is compared within one run, in an order that is drawn anew each
//! time, and shown as ratios: the figures of a machine and of an hour say little.

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
    // `cargo bench` adds this; the rest are the parts that are asked for.
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
