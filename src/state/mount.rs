//! Determines the mount that a file is on.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

use crate::facts::reader::of_kernel;
use crate::sys::mounts;

/// Returns the mount's ID, which is unique as long as the mount exists; `None` if the kernel does not show
/// it.
///
/// A device number is not sufficient: a file system and its bind mounts share one.
pub fn of(file: impl AsFd) -> Option<u64> {
    mounts::of(&file).or_else(|| of_proc(file))
}

/// Returns the same ID from `/proc/PID/fdinfo/FD` (`mnt_id`, proc(5), since Linux 3.15).
fn of_proc(file: impl AsFd) -> Option<u64> {
    let number = file.as_fd().as_raw_fd();
    let text = of_kernel(format!("/proc/self/fdinfo/{number}"))?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Returns whether this path is on the same mount as the root directory.
pub fn is_of_root(path: &Path) -> bool {
    of_path(path).is_some_and(|mount| Some(mount) == of_root())
}

/// Returns the ID of the mount that the root directory is on.
pub fn of_root() -> Option<u64> {
    mounts::of_root().or_else(|| of_path(Path::new("/")))
}

/// Returns the ID of the mount that a path is on; follows a symbolic link at its end.
pub fn of_path(path: &Path) -> Option<u64> {
    of(OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn mounts_are_distinguished() {
        let of = |path| of(File::open(path).unwrap());
        assert!(of("/").is_some());
        assert_eq!(of("/proc/self/status"), of("/proc/version"));
        assert_ne!(of("/"), of("/proc"));
        for path in ["/", "/proc", "/dev"] {
            let file = File::open(path).unwrap();
            assert!(mounts::of(&file).is_none_or(|number| Some(number) == of_proc(&file)), "{path}");
        }
        assert!(is_of_root(Path::new("/")) && !is_of_root(Path::new("/proc")));
        assert!(!is_of_root(Path::new("/no/such")));
    }
}
