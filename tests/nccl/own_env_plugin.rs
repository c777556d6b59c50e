//! Tests the env plugin of rdma-init in the real NCCL: which value counts in a process with this
//! environment and this `/etc/nccl.conf`.

use std::fs;
use std::os::unix::fs::symlink;

use rdma_init::env_plugin::{DECISION_FILE, LIBRARY_FILE};
use rdma_init::libraries::nccl::env_plugin::VARIABLE;

use super::driver::Nccl;
use super::env_plugin_node::{DECIDED, Node, OURS, asking, cut, marker, mode, own_library, shown};
use super::libibverbs::in_image_of_driver;
use super::model::observed;

#[test]
fn each_process_gets_its_own_nodes_values_and_keeps_what_a_person_set() {
    let node = Node::new();
    let copied = [("NCCL_IB_HCA", "=mlx5_2"), ("NCCL_SOCKET_IFNAME", "=bond0")];
    let [foreign, own] = ["ffff", "0a1b"].map(|node| marker(node, &copied));
    let marked = ("NCCL_RDMA_INIT", foreign.as_str());
    type Case<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str);
    let cases: [Case; 7] = [
        ("no environment", vec![], OURS),
        ("its own values", DECIDED.to_vec(), OURS),
        ("a person's value", vec![("NCCL_IB_HCA", "=mlx5_2")], "mlx5_2:1/RoCE eth0"),
        ("a marked copy", [&copied[..], &[marked]].concat(), OURS),
        ("a value beside a marked copy", vec![marked, ("NCCL_IB_HCA", "mlx5_2")], "mlx5_2:1/RoCE eth0"),
        (
            "values that this node itself filled in",
            vec![("NCCL_RDMA_INIT", own.as_str()), ("NCCL_IB_HCA", "=mlx5_2")],
            "mlx5_2:1/RoCE eth0",
        ),
        (
            "copies that lost their marker",
            vec![("NCCL_IB_HCA", "=mlx5_7,mlx5_8"), ("NCCL_SOCKET_IFNAME", "=bond0")],
            OURS,
        ),
    ];
    for library in asking() {
        for (what, environment, wanted) in &cases {
            let (found, log) = node.run(&library, &[], environment);
            assert_eq!(found, *wanted, "NCCL {}, {what}: {log}", library.version);
            let said = log.matches("rdma-init: NCCL_IB_HCA==mlx5_7,mlx5_8 names only devices").count();
            // Version 1 of the interface has no log.
            let speaks = log.contains("Using rdma-init (v2)");
            assert_eq!(said, usize::from(speaks && what.contains("lost")), "{}: {log}", library.version);
            assert!(!log.contains("NCCL_RDMA_INIT"), "NCCL {} speaks of the marker: {log}", library.version);
        }
    }
}

/// A marker and the copies that it lists reach a process in the same way: either at its start (Ray, `mpirun
/// -x`), or in its code (vLLM).
#[test]
fn what_a_person_sets_in_a_process_is_no_copy_even_if_it_is_equal() {
    let node = Node::new();
    let hca = ("NCCL_IB_HCA", "=mlx5_2");
    let foreign = marker("ffff", &[hca]);
    let marked = ("NCCL_RDMA_INIT", foreign.as_str());
    let of_person = "mlx5_2:1/RoCE eth0";
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case; 4] = [
        ("both came with the start", &[hca, marked], OURS),
        ("a person has set the value in the process", &[marked], of_person),
        ("the value was there before the copies", &[hca], of_person),
        ("both were set in the process", &[], OURS),
    ];
    let case = node.case(&in_image_of_driver(&[], &[]), &[], &[hca, marked]);
    for library in asking() {
        for (what, started_with, wanted) in cases {
            let outcome = Nccl::start_in(started_with, &library).run(std::slice::from_ref(&case)).remove(0);
            assert_eq!(shown(&outcome), wanted, "NCCL {}, {what}: {}", library.version, outcome.log);
        }
    }
}

