//! Each port is tried in a process of its own: a provider library that crashes or hangs
//! costs that process, and is a result.

mod child;
mod message;

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use super::device::{ProbeResult, Wanted};
use crate::sys::signals;
use child::Child;

/// How often to look after a child where the kernel has no descriptors of processes
/// (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(10);

const LONGEST: Duration = Duration::from_secs(3600);

/// Tries every port, all at once, and gives their results in the same order. None takes
/// longer than `each`, and all together no longer than `all`, but for the second that a
/// killed process has to end.
///
/// A process that does not even end when killed stays behind, as a child of this one.
///
/// This process must be single-threaded, and reap no children elsewhere meanwhile.
pub fn probe(ports: &[Wanted], each: Duration, all: Duration) -> Vec<ProbeResult> {
    run(ports, each, all, |wanted, tell| crate::verbs::probe::port(wanted, tell))
}

/// What a child does: it says each step, and gives what it found.
type Work = fn(&Wanted, &mut dyn FnMut(&str)) -> super::device::DeviceProbe;

fn run(ports: &[Wanted], each: Duration, all: Duration, work: Work) -> Vec<ProbeResult> {
    // Where SIGCHLD is ignored, the kernel would forget how a child ended.
    let sigchld = signals::set_default(nix::libc::SIGCHLD);
    // A time without end would be beyond what an Instant can be.
    let all = all.min(LONGEST);
    let each = each.min(all);
    let end = Instant::now() + all;
    let parent = Pid::this();
    let mut children: Vec<Child> =
        ports.iter().map(|wanted| Child::start(wanted, parent, each, end, work)).collect();
    while let Some(next) = children.iter_mut().filter_map(Child::advance).min() {
        sleep(&children, next);
    }
    sigchld.restore();
    children.into_iter().map(Child::into_result).collect()
}

/// Until a child says something or ends, or until the time.
fn sleep(children: &[Child], until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let blind = children.iter().any(Child::is_unseen);
    let left = if blind { left.min(LOOK) } else { left };
    let fds = children.iter().flat_map(Child::fds);
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // A time that is nearly over is waited for to its end, not in a loop.
    let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    // An interruption is as good as an event: the caller looks again.
    let _ = poll(&mut fds, timeout);
}

#[cfg(test)]
mod tests;
