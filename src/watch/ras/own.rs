//! Whether an answer is about this container. All processes of a network namespace that have a communicator listen at
//! one address (SO_REUSEPORT, `rasClientInitSocket` in NCCL's `src/ras/client_support.cc`), and the kernel gives a
//! connection to any of them. In the host's network, that may be a process of another job.

use std::fs;
use std::net::IpAddr;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::answer::{Answer, Communicator, Host, Place};
use super::client::Failure;
use crate::facts::net;

/// Returns the answer, or an error if it is another job's.
///
/// # Errors
/// The answer lists processes on this host, and none of them is in this container.
pub(crate) fn checked(answer: Answer) -> Result<Answer, Failure> {
    let addresses: Vec<IpAddr> = net::system_addresses()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|found| Some(found.address?.addr()))
        .collect();
    match is_of_others(&answer, &addresses, &exists) {
        true => Err(Failure::OtherJob),
        false => Ok(answer),
    }
}

/// Returns whether no process that the answer lists on this host exists here. Only communicators with all of their
/// ranks count: the text of older releases lists only those that differ.
pub(super) fn is_of_others(answer: &Answer, own: &[IpAddr], exists: &dyn Fn(u32) -> bool) -> bool {
    let is_whole = |found: &&Communicator| u32::try_from(found.ranks.len()) == Ok(found.size);
    let places = answer.communicators.iter().filter(is_whole).flat_map(|found| &found.ranks);
    let is_here = |place: &&Place| matches!(place.host, Host::Address(address) if own.contains(&address));
    let mut here =
        places.filter_map(|rank| rank.place.as_ref()).filter(is_here).map(|place| place.pid).peekable();
    here.peek().is_some() && !here.any(exists)
}

/// Returns whether a process has this number in this PID namespace, or in one below it.
fn exists(pid: u32) -> bool {
    let Some(signed) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return false };
    // EPERM: it is another user's process.
    matches!(kill(Pid::from_raw(signed), None), Ok(()) | Err(Errno::EPERM)) || exists_below(pid)
}

/// Returns whether a process has this number in the PID namespace in which it was started (`NSpid` in proc(5)).
fn exists_below(pid: u32) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let processes =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let mut texts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    texts.any(|text| innermost(&text) == Some(pid))
}

fn innermost(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().nth_back(0)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Rank, State};
    use super::*;

    fn answer(size: u32, ranks: &[(&str, u32)]) -> Answer {
        let rank = |(number, (host, pid)): (u32, &(&str, u32))| Rank {
            number,
            place: Some(Place { host: (*host).into(), pid: *pid, gpu: 0 }),
            state: State::Running,
            counts: Vec::new(),
        };
        let ranks = (0..).zip(ranks).map(rank).collect();
        let communicators = vec![Communicator { size, ranks, ..Communicator::default() }];
        Answer { communicators, ..Answer::default() }
    }

    #[test]
    fn an_answer_without_a_process_of_this_container_is_another_jobs() {
        let own = ["10.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        let of_others = |answer: &Answer| is_of_others(answer, &own, &|pid| pid == 41);
        let there = ("10.0.0.2", 41);
        assert!(of_others(&answer(2, &[("10.0.0.1", 40), there])));
        assert!(!of_others(&answer(3, &[("10.0.0.1", 40), ("10.0.0.1", 41), there])));
        // The answer shows no process of this host, or not all ranks: nothing follows.
        assert!(!of_others(&answer(1, &[there])) && !of_others(&answer(1, &[("odd", 40)])));
        assert!(!of_others(&answer(9, &[("10.0.0.1", 40)])));
        assert!(!of_others(&Answer::default()));
    }

    #[test]
    fn a_process_of_a_namespace_below_has_another_number_here() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t301\t40\t2\n"), Some(2));
        assert_eq!(innermost("Name:\tx\n"), None);
        assert!(exists(std::process::id()) && !exists(0) && !exists(u32::MAX));
    }
}
