//! A machine loses its power soon after the first start of a container. The lines that the image has in its files must
//! be there after that, whatever the disk has of the start.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::container::{self, FILES};
use crate::support::skip;

/// Mounts the disk, an image of a file system, at `disk`, and has a container whose lower layer is `lower` start and end
/// on it. Then copies the image: the copy has what a disk has from which the power is taken. The kernel writes what it
/// keeps in memory only later, but its journal by now, as another file was flushed.
const LOSES_POWER: &str = "
    mount -o loop image disk
    mkdir disk/upper disk/work
    mount -t overlay -o lowerdir=lower,upperdir=disk/upper,workdir=disk/work overlay root
    \"$@\"
    echo >disk/other
    sync disk/other
    cp --sparse=always image after
    mkdir again
    mount -o loop,\"$AGAIN\" after again
    cp -a again/upper/. found";

/// Makes a file system of this kind and runs all of that.
fn lose_power(folder: &Path, kind: &str, options: &str) {
    for name in ["disk", "root", "found"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    // XFS needs 300 MB. The image is sparse.
    fs::File::create_new(folder.join("image")).unwrap().set_len(400 << 20).unwrap();
    let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(folder.join("image")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let start = container::command(
        &folder.join("root"),
        true,
        "chroot",
        &["--set", "T_X=1", "--", "/opt/sh", "-c", ":"],
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--pid", "--fork", "/bin/sh", "-exc", LOSES_POWER, "sh"]);
    shell.arg(start.get_program()).args(start.get_args());
    shell.env_clear().envs(start.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("RDMA_INIT_PROPAGATE", "profile,environment,ssh").env("AGAIN", options).current_dir(folder);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
}

fn loses_no_line(kind: &str, options: &str) {
    if !Path::new("/dev/loop-control").exists() {
        skip("this machine has no loop devices");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lower = container::root();
    std::os::unix::fs::symlink(lower.path(), folder.path().join("lower")).unwrap();
    lose_power(folder.path(), kind, options);
    let mut amended = Vec::new();
    for (path, text) in FILES {
        if let Ok(found) = fs::read_to_string(folder.path().join("found").join(path)) {
            assert!(found.starts_with(text) && found.len() > text.len(), "{kind}: {path}: {found:?}");
            amended.push(path);
        }
    }
    let wanted = ["etc/nccl.conf", "etc/environment", "root/.ssh/environment"];
    assert!(wanted.iter().all(|path| amended.contains(path)), "{kind}: {amended:?}");
}

#[test]
fn ext4_loses_no_line_of_the_image() {
    loses_no_line("ext4", "rw");
}

/// Two file systems with the same UUID are not mounted at once without an option.
#[test]
fn xfs_loses_no_line_of_the_image() {
    loses_no_line("xfs", "nouuid");
}
