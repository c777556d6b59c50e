//! A container whose GID tables change while its command runs: tests what `status`, and the self-test of a
//! process that entered, then report. The kernel's files are simulated, in separate namespaces.

use std::process::Command;

use serde_json::Value;

use super::run::{Ran, run};
use crate::support::process::{from_scratch, surroundings};
use crate::support::{binary, namespace};

/// Puts the GID of the container's address at an index, and empties the other entries.
const PUT: &str = r#"
    put() {
        port=/sys/class/infiniband/mlx5_0/ports/1
        for slot in 0 1 2 3 4 5 6 7; do echo :: >$port/gids/$slot; done
        echo 0000:0000:0000:0000:0000:ffff:ac10:0109 >$port/gids/$1
        echo 'RoCE v2' >$port/gid_attrs/types/$1
        echo eth1 >$port/gid_attrs/ndevs/$1
    }
"#;

/// One HCA with PCI device 0000:17:00.0 and the interface eth1, whose address is at GID index 3.
const HOST: &str = r#"
    ip link set lo up
    ip link add eth1 type veth peer name peer1
    for link in eth1 peer1; do ip link set $link addrgenmode none && ip link set $link up; done
    ip addr add 172.16.1.9/24 dev eth1
    mount -t tmpfs none /dev
    mkdir /dev/infiniband
    mknod -m 666 /dev/null c 1 3
    mknod -m 666 /dev/infiniband/uverbs0 c 1 3
    mount -t tmpfs none /sys/class
    device=/sys/class/made/0000:17:00.0
    mkdir -p $device /sys/class/made/mlx5_core /sys/class/net/eth1
    ln -s ../mlx5_core $device/driver
    ln -s ../../made/0000:17:00.0 /sys/class/net/eth1/device
    echo 9000 >/sys/class/net/eth1/mtu
    mkdir -p /sys/class/infiniband_verbs/uverbs0
    echo mlx5_0 >/sys/class/infiniband_verbs/uverbs0/ibdev
    hca=/sys/class/infiniband/mlx5_0 port=/sys/class/infiniband/mlx5_0/ports/1
    mkdir -p $port/gids $port/gid_attrs/types $port/gid_attrs/ndevs
    ln -s ../../made/0000:17:00.0 $hca/device
    echo '1: CA' >$hca/node_type
    echo '4: ACTIVE' >$port/state
    echo '5: LinkUp' >$port/phys_state
    echo '400 Gb/sec (4X NDR)' >$port/rate
    echo Ethernet >$port/link_layer
    echo 0x0 >$port/lid
    put 3
"#;

/// Starts a script as the command of a container on this host. The script finds the program's path in `$0`,
/// and can use `put`. Returns `None` if no namespaces can be created.
fn started(script: &str) -> Option<Ran> {
    // The image is this machine's, which may have other libraries.
    started_with(&[("NCCL_VERSION", "2.21.5"), ("RDMA_INIT_LIBRARIES", "nccl")], "", script)
}

/// Does the same as [`started`], with these variables and this script for the host.
fn started_with(environment: &[(&str, &str)], more: &str, script: &str) -> Option<Ran> {
    if !namespace::can_be_made() {
        return None;
    }
    let state = tempfile::tempdir().unwrap();
    let host = format!("{PUT}{HOST}{more}exec \"$0\" -- sh -c \"$1\" \"$0\"");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--", "sh", "-ec", &host]).arg(binary()).arg(format!("{PUT}{script}"));
    surroundings(&mut command);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(environment.iter().copied());
    command.env("RDMA_INIT_STATE_DIR", state.path().join("state"));
    from_scratch(&mut command);
    Some(run(command))
}

/// The message and the fix after GID index 3 has become empty and index 5 has the address.
const MESSAGE: &str = "The GIDs have changed since this container started: NCCL_IB_GID_INDEX=3, which rdma-init filled in then, is wrong now: on mlx5_0, index 3 is empty, so RoCE will not connect (index 5 is right).";
const FIX: &str = "Restart the container: rdma-init then decides again. To start a process before that, set NCCL_IB_GID_INDEX=5 for it; a running process keeps its values.";

