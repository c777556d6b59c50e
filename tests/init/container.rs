//! A container on a host with one InfiniBand HCA. Its root is a directory of this machine, so that tests
//! can examine what a start leaves there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::support::executable::{copy_executable, copy_of_binary};
use crate::support::running::{from_scratch, without_watcher_in_qemu};

/// What all containers see: the program, a busybox, and a host with one InfiniBand HCA.
static HOST: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::create_dir(folder.path().join("opt")).unwrap();
    copy_of_binary(&folder.path().join("opt"));
    copy_executable("/bin/busybox", &folder.path().join("opt/busybox"), "");
    symlink("busybox", folder.path().join("opt/sh")).unwrap();
    for (path, text) in [
        ("class/dmi/id/sys_vendor", "Example Cloud\n"),
        ("class/infiniband/mlx5_0/node_type", "1: CA\n"),
        ("class/infiniband/mlx5_0/fw_ver", "28.39.1002\n"),
        ("class/infiniband/mlx5_0/node_guid", "b859:9f03:00aa:0001\n"),
        ("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp\n"),
        ("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
        ("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"),
        ("class/infiniband/mlx5_0/ports/1/lid", "0x5\n"),
        ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff\n"),
        ("class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00aa:0001\n"),
        ("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "7\n"),
        ("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "7\n"),
        ("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
        ("class/net/eth0/mtu", "1500\n"),
    ] {
        write(&format!("sys/{path}"), text);
    }
    fs::create_dir_all(folder.path().join("dev/infiniband")).unwrap();
    for (node, minor) in [("null", "3"), ("urandom", "9"), ("infiniband/uverbs0", "3")] {
        let mut mknod = Command::new("mknod");
        let made = mknod.arg(folder.path().join("dev").join(node)).args(["c", "1", minor]).status();
        assert!(made.unwrap().success());
        fs::set_permissions(folder.path().join("dev").join(node), PermissionsExt::from_mode(0o666)).unwrap();
    }
    folder
});

/// Files that a container has before the start; the start amends all of them.
pub const FILES: [(&str, &str); 6] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("etc/nccl.conf", "NCCL_DEBUG=WARN\n"),
    ("etc/environment", "LANG=C\n"),
    ("etc/profile.d/others.sh", "true\n"),
    ("etc/ssh/sshd_config", "Port 22\n"),
    ("root/.ssh/environment", "LANG=C\n"),
];

/// Makes the root of a container.
pub fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for folder in ["opt", "sys", "dev", "proc", "run", "tmp"] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    for (path, text) in FILES {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Returns the program as all containers see it.
pub fn program() -> PathBuf {
    HOST.path().join("opt/rdma-init")
}

/// Makes the command that runs the program with these arguments in a container with this root, either in
/// the current mount namespace or in a new one. `chroot` is the command that enters the root.
pub fn command(root: &Path, is_own: bool, chroot: &str, arguments: &[&str]) -> Command {
    let mounts = format!(
        "for place in opt sys dev; do mount --bind {}/$place {root}/$place; done
         mount -t proc proc {root}/proc; exec {chroot} {root} /opt/rdma-init \"$@\"",
        HOST.path().display(),
        root = root.display(),
    );
    let mut command = Command::new(if is_own { "/bin/sh" } else { "/usr/bin/unshare" });
    command.args(if is_own { &[][..] } else { &["--mount", "/bin/sh"] });
    command.args(["-ec", &mounts, "sh"]).args(arguments).env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/opt").env("HOME", "/root");
    without_watcher_in_qemu(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    from_scratch(&mut command);
    command
}
