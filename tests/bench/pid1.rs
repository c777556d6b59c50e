//! Compares the cost of rdma-init as PID 1 with that of the inits that people use. `make bench`
//! runs it.
//!
//! All inits are measured within one run, in an order that is shuffled for each round, and
//! shown as ratios, because absolute figures depend on the machine and on its load at that
//! hour.

mod awake;
mod early;
mod host;
mod image;
mod latency;
mod machine;
mod memory;
mod peers;
mod startup;
mod table;
mod trial;

use std::process::ExitCode;
use std::rc::Rc;

use image::Image;
use peers::Peer;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == latency::ECHO) {
        latency::echo();
    }
    // `cargo bench` adds `--bench`; the other arguments name the parts to measure.
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| *a != "--bench").collect();
    let wants = |part: &str| wanted.is_empty() || wanted.contains(&part);
    let image = match peers::image() {
        Ok(image) => image,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let root = Rc::new(image.on_tmpfs().expect("an overlay can be mounted"));
    let peers = Peer::all(&root);
    let _awake = awake::Awake::keep();
    print!("{}", machine::machine("PID 1 beside its peers", &peers::versions().join(", ")));
    if wants("startup") {
        let mut peers = Peer::all(&root);
        peers.extend(Peer::more_of_ours(&image, &root).expect("an overlay can be mounted"));
        print!("{}", startup::measure(&peers));
    }
    if wants("scripts") {
        print!("{}", startup::measure_scripts("on a host without RDMA devices", &Peer::scripts(&root)));
        match scripts_on_nine_hcas(&image) {
            Ok(table) => print!("{table}"),
            Err(why) => {
                eprintln!("a host with nine HCAs cannot be made: {why}");
                return ExitCode::FAILURE;
            }
        }
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

/// In a thread, because its network is another one.
fn scripts_on_nine_hcas(image: &Image) -> Result<String, String> {
    let measure = || {
        let facts = host::captured();
        host::enter_network(&facts)?;
        let root = Rc::new(image.on_host(&facts).map_err(|error| error.to_string())?);
        let name = format!("on a host with {} HCAs", facts.rdma.len());
        Ok(startup::measure_scripts(&name, &Peer::scripts(&root)))
    };
    std::thread::scope(|scope| scope.spawn(measure).join().expect("the measurement"))
}
