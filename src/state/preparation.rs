//! Determines whether this container's start is under way.

use std::time::Duration;

use crate::facts::identity::{age, started};
use crate::facts::reader::of_kernel;

/// Returns how long ago PID 1 was started, if it is rdma-init.
pub(crate) fn age_of_our_init() -> Option<Duration> {
    started(1).and_then(age).filter(|_| is_by_us()).map(Duration::from_secs)
}

/// Returns whether PID 1 is rdma-init and has no child yet, or a child that is not yet the command. Returns
/// `None` if /proc does not show PID 1's children.
pub(crate) fn is_under_way() -> Option<bool> {
    if !is_by_us() {
        return Some(false);
    }
    let children = of_kernel("/proc/1/task/1/children")?;
    let mut children = children.split_whitespace().map(name).peekable();
    Some(children.peek().is_none() || children.any(|child| child == name("self")))
}

/// Returns whether PID 1 shows the program name of rdma-init.
pub(crate) fn is_by_us() -> bool {
    name("1").is_some() && name("1") == name("self") && std::process::id() != 1
}

/// Returns a process's program name, as the kernel shows it.
fn name(pid: &str) -> Option<String> {
    of_kernel(format!("/proc/{pid}/comm"))
}
