//! Whether an answer is about this container. All processes of a network namespace that have a communicator listen at
//! one address (SO_REUSEPORT, `rasClientInitSocket` in NCCL's `src/ras/client_support.cc`), and the kernel gives a
//! connection to any of them. On the host's network, that may be a process of another job.

use std::collections::HashSet;
use std::fs;

use super::answer::{Answer, State};
use super::names::Names;

/// Returns whether a process that the answer lists on this host, and that has answered, is not in this container.
pub(crate) fn is_foreign(answer: &Answer, names: &Names) -> bool {
    lists_others(answer, names, &processes())
}

/// If no process can be listed, nothing follows: the container may have no procfs.
fn lists_others(answer: &Answer, names: &Names, here: &HashSet<u32>) -> bool {
    let answers = |state| !matches!(state, State::Missing | State::Dead);
    let ranks = answer.communicators.iter().flat_map(|found| &found.ranks).filter(|rank| answers(rank.state));
    let mut places = ranks.filter_map(|rank| rank.place.as_ref()).filter(|place| names.is_own(&place.host));
    !here.is_empty() && places.any(|place| !here.contains(&place.pid))
}

/// Returns the numbers of the processes in this PID namespace and below it, as the processes know them themselves:
/// NCCL has them from getpid(2).
fn processes() -> HashSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let processes =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let texts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    texts.filter_map(|text| own_number(&text)).collect()
}

/// Returns the number in the innermost PID namespace (`NSpid` in proc_pid_status(5), since Linux 4.1).
fn own_number(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Communicator, Place, Rank};
    use super::*;

    #[test]
    fn an_answer_that_lists_others_on_this_host_is_foreign() {
        let names = Names::new("gpu-1", &["10.0.0.1", "127.0.0.1"], "");
        let here = HashSet::from([41, 42]);
        let foreign = |ranks: &[(&str, u32, State)]| {
            let rank = |(host, pid, state): &(&str, u32, State)| Rank {
                number: 0,
                place: Some(Place { host: (*host).into(), pid: *pid, gpu: 0 }),
                state: *state,
                counts: Vec::new(),
            };
            let ranks = ranks.iter().map(rank).collect();
            let communicators = vec![Communicator { ranks, ..Communicator::default() }];
            lists_others(&Answer { communicators, ..Answer::default() }, &names, &here)
        };
        use State::{Dead, Missing, Running};
        assert!(!foreign(&[("10.0.0.1", 41, Running), ("127.0.0.1", 42, Running), ("10.0.0.2", 7, Running)]));
        assert!(foreign(&[("10.0.0.1", 41, Running), ("10.0.0.1", 43, Running)]));
        // A rank that was killed is no longer there, and neither is its process.
        assert!(!foreign(&[("10.0.0.1", 43, Dead), ("10.0.0.1", 44, Missing)]));
        assert!(!foreign(&[("odd", 43, Running)]) && !foreign(&[]));
    }

    #[test]
    fn a_process_has_its_own_number_in_a_namespace_below() {
        assert_eq!(own_number("Name:\tx\nNSpid:\t301\t40\t2\n"), Some(2));
        assert_eq!(own_number("Name:\tx\n"), None);
        assert!(processes().contains(&std::process::id()));
    }
}