#[test]
fn status_is_not_ready_once_what_was_filled_in_is_wrong() {
    let script = r#"
        echo filled $NCCL_IB_GID_INDEX
        status() { "$0" status "$@"; echo code $?; }
        status
        put 5
        status
        status --json
        # The table may come back.
        put 3
        status
    "#;
    let Some(ran) = started(script) else { return };
    let ran = ran.expect_code(0);
    let mut lines = ran.text().lines();
    let mut next = |what: &str| {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(what), "{what:?} is not {line:?} in {ran:#?}");
        line.to_owned()
    };
    next("filled 3");
    // This start is not an init, so the ports are not watched.
    for line in ["prepared ", "the command runs", "no watcher: rdma-init is not PID 1", "code 0", "prepared "]
    {
        next(line);
    }
    assert_eq!(next("not ready"), format!("not ready: {MESSAGE}"));
    assert_eq!(next("    fix"), format!("    fix: {FIX}"));
    next("code 1");
    let document: Value = serde_json::from_str(&next("{")).unwrap();
    assert_eq!(document["ready"], false, "{document}");
    assert_eq!(document["why"], MESSAGE);
    assert_eq!(document["fix"], FIX);
    for line in ["code 1", "prepared ", "the command runs", "no watcher: ", "code 0"] {
        next(line);
    }
}

/// Three processes run after the change: one with the start's variables, one that entered without them, and
/// one that entered with the correct index.
#[test]
fn the_self_test_tells_of_the_change_and_does_not_blame_the_user() {
    let script = r#"
        test_it() { "$0" self-test --json --only gid; }
        alone() { (unset NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_SOCKET_IFNAME; "$@"); }
        with_5() { NCCL_IB_GID_INDEX=5 test_it; }
        alone test_it
        put 5
        test_it
        alone test_it
        alone with_5
    "#;
    let Some(ran) = started(script) else { return };
    let reports: Vec<Value> =
        serde_json::Deserializer::from_str(ran.text()).into_iter().collect::<Result<_, _>>().unwrap();
    let gids: Vec<&Value> = reports.iter().map(|report| &report["checks"][0]).collect();
    assert_eq!(gids.len(), 4, "{ran:#?}");
    for (gid, is_sound) in gids.iter().zip([true, false, false, true]) {
        if is_sound {
            assert_eq!(gid["outcome"], "passed", "{ran:#?}");
        } else {
            assert_eq!(gid["outcome"], "failed", "{ran:#?}");
            assert_eq!((&gid["message"], &gid["fix"]), (&MESSAGE.into(), &FIX.into()), "{ran:#?}");
        }
    }
}

/// NCCL and NVSHMEM, of an unknown release, both have an index: there is one change, and one finding for
/// both.
#[test]
fn status_and_the_self_test_tell_of_a_change_for_another_library() {
    let stranger = r#"
        another() {
            port=/sys/class/infiniband/mlx5_0/ports/1
            echo 0000:0000:0000:0000:0000:ffff:c0a8:0109 >$port/gids/1
            echo 'RoCE v2' >$port/gid_attrs/types/1
            echo eth1 >$port/gid_attrs/ndevs/1
        }
        another
    "#;
    let script = r#"
        echo filled $NVSHMEM_IB_GID_INDEX, $NCCL_IB_GID_INDEX
        "$0" status | sed -n 2p
        put 5
        "$0" status | tail -n +2
        "$0" self-test --only gid | tail -n 2
    "#;
    let environment = [
        ("NCCL_VERSION", "2.27.7"),
        ("RDMA_INIT_LIBRARIES", "nvshmem"),
        ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "0"),
    ];
    let Some(ran) = started_with(&environment, stranger, script) else { return };
    let changed = "The GIDs have changed since this container started: NCCL_IB_GID_INDEX=3 and NVSHMEM_IB_GID_INDEX=3, which rdma-init filled in then, are wrong now: on mlx5_0, index 3 is empty, so RoCE will not connect (index 5 is right); NVSHMEM takes GID index 3 of mlx5_0:1, which is not a GID of this container.";
    let fix = FIX.replace("=5", "=5 and NVSHMEM_IB_GID_INDEX=5");
    let expected = format!(
        "filled 3, 3\nthe command runs\nnot ready: {changed}\n    fix: {fix}\n  FAILED: gid: {changed}\n      fix: {fix}\n"
    );
    assert_eq!(ran.text(), expected, "{ran:#?}");
}
