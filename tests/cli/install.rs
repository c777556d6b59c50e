//! Tests `rdma-init install FOLDER`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::run::{Ran, program, rdma_init, run};
use crate::support::executable::copy_executable;
use crate::support::{binary, skip};

fn install(folder: &Path) -> Ran {
    run(rdma_init(["install".as_ref(), folder.as_os_str()]))
}

#[test]
fn the_copy_is_whole_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rdma-init");
    let version = env!("CARGO_PKG_VERSION");
    let ran = install(folder.path()).expect_code(0);
    assert_eq!(ran.text(), format!("{} is now rdma-init {version}\n", path.display()));
    assert_eq!(ran.stderr, "");
    assert!(fs::read(&path).unwrap() == fs::read(binary()).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    let ran = install(folder.path()).expect_code(0);
    assert_eq!(ran.text(), format!("{} is already rdma-init {version}\n", path.display()));
    run(program(&path, ["--", "sh", "-c", "exit 7"])).expect_code(7);
    // The copy can copy itself, and can replace another version.
    run(program(&path, ["install".as_ref(), folder.path().as_os_str()])).expect_code(0);
    fs::write(&path, "an earlier version").unwrap();
    assert!(install(folder.path()).expect_code(0).text().contains("is now"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_error_says_what_is_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    install(&folder.path().join("no"))
        .expect_error(&["there is no directory /", "create it, or mount a volume there"]);
    install(&binary()).expect_error(&["rdma-init is not a directory"]);
    install(Path::new("/proc")).expect_error(&["cannot write /proc/rdma-init"]);
    fs::create_dir(folder.path().join("rdma-init")).unwrap();
    install(folder.path()).expect_error(&["cannot write /", "/rdma-init: a directory has that name"]);
    run(rdma_init(["install"]))
        .expect_error(&["install: the following required arguments were not provided: <DIR>"]);
}

#[test]
fn a_failed_installation_leaves_nothing_behind() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can mount a file system without room");
    }
    let folder = tempfile::tempdir().unwrap();
    // The mount namespace provides three places: one that is too small, one that is read-only, and one that
    // forbids executing programs.
    let script = "mount -t tmpfs -o size=64k none $0 && $1 install $0; echo $? $(ls -A $0)
        mount -o remount,ro $0 && $1 install $0; echo $?
        mount -o remount,rw,noexec,size=1g $0 && $1 install $0; echo $?";
    let mut command = program("/usr/bin/unshare", ["--mount", "sh", "-c", script]);
    command.arg(folder.path()).arg(binary());
    let ran = run(command).expect_code(0);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("125", "125", "0"), "{ran:#?}");
    for part in [
        "rdma-init: the file system has no space for its ",
        "bytes (ENOSPC).",
        "rdma-init: the file system is read-only (EROFS).",
        "is mounted noexec here",
    ] {
        assert!(ran.stderr.contains(part), "no {part:?} in {ran:#?}");
    }
}

#[test]
fn any_user_who_may_write_there_can() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can become another user");
    }
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    // The program is in a place where another user may start it, as in an image.
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let image = folder.path().join("image");
    copy_executable(binary(), &image, "");
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let install = |mode: u32| {
        fs::set_permissions(&volume, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = program(&image, ["install".as_ref(), volume.as_os_str()]);
        command.uid(12345).gid(12345);
        run(command)
    };
    install(0o755).expect_error(&["the user 12345 may not write to the directory (EACCES)"]);
    // The kubelet creates an emptyDir with this mode.
    install(0o777).expect_code(0);
    assert_eq!(fs::metadata(volume.join("rdma-init")).unwrap().permissions().mode() & 0o7777, 0o755);
}
