//! Writes the variables into `/etc/nccl.conf`, which NCCL reads in every process, no matter how the process
//! was started. If the image has RCCL, also writes `/etc/rccl.conf`, which RCCL reads.

use std::path::Path;

use super::amend::{InPlace, LONGEST, NotAmended, amend};
use crate::block;
use crate::facts::Facts;
use crate::facts::reader::{Links, read_regular};
use crate::libraries::may_write;
use crate::libraries::nccl::conf;

/// NCCL's file and RCCL's file.
const NCCL: &str = "etc/nccl.conf";
const RCCL: &str = "etc/rccl.conf";

/// Returns the files that the image's libraries read, relative to the root.
pub(crate) fn files(facts: &Facts) -> impl Iterator<Item = &'static str> {
    let has_rccl = facts.image.as_ref().is_some_and(|image| !image.rccl.is_empty());
    [NCCL].into_iter().chain(has_rccl.then_some(RCCL))
}

/// Puts the lines `KEY=VALUE` after the user's own, replacing those of an earlier start. `state` is a file
/// with the same lines; the file may be a link to it.
///
/// # Errors
/// Returns a sentence that says why the lines cannot be written.
pub(crate) fn write(
    root: &Path,
    file: &str,
    lines: &str,
    state: Option<&Path>,
    in_place: InPlace,
) -> Result<(), String> {
    match amend(&root.join(file), 0o644, in_place, |old| block::with(old, lines, conf::keys, may_write)) {
        Err(NotAmended::Link(target)) if Some(target.as_path()) == state => Ok(()),
        amended => amended.map_err(|kept| kept.to_string()),
    }
}

/// Returns the lines of an earlier start if they are still in the file and differ from these.
pub(crate) fn left_behind(root: &Path, file: &str, lines: &str) -> Option<String> {
    let text = String::from_utf8(read_regular(&root.join(file), LONGEST, Links::Followed).ok()?).ok()?;
    let is_there = block::with(&text, "", conf::keys, may_write) != text;
    let is_other = block::with(&text, lines, conf::keys, may_write) != text;
    (is_there && is_other).then(|| block::lines(&text, may_write).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::image::library::Library;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn it_is_made_and_replaced_and_keeps_what_it_had() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NCCL);
        fs::create_dir(path.parent().unwrap()).unwrap();
        let state = Path::new("/run/rdma-init/nccl.conf");
        let write = |lines: &str| write(root.path(), NCCL, lines, Some(state), InPlace::Yes);
        write("NCCL_IB_TC=1\n").unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.contains("\nNCCL_IB_TC=1\n"), "{first}");
        fs::write(&path, format!("NCCL_DEBUG=INFO\n{first}")).unwrap();
        write("NCCL_DEBUG=WARN\nNCCL_IB_TC=2\n").unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert!(second.starts_with("NCCL_DEBUG=INFO\n#") && second.contains("\nNCCL_IB_TC=2\n"), "{second}");
        assert!(!second.contains("WARN") && !second.contains("NCCL_IB_TC=1"), "{second}");
        // A link in the image to a file with the same lines works, too.
        fs::remove_file(&path).unwrap();
        symlink("/run/rdma-init/nccl.conf", &path).unwrap();
        assert_eq!(write("NCCL_IB_TC=1\n"), Ok(()));
        fs::remove_file(&path).unwrap();
        symlink("/elsewhere", &path).unwrap();
        assert!(write("NCCL_IB_TC=1\n").unwrap_err().contains("symbolic link to /elsewhere"));
    }

    #[test]
    fn rccl_has_a_file_of_its_own_where_the_image_has_rccl() {
        let mut facts = Facts { image: Some(Image::default()), ..Facts::default() };
        assert_eq!(files(&facts).collect::<Vec<_>>(), [NCCL]);
        facts.image.as_mut().unwrap().rccl.push(Library::default());
        assert_eq!(files(&facts).collect::<Vec<_>>(), [NCCL, RCCL]);
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        for file in files(&facts) {
            write(root.path(), file, "NCCL_IB_TC=1\n", None, InPlace::Yes).unwrap();
            assert!(fs::read_to_string(root.path().join(file)).unwrap().contains("\nNCCL_IB_TC=1\n"));
        }
    }

    #[test]
    fn special_files_are_checked_without_blocking() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NCCL);
        fs::create_dir(path.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(left_behind(root.path(), NCCL, "A=1\n"), None);
        for endless in ["/dev/zero", "/proc/self/task"] {
            fs::remove_file(&path).unwrap();
            symlink(endless, &path).unwrap();
            assert_eq!(left_behind(root.path(), NCCL, "A=1\n"), None);
        }
    }
}
