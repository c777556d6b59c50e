//! The variables in `/etc/nccl.conf`, which NCCL reads in every process, however it was
//! started.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Uid;

use crate::facts::reader::describe;
use crate::nccl::block;
use crate::state::folder::Folder;

const FOLDER: &str = "/etc";
const NAME: &str = "nccl.conf";

/// Bytes; a file of the user is not larger.
const LONGEST: u64 = 1024 * 1024;

/// Puts the lines `KEY=VALUE` behind the user's own, in place of those of an earlier
/// start. `state` is the file with the same lines that the file may be a link to.
///
/// # Errors
/// Why that cannot be, in words.
pub fn write(root: &Path, lines: &str, state: Option<&Path>) -> Result<(), String> {
    let folder = root.join(FOLDER.trim_start_matches('/'));
    let path = folder.join(NAME);
    let (old, mode) = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), 0o644),
        Err(error) => return Err(error.to_string()),
        Ok(status) if status.is_symlink() => {
            let target = fs::read_link(&path).map_err(|error| error.to_string())?;
            return match state {
                Some(state) if target == state => Ok(()),
                _ => Err(format!("it is a symbolic link to {}", target.display())),
            };
        }
        Ok(status) if !status.is_file() || status.len() > LONGEST => {
            return Err(format!("it is no regular file of at most {LONGEST} bytes"));
        }
        Ok(status) => {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            (text, status.permissions().mode() & 0o777)
        }
    };
    let new = block::with(&old, lines);
    if new == old {
        return Ok(());
    }
    replace(&folder, &new, mode).or_else(|error| in_place(&path, &new).map_err(|_| error))
}

fn replace(folder: &Path, text: &str, mode: u32) -> Result<(), String> {
    let users = [Uid::from_raw(0), Uid::effective()];
    let folder = Folder::open(folder, &users).map_err(|refused| refused.to_string())?;
    folder.write(NAME, text.as_bytes(), mode).map_err(describe)
}

/// For a file that is mounted on its own: nothing can take its name.
fn in_place(path: &Path, text: &str) -> Result<(), Errno> {
    let open =
        fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let written = open.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    });
    written.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Etc(tempfile::TempDir);

    impl Etc {
        fn new() -> Etc {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("etc")).unwrap();
            Etc(root)
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("etc/nccl.conf")
        }

        fn write(&self, lines: &str) -> Result<(), String> {
            write(self.0.path(), lines, Some(Path::new("/run/rdma-init/nccl.conf")))
        }
    }

    #[test]
    fn it_is_made_and_replaced_and_keeps_what_it_had() {
        let etc = Etc::new();
        etc.write("").unwrap();
        assert!(!etc.path().exists());
        etc.write("NCCL_IB_TC=1\n").unwrap();
        let first = fs::read_to_string(etc.path()).unwrap();
        assert!(first.contains("\nNCCL_IB_TC=1\n"), "{first}");
        fs::write(etc.path(), format!("NCCL_DEBUG=INFO\n{first}")).unwrap();
        fs::set_permissions(etc.path(), PermissionsExt::from_mode(0o640)).unwrap();
        etc.write("NCCL_DEBUG=WARN\nNCCL_IB_TC=2\n").unwrap();
        let second = fs::read_to_string(etc.path()).unwrap();
        assert!(second.starts_with("NCCL_DEBUG=INFO\n#") && second.contains("\nNCCL_IB_TC=2\n"), "{second}");
        assert!(!second.contains("WARN") && !second.contains("NCCL_IB_TC=1"), "{second}");
        assert_eq!(fs::metadata(etc.path()).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_is_left_alone() {
        let etc = Etc::new();
        let other = etc.0.path().join("other");
        fs::write(&other, "").unwrap();
        symlink(&other, etc.path()).unwrap();
        assert!(etc.write("NCCL_IB_TC=1\n").unwrap_err().contains("symbolic link"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
        fs::remove_file(etc.path()).unwrap();
        symlink("/run/rdma-init/nccl.conf", etc.path()).unwrap();
        assert_eq!(etc.write("NCCL_IB_TC=1\n"), Ok(()));
    }

    #[test]
    fn what_is_no_text_of_a_user_is_left_alone() {
        let etc = Etc::new();
        fs::write(etc.path(), b"NCCL_NET=\xff\n").unwrap();
        assert!(etc.write("NCCL_IB_TC=1\n").is_err());
        assert_eq!(fs::read(etc.path()).unwrap(), b"NCCL_NET=\xff\n");
        fs::remove_file(etc.path()).unwrap();
        nix::unistd::mkfifo(&etc.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(etc.write("NCCL_IB_TC=1\n").unwrap_err().contains("no regular file"));
    }
}
