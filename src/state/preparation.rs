//! Whether the start of this container is under way.

use std::time::Duration;

use crate::facts::identity::{age, started};
use crate::facts::reader::of_kernel;

/// How long ago PID 1 was started, where it is one of us.
pub fn age_of_our_init() -> Option<Duration> {
    started(1).and_then(age).filter(|_| is_by_us()).map(Duration::from_secs)
}

/// Whether PID 1 is one of us and has a child that is not its command yet, or none so
/// far. `None` where its children do not show.
pub fn is_under_way() -> Option<bool> {
    if !is_by_us() {
        return Some(false);
    }
    let children = of_kernel("/proc/1/task/1/children")?;
    let mut children = children.split_whitespace().map(name).peekable();
    Some(children.peek().is_none() || children.any(|child| child == name("self")))
}

/// Whether PID 1 shows itself as one of us.
pub fn is_by_us() -> bool {
    name("1").is_some() && name("1") == name("self") && std::process::id() != 1
}

/// The program of a process, as the kernel shows it.
fn name(pid: &str) -> Option<String> {
    of_kernel(format!("/proc/{pid}/comm"))
}
