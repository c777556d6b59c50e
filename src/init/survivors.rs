//! Finds all remaining processes in the container, including workers in their own sessions.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use nix::libc::SIGKILL;
use nix::unistd::{Pid, getpgid};

use crate::facts::reader::of_kernel;
use crate::sys::pidfd::Pidfd;
use crate::sys::signals;
use crate::text::{condensed_to, grouped, visible};

/// Which processes a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// For PID 1: its whole PID namespace.
    Namespace,
    /// For a subreaper: its descendants.
    Descendants,
}

impl Reach {
    /// Sends a signal to every process in reach except this one. In a namespace, the kernel does this in
    /// one step. In a tree, this may miss a process that starts in the meantime, so SIGKILL must be
    /// repeated until no process is left.
    pub(super) fn signal(self, signal: i32) {
        match self {
            Reach::Namespace => {
                let _ = signals::kill(Pid::from_raw(-1), signal);
            }
            Reach::Descendants => signal_descendants(signal, None),
        }
    }

    /// Starts or stops adopting orphans in reach. For PID 1, the kernel always does this.
    pub(super) fn adopt(self, adopts: bool) {
        if self == Reach::Descendants {
            // This fails only before Linux 3.4.
            let _ = nix::sys::prctl::set_child_subreaper(adopts);
        }
    }

    /// Returns whether the processes in reach can be found. In the /proc of another PID namespace, the same
    /// processes have other PIDs.
    pub(super) fn can_see(self) -> bool {
        let own = std::process::id().to_string();
        self == Reach::Namespace || fs::read_link("/proc/self").is_ok_and(|link| link == Path::new(&own))
    }
}

/// Returns children, their children, and so on, each with its parent; none if /proc does not show them. Processes that
/// have entered the container are none of them.
fn descendants() -> Vec<(i32, i32)> {
    if !Reach::Descendants.can_see() {
        return Vec::new();
    }
    let own = std::process::id().cast_signed();
    let parents: HashMap<i32, i32> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let is_ours = |pid: i32| {
        let mut ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        // The bound ends the walk whatever was read: no chain is longer than the number of processes.
        ancestors.by_ref().skip(1).take(parents.len()).any(|ancestor| ancestor == own)
    };
    parents.iter().map(|(pid, seen)| (*pid, *seen)).filter(|(pid, _)| is_ours(*pid)).collect()
}

/// Names these processes for a person, `python (12, 13)`, except those that are ending.
pub(super) fn name_descendants() -> Vec<String> {
    let mut all: Vec<i32> = descendants().into_iter().map(|(pid, _)| pid).collect();
    all.sort_unstable();
    let name = |pid: &i32| {
        let status = of_kernel(format!("/proc/{pid}/status")).filter(|status| !is_ending(status))?;
        let name = status.lines().next()?.strip_prefix("Name:")?.trim();
        Some((if name.is_empty() { "(no name)".to_owned() } else { visible(name) }, pid.to_string()))
    };
    let groups = grouped(all.iter().filter_map(name));
    let more = groups.len().saturating_sub(MOST_NAMED);
    let named = groups.iter().take(MOST_NAMED);
    let shown = named.map(|(name, pids)| format!("{name} ({})", condensed_to(pids, MOST_NAMED)));
    shown.chain((more > 0).then(|| format!("{more} more"))).collect()
}

/// Returns whether a process has ended, or is about to: a signal is pending that it neither catches nor blocks. The kernel
/// keeps no signal pending that it would ignore. `status` is /proc/PID/status (`fs/proc/array.c`).
fn is_ending(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    let mask = |name| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    field("State").is_some_and(|state| state.starts_with(['Z', 'X']))
        || (mask("SigPnd") | mask("ShdPnd")) & !(mask("SigCgt") | mask("SigBlk")) != 0
}

/// How many names a line has, and how many runs of numbers each of them.
const MOST_NAMED: usize = 5;

/// Signals these processes, except those of one process group.
pub(super) fn signal_descendants(signal: i32, except: Option<Pid>) {
    let own = std::process::id().cast_signed();
    let is_of = |pid: i32, group: Pid| getpgid(Some(Pid::from_raw(pid))) == Ok(group);
    for (pid, seen) in
        descendants().into_iter().filter(|(pid, _)| except.is_none_or(|group| !is_of(*pid, group)))
    {
        // Opened one at a time: there may be more processes than descriptors.
        let process = Pidfd::open(Pid::from_raw(pid));
        // Another process may have received this PID before the descriptor was opened, so the parent is
        // checked again. If that happens later, the descriptor still refers to the dead process.
        if !parent(pid).is_some_and(|now| now == seen || now == own) {
            continue;
        }
        let _ = match process {
            Ok(process) => process.kill(signal),
            // No descriptor is free, or the kernel has no pidfd.
            Err(_) => signals::kill(Pid::from_raw(pid), signal),
        };
    }
}

/// Kills the children of a process, and the process groups that they lead; none if /proc does not show
/// them.
pub(super) fn kill_children_of(process: Pid) {
    if !Reach::Descendants.can_see() {
        return;
    }
    for child in processes().filter(|pid| parent(*pid) == Some(process.as_raw())) {
        let group = signals::kill(Pid::from_raw(-child), SIGKILL);
        let _ = group.or_else(|_| signals::kill(Pid::from_raw(child), SIGKILL));
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the fourth field of `stat`; the second is a name that may hold anything.
pub(super) fn parent(pid: i32) -> Option<i32> {
    let stat = of_kernel(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ending_if_it_is_dead_or_a_signal_is_about_to_kill_it() {
        let status = |state: &str, pending: u64, caught: u64| {
            format!(
                "Name:\tx\nState:\t{state}\nSigPnd:\t0\nShdPnd:\t{pending:016x}\nSigBlk:\t0\nSigCgt:\t{caught:016x}\n"
            )
        };
        for (state, pending, caught, ends) in [
            ("S (sleeping)", 0, 0, false),
            ("Z (zombie)", 0, 0, true),
            ("S", 0x4000, 0, true),
            ("R", 0x4000, 0x4000, false),
        ] {
            assert_eq!(is_ending(&status(state, pending, caught)), ends, "{state} {pending} {caught}");
        }
        assert!(!is_ending(""));
    }

    #[test]
    fn the_parent_is_read_whatever_the_name() {
        assert_eq!(parent(std::process::id().cast_signed()), Some(nix::unistd::getppid().as_raw()));
        assert_eq!(parent(-1), None);
    }
}