/// This is how a user can let NCCL decide.
#[test]
fn a_variable_that_is_removed_comes_back_and_an_empty_one_is_left_to_nccl() {
    let node = Node::new();
    let facts = in_image_of_driver(&[], &[]);
    let silent = (VARIABLE, "none");
    for library in asking() {
        let run = |conf: &[(&str, &str)], environment: &[(&str, &str)]| {
            let case = node.case(&facts, conf, environment);
            let found = observed(&Nccl::start(&library).run(&[case]).remove(0));
            let ports: Vec<String> =
                found.ports.iter().map(|(port, slot)| format!("{port} {slot}")).collect();
            (ports, found.bootstrap)
        };
        let version = &library.version;
        let (ports, bootstrap) = run(&[], &[silent]);
        assert_eq!(ports.len(), 2, "NCCL {version} by itself: {ports:?}");
        let decided = run(&DECIDED, &[]);
        assert_eq!(decided.0, ["mlx5_1:1/RoCE 3"], "NCCL {version}");
        // Without the plugin, the conf file still has the values.
        assert_eq!(run(&DECIDED, &[silent]), decided, "NCCL {version}");
        let empty: Vec<(&str, &str)> = DECIDED.iter().map(|(name, _)| (*name, "")).collect();
        for with in [&[][..], &[silent]] {
            let environment = [&empty[..], with].concat();
            let left_to_nccl = (ports.clone(), bootstrap.clone());
            assert_eq!(run(&DECIDED, &environment), left_to_nccl, "NCCL {version}");
        }
    }
}

#[test]
fn a_user_of_this_node_and_new_names_of_its_devices_count() {
    for library in asking() {
        let node = Node::new();
        // Names that the user set are never judged.
        node.decide(&DECIDED[1..], "user NCCL_IB_HCA==mlx5_2\n");
        let run = |environment| node.run(&library, &[], environment).0;
        assert_eq!(run(&[]), "mlx5_2:1/RoCE eth0", "{}", library.version);
        assert_eq!(run(&[("NCCL_IB_HCA", "=mlx5_7")]), " eth0", "{}", library.version);
        // The HCA of the decision is now called mlx5_2; conf files and processes still have its old name.
        let node = Node::new();
        fs::remove_dir_all(node.path("sys/class/infiniband")).unwrap();
        node.add_hca("mlx5_2", "b859:0001", "0000:17:00.0");
        let own = marker("0a1b", &DECIDED);
        let filled = [&DECIDED[..], &[("NCCL_RDMA_INIT", own.as_str())]].concat();
        for environment in [&filled[..], &[]] {
            let (found, log) = node.run(&library, &filled, environment);
            assert_eq!(found, "mlx5_2:1/RoCE eth0", "{}: {log}", library.version);
            assert!(!log.contains("names only devices"), "{}: {log}", library.version);
        }
    }
}

/// A process that has the variable ignores the line in the conf file.
#[test]
fn what_a_conf_file_of_this_node_has_counts_in_place_of_a_copy() {
    let hca = ("NCCL_IB_HCA", "=mlx5_2");
    let node = Node::new();
    node.decide(&DECIDED[1..], "conf NCCL_IB_HCA==mlx5_2\n");
    let copied = ("NCCL_IB_HCA", "=mlx5_1");
    let marker = marker("ffff", &[copied]);
    for library in asking() {
        let run = |environment: &[(&str, &str)]| node.run(&library, &[hca], environment).0;
        let version = &library.version;
        assert_eq!(run(&[copied, ("NCCL_RDMA_INIT", marker.as_str())]), "mlx5_2:1/RoCE eth0", "{version}");
        assert_eq!(run(&[copied]), "mlx5_1:1/RoCE eth0", "a person's own, {version}");
        assert_eq!(run(&[]), "mlx5_2:1/RoCE eth0", "{version}");
        // The plugin uses it only in place of copies.
        let without = node.run(&library, &[], &[]).0;
        assert_eq!(without, "mlx5_1:1/RoCE+mlx5_2:1/RoCE eth0", "{version}");
    }
}

