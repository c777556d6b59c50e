//! Compares the cost of rdma-init as PID 1 with that of other common inits. `make bench` runs it.
//!
//! All inits are measured within one run, in an order that is shuffled for each round. The results are
//! ratios, because absolute figures depend on the machine and on its current load.

mod awake;
mod early;
mod host;
mod idle;
mod image;
mod latency;
mod machine;
mod memory;
#[allow(dead_code)]
#[path = "../support/paths.rs"]
mod paths;
mod peers;
mod profile;
mod startup;
mod table;
mod trial;

use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use image::{Image, Root};
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
    // This part runs only on request, because it measures nothing.
    if let Some(at) = wanted.iter().position(|part| *part == "profiles") {
        let folder = wanted.get(at + 1).expect("profiles FOLDER");
        return match profiles(&image, &root, Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("the starts cannot be profiled: {why}");
                ExitCode::FAILURE
            }
        };
    }
    if wants("scripts") {
        print!("{}", startup::measure_scripts("on a host without RDMA devices", &Peer::scripts(&root)));
        let scripts = |name: &str, root: &Rc<Root>| startup::measure_scripts(name, &Peer::scripts(root));
        match on_nine_hcas(&image, "scripts", scripts) {
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
    if wants("idle") {
        match on_nine_hcas(&image, "idle", idle::measure) {
            Ok(table) => print!("{table}"),
            Err(why) => {
                eprintln!("a host with nine HCAs cannot be made: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    if wants("latency") {
        print!("{}", latency::measure(&peers));
    }
    if wants("early") {
        print!("{}", early::measure(&peers));
    }
    ExitCode::SUCCESS
}

/// Calls a function in the root of a host with nine HCAs, in a separate thread because it needs another
/// network. The function also gets the host's name. `part` names the root.
fn on_nine_hcas<T: Send>(
    image: &Image,
    part: &str,
    work: impl FnOnce(&str, &Rc<Root>) -> T + Send,
) -> Result<T, String> {
    let in_network = || {
        let facts = host::captured();
        host::enter_network(&facts)?;
        let root = Rc::new(image.on_host(part, &facts).map_err(|error| error.to_string())?);
        Ok(work(&format!("on a host with {} HCAs", facts.rdma.len()), &root))
    };
    std::thread::scope(|scope| scope.spawn(in_network).join().expect("the work"))
}

/// Profiles starts: the most frequent ones first, and those whose time matters most.
fn profiles(image: &Image, root: &Root, folder: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| error.to_string();
    let plain = |name, environment: &[&str], options: &[&str], command: &[&str]| {
        profile::write(root, folder, name, environment, options, command).map_err(error)
    };
    plain("1-running", &[], &[], profile::COMMAND)?;
    plain("2-plain", &[], &[], profile::NO_COMMAND)?;
    plain("2-variables", peers::WITHOUT_STATE, &[], profile::NO_COMMAND)?;
    on_nine_hcas(image, "profiles", |_, root| {
        profile::write(root, folder, "3-hcas", &[], &[], profile::NO_COMMAND).map_err(error)?;
        profile::write(root, folder, "4-ended", &[], &[], profile::COMMAND).map_err(error)
    })??;
    plain("5-flags", &[], &["--kill-group", "--log-level", "info"], profile::NO_COMMAND)
}
