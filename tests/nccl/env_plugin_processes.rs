//! Tests the env plugin of rdma-init in many processes, in processes of other users, in forked ones, and
//! under tools that check memory.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::thread;

use rdma_init::env_plugin::{DECISION_FILE, LIBRARY_FILE};

use super::case::Ask;
use super::driver::Nccl;
use super::env_plugin_node::{
    ANSWERS, Node, OURS, answers, asking, client, client_at, mode, own_library, shown,
};
use super::libibverbs::in_image_of_driver;
use crate::support::executable::copy_executable;
use crate::support::nccl::driver;

#[test]
fn threads_children_and_many_processes_get_the_same_answers() {
    let node = Node::new();
    let started: Vec<Child> = (0..64).map(|_| client(&node, &[], 100).spawn().unwrap()).collect();
    for child in started {
        assert_eq!(answers(child), ANSWERS);
    }
}

#[test]
fn the_newest_nccl_gets_the_same_in_sixty_four_processes_at_once() {
    let Some(library) = asking().last() else { return };
    let node = Node::new();
    let case = node.case(&in_image_of_driver(&[], &[]), &[], &[]);
    // Each process has loaded NCCL and is waiting for a case before the first one gets it.
    let mut processes: Vec<Nccl> = (0..64).map(|_| Nccl::start(&library)).collect();
    thread::scope(|scope| {
        for process in &mut processes {
            scope.spawn(|| {
                let outcome = process.run(std::slice::from_ref(&case)).remove(0);
                assert_eq!(shown(&outcome), OURS, "{}", outcome.log);
            });
        }
    });
}

#[test]
fn a_forked_process_of_the_real_nccl_gets_the_same() {
    let node = Node::new();
    let mut case = node.case(&in_image_of_driver(&[], &[]), &[], &[("NCCL_IB_HCA", "=mlx5_7")]);
    // The first question loads the plugin.
    let first = Ask::Param { name: "NCCL_IB_GID_INDEX".to_owned(), default: -1 };
    case.asks.splice(0..0, [first, Ask::Fork]);
    for library in asking() {
        let outcome = Nccl::start(&library).run(std::slice::from_ref(&case)).remove(0);
        assert_eq!(outcome.params, [3], "NCCL {}: {}", library.version, outcome.log);
        assert_eq!(shown(&outcome), OURS, "NCCL {}: {}", library.version, outcome.log);
    }
}

#[test]
fn the_real_nccl_of_another_user_believes_root_alone() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let node = Node::new();
    mode(node.place.path(), 0o755);
    let case = |environment: &[(&str, &str)]| {
        let mut case = node.case(&in_image_of_driver(&[], &[]), &[], environment);
        case.host.user = Some(12345);
        case
    };
    let (decided, own) = (case(&[]), case(&[("NCCL_IB_HCA", "=mlx5_2")]));
    for library in asking() {
        let mut process = Nccl::start(&library);
        let mut run = |case| shown(&process.run(std::slice::from_ref(case)).remove(0));
        assert_eq!(run(&decided), OURS, "NCCL {}", library.version);
        assert_eq!(run(&own), "mlx5_2:1/RoCE eth0", "NCCL {}", library.version);
        // A third user owns the file, and could have written it.
        let owner = |user| std::os::unix::fs::chown(node.path(DECISION_FILE), Some(user), None).unwrap();
        owner(23456);
        let (found, both) = (run(&decided), "mlx5_1:1/RoCE+mlx5_2:1/RoCE ");
        assert!(found.starts_with(both), "NCCL {}: {found}", library.version);
        owner(0);
        // This user may not read the library.
        mode(&node.path(LIBRARY_FILE), 0o600);
        let found = run(&decided);
        assert!(found.starts_with(both), "NCCL {}: {found}", library.version);
        mode(&node.path(LIBRARY_FILE), 0o644);
        assert_eq!(run(&decided), OURS, "NCCL {}", library.version);
    }
}

#[test]
fn another_users_process_believes_root_alone() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let node = Node::new();
    mode(node.place.path(), 0o755);
    let other = 12345;
    // Not every user may enter the directory of the repository.
    let program = node.path("env-client");
    copy_executable(driver().join("env-client"), &program, "");
    let client = || {
        let mut command = client_at(program.clone(), &node, &[], 1);
        command.uid(other);
        command
    };
    let run = || answers(client().spawn().unwrap());
    assert_eq!(run(), ANSWERS);
    // The directory belongs to a third user.
    std::os::unix::fs::chown(node.place.path(), Some(23456), None).unwrap();
    std::os::unix::fs::chown(node.path(DECISION_FILE), Some(23456), None).unwrap();
    assert_eq!(run(), ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"]);
    // The directory belongs to the process's own user.
    std::os::unix::fs::chown(node.place.path(), Some(other), None).unwrap();
    assert_eq!(run(), ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"]);
    std::os::unix::fs::chown(node.path(DECISION_FILE), Some(other), None).unwrap();
    assert_eq!(run(), ANSWERS);
    // A process that may not read the library does not load it, and continues.
    mode(&node.path(LIBRARY_FILE), 0o600);
    let refused = client().output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    mode(&node.path(LIBRARY_FILE), 0o644);
    // This process may not read the decision.
    std::os::unix::fs::chown(node.place.path(), Some(0), Some(0)).unwrap();
    std::os::unix::fs::chown(node.path(DECISION_FILE), Some(0), Some(0)).unwrap();
    mode(&node.path(DECISION_FILE), 0o600);
    assert_eq!(run(), ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"]);
}

/// If the dynamic loader mapped missing pages, the kernel would kill the process (SIGBUS).
#[test]
fn a_library_that_has_lost_its_end_is_not_loaded() {
    let node = Node::new();
    let whole = own_library();
    let lengths = (0..whole.len()).step_by(512).chain(whole.len() - 3..whole.len());
    for length in lengths {
        fs::write(node.path(LIBRARY_FILE), &whole[..length]).unwrap();
        let refused = client(&node, &[], 1).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(3), "{length} bytes: {} {said}", refused.status);
    }
    fs::write(node.path(LIBRARY_FILE), whole).unwrap();
    assert_eq!(answers(client(&node, &[], 1).spawn().unwrap()), ANSWERS);
}

/// sysfs may show the interfaces of a different network namespace.
#[test]
fn an_interface_of_the_processs_own_namespace_is_there() {
    let node = Node::new();
    fs::create_dir_all(node.path("sys/class/net/bond0")).unwrap();
    node.has_interfaces(&["lo", "eth0", "net1"]);
    let of = |value: &str| answers(client(&node, &[], 1).env("NCCL_SOCKET_IFNAME", value).spawn().unwrap());
    assert_eq!(of("net1")[1], "NCCL_SOCKET_IFNAME=net1");
    assert_eq!(of("bond0")[1], "NCCL_SOCKET_IFNAME==eth0");
    fs::remove_dir_all(node.path("proc")).unwrap();
    assert_eq!(of("bond0")[1], "NCCL_SOCKET_IFNAME=bond0", "without a list, nothing is foreign");
}

#[test]
fn valgrind_finds_nothing_in_ten_thousand_answers() {
    let through = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full"];
    let node = Node::new();
    assert_eq!(answers(client(&node, &through, 10_000).spawn().unwrap()), ANSWERS);
}
