//! How many processes the kernel killed because memory ran out.

use std::path::Path;

use super::reader::of_kernel;

/// Returns the count of this process's memory cgroup, which includes its descendants: `oom_kill` in `memory.events` of
/// cgroup v2, or in `memory.oom_control` of v1 (Linux 4.13 and later; Documentation/admin-guide/cgroup-v2.rst). `None`
/// if the container shows neither.
pub(crate) fn oom_kills() -> Option<u64> {
    read(Path::new("/sys/fs/cgroup"), &of_kernel("/proc/self/cgroup")?)
}

/// `memberships`: lines of the form `ID:CONTROLLERS:PATH` (cgroups(7)). The path leads from the mount to the cgroup of
/// this process only if the container shares the cgroup namespace of the host and sees all of its cgroups. Otherwise,
/// the mount itself is the container's cgroup.
fn read(mount: &Path, memberships: &str) -> Option<u64> {
    memberships.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mount, file) = match controllers {
            "" => (mount.to_owned(), "memory.events"),
            v1 if v1.split(',').any(|one| one == "memory") => (mount.join("memory"), "memory.oom_control"),
            _ => return None,
        };
        let folders = [mount.join(path.trim_start_matches('/')), mount];
        let text = folders.into_iter().find_map(|folder| of_kernel(folder.join(file)))?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn the_count_is_that_of_the_own_cgroup_of_either_version() {
        let mount = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = mount.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        };
        let v1 = "11:pids:/docker/0a\n7:cpu,memory:/docker/0a\n0::/\n";
        assert_eq!(read(mount.path(), v1), None, "a cgroup of the root has no such file");
        put("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        assert_eq!(read(mount.path(), v1), Some(3));
        put("memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\noom_group_kill 0\n");
        assert_eq!(read(mount.path(), "0::/\n"), Some(1));
        assert_eq!(read(mount.path(), "0::/../other\n"), Some(1));
        put("kubepods/pod1/memory.events", "oom 9\noom_kill 2\n");
        assert_eq!(read(mount.path(), "0::/kubepods/pod1\n"), Some(2), "the host's cgroup namespace");
        for other in ["", "0::", ":::", "1:name=systemd:/\n"] {
            assert!(read(mount.path(), other).is_none_or(|count| count == 1), "{other:?}");
        }
    }
}
