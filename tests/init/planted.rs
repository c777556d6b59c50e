//! Tests the known places of the state when another user has put something there before the
//! start.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use super::pod::{Pod, beside};

const NCCL_CONF: &str = "NCCL_NET_PLUGIN=/tmp/evil.so\n";

/// All users can write to an emptyDir.
#[test]
fn foreign_files_in_the_state_directory_are_replaced() {
    let pod = Pod::sharing(&["/run/rdma-init"]);
    pod.make("/run/rdma-init", 0o777);
    let shared = pod.shared("/run/rdma-init");
    beside("cat >$0", &shared.join("nccl.conf"), NCCL_CONF.as_bytes());
    beside("mkdir $0; touch $0/file", &shared.join("env.sh"), b"");
    symlink("/etc/passwd", shared.join("facts.json")).unwrap();
    let victim = pod.start();
    for (name, wanted) in [("env.sh", "export NCCL_IB_TC=106"), ("nccl.conf", "NCCL_IB_TC=106")] {
        let path = victim.file("/run/rdma-init").join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(wanted) && !text.contains("evil"), "{name}: {text}");
        let status = fs::symlink_metadata(&path).unwrap();
        assert!(status.is_file() && status.mode() & 0o7777 == 0o644, "{name}");
    }
    assert!(fs::symlink_metadata(shared.join("facts.json")).unwrap().is_file());
    assert_eq!(fs::metadata(&shared).unwrap().mode() & 0o7777, 0o755);
}

/// The directory belongs to another user, and contains files that a shell or NCCL may have been configured
/// to read.
#[test]
fn a_folder_that_is_not_ours_is_an_error_and_not_used() {
    for (mount, mode, user) in [("/run", 0o1777, 0), ("/run/rdma-init", 0o777, 1234)] {
        let pod = Pod::sharing(&[mount]).user(user);
        pod.make(mount, mode);
        let folder = match mount {
            "/run" => pod.shared(mount).join("rdma-init"),
            _ => pod.shared(mount),
        };
        beside("mkdir -p $0; echo 'touch /tmp/evil' >$0/env.sh", &folder, b"");
        if mount == "/run" {
            for path in [folder.join("env.sh"), folder.clone()] {
                std::os::unix::fs::chown(path, Some(4321), Some(4321)).unwrap();
            }
        }
        let mut victim = pod.start();
        victim.init.wait_for_error("error: /run/rdma-init holds files that this start did not write, and another user or container may have written them (env.sh)");
        assert_eq!(fs::read_to_string(folder.join("env.sh")).unwrap(), "touch /tmp/evil\n");
        assert!(!folder.join("plan.json").exists());
        // The program's own state is in another place.
        victim.exec(user).expect(&["NCCL_IB_TC=106", "NCCL_TOPO_FILE=/topology.xml"]);
        let other = victim.file(&format!("/tmp/rdma-init-{user}/env.sh"));
        assert!(fs::read_to_string(other).unwrap().contains("NCCL_IB_TC=106"));
    }
}

/// Files of the user with other names stay in the directory.
#[test]
fn what_has_other_names_stays() {
    let pod = Pod::sharing(&["/run/rdma-init"]);
    pod.make("/run/rdma-init", 0o755);
    let shared = pod.shared("/run/rdma-init");
    fs::write(shared.join("mine"), "").unwrap();
    pod.start().exec(1234).expect_said(&["NCCL_TOPO_FILE"]);
    assert!(shared.join("mine").exists() && shared.join("env.sh").exists());
}
