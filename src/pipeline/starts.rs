//! Finds starts of rdma-init that are under way below a PID 1 that is another program, such as tini.

use std::ffi::CString;
use std::fs;
use std::time::Duration;

use crate::cli::usage::is_start;
use crate::facts::identity::{age, namespace, started};
use crate::facts::reader::of_kernel;

/// Returns the age of the youngest start that PID 1 started and that is under way; `None` if this process can
/// see none. A start that another process launched by hand is not the container's start.
pub(super) fn under_way() -> Option<Duration> {
    let started_by_1 = children(1).into_iter().filter(|pid| is_ours(*pid));
    // With `supervise`, a child does the preparation.
    let all = started_by_1.flat_map(|pid| std::iter::once(pid).chain(children(pid)));
    let starts = all.filter(|pid| *pid != std::process::id().cast_signed() && prepares(*pid));
    starts.filter_map(|pid| started(pid).and_then(age)).min().map(Duration::from_secs)
}

/// Returns whether this process is preparing a command. A process that supervises its command has it as a
/// child.
fn prepares(pid: i32) -> bool {
    let is_here = || fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|link| link == *namespace("mnt"));
    let is_start = || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_start(&words(&line)));
    is_ours(pid) && is_here() && children(pid).is_empty() && is_start()
}

/// Returns whether this process shows the same program name as this one.
fn is_ours(pid: i32) -> bool {
    let name = of_kernel(format!("/proc/{pid}/comm"));
    name.is_some() && name == of_kernel("/proc/self/comm")
}

fn children(pid: i32) -> Vec<i32> {
    let children = of_kernel(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn words(line: &[u8]) -> Vec<CString> {
    let words = line.split_inclusive(|byte| *byte == 0);
    words.filter_map(|word| CString::from_vec_with_nul(word.to_vec()).ok()).collect()
}
