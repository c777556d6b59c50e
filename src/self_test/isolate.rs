//! Each port is tried in a process of its own: a provider library that crashes or hangs
//! costs that process, and is a result.

pub mod child;
pub mod message;

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::sys::signals::{self, Disposition};
use crate::verbs::port_test::{DeviceProbe, PortTest, ProbeResult};
use crate::verbs::talk::Talk;
use child::Child;
use message::ChildReport;

/// How often to look after a child where the kernel has no descriptors of processes
/// (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(10);

pub const LONGEST: Duration = Duration::from_secs(3600);

/// Tries every port, all at once, and gives their results in the same order. None takes
/// longer than `each`, and all together no longer than `all`, but for the second that a
/// killed process has to end.
pub fn probe(ports: &[PortTest], each: Duration, all: Duration) -> Vec<ProbeResult> {
    run(ports, each, all, crate::verbs::probe::port)
}

/// What a child does: it says each step, and gives what it found.
pub type Work = fn(&PortTest, &mut dyn Talk) -> DeviceProbe;

fn run(ports: &[PortTest], each: Duration, all: Duration, work: Work) -> Vec<ProbeResult> {
    let mut children = Children::start(ports, all, work);
    children.until(each, |_| false);
    children.finish()
}

/// A process for each port.
///
/// A process that does not even end when killed stays behind, as a child of this one.
///
/// This process must be single-threaded, and reap no children elsewhere meanwhile.
pub struct Children {
    list: Vec<Child>,
    end: Instant,
    sigchld: Disposition,
}

impl Children {
    /// They have to be done after `all`.
    pub fn start(ports: &[PortTest], all: Duration, work: Work) -> Children {
        // Where SIGCHLD is ignored, the kernel would forget how a child ended.
        let sigchld = signals::set_default(nix::libc::SIGCHLD);
        // A time without end would be beyond what an Instant can be.
        let end = Instant::now() + all.min(LONGEST);
        let parent = Pid::this();
        let list = ports.iter().map(|wanted| Child::start(wanted, parent, work)).collect();
        Children { list, end, sigchld }
    }

    pub fn list(&mut self) -> &mut [Child] {
        &mut self.list
    }

    /// Until each has told so much, or is over. None may take longer than `each` for it.
    pub fn until(&mut self, each: Duration, is_there: impl Fn(&ChildReport) -> bool) {
        let deadline = (Instant::now() + each.min(LONGEST)).min(self.end);
        for child in &mut self.list {
            child.allow(deadline);
        }
        while let Some(next) = self.list.iter_mut().filter_map(|child| child.advance(&is_there)).min() {
            sleep(&self.list, next);
        }
    }

    /// What came of each. Whatever still runs counts as hung.
    pub fn finish(self) -> Vec<ProbeResult> {
        self.sigchld.restore();
        self.list.into_iter().map(Child::into_result).collect()
    }
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
