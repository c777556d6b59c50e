//! Each port is tested in its own process. If a provider library crashes or hangs, only that process is
//! lost, and that is a result.

pub(crate) mod child;
pub(crate) mod message;

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::signals::{self, Disposition};
use crate::verbs::port_test::{DeviceProbe, PortTest, ProbeResult};
use crate::verbs::talk::ProbeControl;
use child::Child;
use message::ChildReport;

/// How often to check a child if the kernel has no process descriptors (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(10);

pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// Tests all ports at once, and returns their results in the same order. No port takes longer than
/// `each`. All together take no longer than `all`, plus the second that a killed process has to exit.
pub(crate) fn probe(ports: &[PortTest], each: Duration, all: Duration) -> Vec<ProbeResult> {
    run(ports, each, all, crate::verbs::probe::port)
}

/// What a child does: it reports each step, and returns what it found.
pub(crate) type Work = fn(&PortTest, &mut dyn ProbeControl) -> DeviceProbe;

fn run(ports: &[PortTest], each: Duration, all: Duration, work: Work) -> Vec<ProbeResult> {
    let mut children = Children::start(ports, all, work);
    children.until(each, |_| false);
    children.finish()
}

/// A process for each port.
///
/// If a process does not exit even when killed, it remains a child of this process.
///
/// This process must be single-threaded, and must not reap children elsewhere meanwhile.
pub(crate) struct Children {
    list: Vec<Child>,
    end: Instant,
    sigchld: Disposition,
}

impl Children {
    /// Starts a process for each port. All of them must be done after `all`.
    pub(crate) fn start(ports: &[PortTest], all: Duration, work: Work) -> Children {
        // If SIGCHLD were ignored, the kernel would discard how a child ended.
        let sigchld = signals::set_default(nix::libc::SIGCHLD);
        // An `Instant` cannot hold an endless time.
        let end = Instant::now() + all.min(LONGEST);
        let list = ports.iter().map(|wanted| Child::start(wanted, work)).collect();
        Children { list, end, sigchld }
    }

    pub(crate) fn list(&mut self) -> &mut [Child] {
        &mut self.list
    }

    /// Waits until each child has sent what `is_there` looks for, or has ended. Kills a child that
    /// takes longer than `each`.
    pub(crate) fn until(&mut self, each: Duration, is_there: impl Fn(&ChildReport) -> bool) {
        let deadline = (Instant::now() + each.min(LONGEST)).min(self.end);
        for child in &mut self.list {
            child.allow(deadline);
        }
        while let Some(next) = self.list.iter_mut().filter_map(|child| child.advance(&is_there)).min() {
            sleep(&self.list, next);
        }
    }

    /// Returns the result of each port. A child that is still running counts as hung.
    pub(crate) fn finish(self) -> Vec<ProbeResult> {
        self.sigchld.restore();
        self.list.into_iter().map(Child::into_result).collect()
    }
}

/// Sleeps until a child sends something or ends, at most until this time.
fn sleep(children: &[Child], until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let blind = children.iter().any(Child::is_unseen);
    let left = if blind { left.min(LOOK) } else { left };
    let fds = children.iter().flat_map(Child::fds);
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // Poll counts whole milliseconds. Without one more, the last millisecond would be a busy loop.
    let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    // The caller checks every child again, even after an interruption.
    let _ = poll(&mut fds, timeout);
}

#[cfg(test)]
mod tests;