#[test]
fn a_port_that_has_come_up_since_the_start_is_taken() {
    for library in asking() {
        let node = Node::new();
        node.decide(&DECIDED, "late mlx5_2 1 mlx5_2 b859:0002 0000:27:00.0\n");
        let state = |text: &str| {
            let port = node.path("sys/class/infiniband/mlx5_2/ports/1");
            fs::create_dir_all(&port).unwrap();
            fs::write(port.join("state"), text).unwrap();
        };
        let found = |environment| node.run(&library, &[], environment).0;
        assert_eq!(found(&[]), OURS, "{}, without a state", library.version);
        state("1: DOWN\n");
        assert_eq!(found(&[]), OURS, "{}", library.version);
        state("4: ACTIVE\n");
        let both = "mlx5_1:1/RoCE+mlx5_2:1/RoCE eth0";
        assert_eq!(found(&[]), both, "{}", library.version);
        let own = marker("0a1b", &DECIDED);
        let filled = [&DECIDED[..], &[("NCCL_RDMA_INIT", own.as_str())]].concat();
        assert_eq!(found(&filled), both, "{}", library.version);
        assert_eq!(found(&DECIDED), OURS, "a person has set the same list, {}", library.version);
        assert_eq!(found(&[("NCCL_IB_HCA", "mlx5_2")]), "mlx5_2:1/RoCE eth0", "{}", library.version);
    }
}

/// If NCCL's own search finds the right GID, a start fills in no index.
#[test]
fn a_gid_table_that_changes_after_the_start_is_read_at_the_moment_of_use() {
    let node = Node::new();
    node.decide(&DECIDED[..2], "");
    let at_start = in_image_of_driver(&[], &[]);
    let mut later = at_start.clone();
    for gids in later.rdma.iter_mut().flat_map(|hca| &mut hca.ports).map(|port| &mut port.gids) {
        gids.slots.iter_mut().for_each(|slot| slot.index += 4);
    }
    let copied = [("NCCL_IB_HCA", "=mlx5_2"), ("NCCL_IB_GID_INDEX", "3")];
    let marker = marker("ffff", &copied);
    let environment = [&copied[..], &[("NCCL_RDMA_INIT", marker.as_str())]].concat();
    for library in asking() {
        let ports = |facts| node.ports(&library, facts, &environment);
        assert_eq!(ports(&at_start), ["mlx5_1:1/RoCE 3"], "{}", library.version);
        assert_eq!(ports(&later), ["mlx5_1:1/RoCE 7"], "{}", library.version);
    }
}

#[test]
fn without_a_decision_or_a_library_nccl_decides_as_ever() {
    type Spoil = (&'static str, fn(&Node));
    let spoil: [Spoil; 11] = [
        ("no decision", |node| fs::remove_file(node.path(DECISION_FILE)).unwrap()),
        ("half a decision", |node| cut(&node.path(DECISION_FILE))),
        ("a decision of another machine, on a file system of both", |node| {
            let text = fs::read_to_string(node.path(DECISION_FILE)).unwrap();
            fs::write(node.path(DECISION_FILE), text.replace("node 0a1b\n", "node 0a1b\nboot other\n"))
                .unwrap();
        }),
        ("a decision that others may write", |node| mode(&node.path(DECISION_FILE), 0o666)),
        ("a folder that others may write to", |node| mode(node.place.path(), 0o777)),
        ("a link to a decision", |node| {
            fs::rename(node.path(DECISION_FILE), node.path("other")).unwrap();
            symlink("other", node.path(DECISION_FILE)).unwrap();
        }),
        ("no library", |node| fs::remove_file(node.path(LIBRARY_FILE)).unwrap()),
        ("a library of another architecture", |node| {
            let mut bytes = own_library();
            // The machine field in the ELF header: S390.
            bytes[18..20].copy_from_slice(&22_u16.to_le_bytes());
            fs::write(node.path(LIBRARY_FILE), bytes).unwrap();
        }),
        ("half a library", |node| cut(&node.path(LIBRARY_FILE))),
        ("a library that has lost a byte", |node| {
            let whole = own_library();
            fs::write(node.path(LIBRARY_FILE), &whole[..whole.len() - 1]).unwrap();
        }),
        ("an empty library", |node| fs::write(node.path(LIBRARY_FILE), "").unwrap()),
    ];
    for library in asking() {
        for (what, spoil) in spoil {
            let node = Node::new();
            spoil(&node);
            let (found, log) = node.run(&library, &[], &[("NCCL_IB_HCA", "=mlx5_2")]);
            assert_eq!(found, "mlx5_2:1/RoCE eth0", "NCCL {}, {what}: {log}", library.version);
        }
    }
}
