//! Writes the variables into `/etc/nccl.conf`, which NCCL reads in every process, however the
//! process was started.

use std::path::Path;

use super::amend::{InPlace, Kept, LONGEST, amend};
use crate::block;
use crate::facts::reader::{Links, read_regular};
use crate::libraries::nccl::conf;

const PATH: &str = "etc/nccl.conf";

/// Puts the lines `KEY=VALUE` after the user's own, in place of those of an earlier start.
/// `state` is a file with the same lines, to which `/etc/nccl.conf` may be a link.
///
/// # Errors
/// A sentence that says why the lines cannot be written.
pub fn write(root: &Path, lines: &str, state: Option<&Path>, in_place: InPlace) -> Result<(), String> {
    match amend(&root.join(PATH), 0o644, in_place, |old| block::with(old, lines, conf::keys)) {
        Err(Kept::Link(target)) if Some(target.as_path()) == state => Ok(()),
        amended => amended.map_err(|kept| kept.to_string()),
    }
}

/// The lines of an earlier start, if they are still there and differ from these.
pub fn left_behind(root: &Path, lines: &str) -> Option<String> {
    let text = String::from_utf8(read_regular(&root.join(PATH), LONGEST, Links::Followed).ok()?).ok()?;
    let is_there = block::with(&text, "", conf::keys) != text;
    let is_other = block::with(&text, lines, conf::keys) != text;
    (is_there && is_other).then(|| block::lines(&text).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn it_is_made_and_replaced_and_keeps_what_it_had() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(PATH);
        fs::create_dir(path.parent().unwrap()).unwrap();
        let state = Path::new("/run/rdma-init/nccl.conf");
        let write = |lines: &str| write(root.path(), lines, Some(state), InPlace::Yes);
        write("NCCL_IB_TC=1\n").unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.contains("\nNCCL_IB_TC=1\n"), "{first}");
        fs::write(&path, format!("NCCL_DEBUG=INFO\n{first}")).unwrap();
        write("NCCL_DEBUG=WARN\nNCCL_IB_TC=2\n").unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert!(second.starts_with("NCCL_DEBUG=INFO\n#") && second.contains("\nNCCL_IB_TC=2\n"), "{second}");
        assert!(!second.contains("WARN") && !second.contains("NCCL_IB_TC=1"), "{second}");
        // A link of the image to a file with the same lines is as good.
        fs::remove_file(&path).unwrap();
        symlink("/run/rdma-init/nccl.conf", &path).unwrap();
        assert_eq!(write("NCCL_IB_TC=1\n"), Ok(()));
        fs::remove_file(&path).unwrap();
        symlink("/elsewhere", &path).unwrap();
        assert!(write("NCCL_IB_TC=1\n").unwrap_err().contains("symbolic link to /elsewhere"));
    }

    #[test]
    fn what_is_no_file_is_looked_at_without_a_wait() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(PATH);
        fs::create_dir(path.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(left_behind(root.path(), "A=1\n"), None);
        for endless in ["/dev/zero", "/proc/self/task"] {
            fs::remove_file(&path).unwrap();
            symlink(endless, &path).unwrap();
            assert_eq!(left_behind(root.path(), "A=1\n"), None);
        }
    }
}
