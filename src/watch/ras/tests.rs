//! Tests with answers from NVIDIA's own libraries. `recorded` contains the answers of three ranks in one
//! communicator to the client's question. In `behind`, rank 2 has launched AllReduce 16 times, the others
//! 17 times. In `stopped`, rank 2 is stopped. In `dead`, rank 1 was killed, and a minute has passed. `h200` is the
//! answer of one rank.

mod client;
mod hostile;
mod recorded;
mod verdicts;

use super::answer::{Answer, Communicator};
use super::protocol::read;

/// The NCCL versions whose answers are recorded.
const TEXT: [&str; 2] = ["2.25.1", "2.27.7"];
const JSON: [&str; 2] = ["2.28.9", "2.32.3"];

fn bytes(release: &str, what: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/watch/ras/recorded");
    std::fs::read(format!("{folder}/{release}-{what}.txt")).unwrap()
}

fn answer(release: &str, what: &str) -> Answer {
    read(&bytes(release, what)).unwrap_or_else(|why| panic!("{release} {what}: {why:?}"))
}

/// Returns the only communicator of an answer.
fn only(answer: &Answer) -> &Communicator {
    let [communicator] = answer.communicators.as_slice() else { panic!("{answer:?}") };
    communicator
}
