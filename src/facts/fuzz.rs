//! Entry points for the fuzzers; see [`crate::fuzz`].

mod tree;

use std::collections::BTreeSet;
use std::ffi::CString;

use nix::errno::Errno;

use self::tree::{Changed, Tree};
use super::document::Document;
use super::environment::Environment;
use super::launchers::{self, Seen};
use super::port_counters::Counters;
use super::rdma::Looked;
use super::{
    Facts, Reader, coherent, counters, data_direct, dmi, events, gpu, home, hostlist, imex,
    launchers::MOST_NODES, net, port_errors, process, ray_start, rdma, rdma_statistics, resent, rtnetlink,
    traffic, vpd,
};

/// Fuzzes the sysfs files of an RDMA host and its GPUs. Reads only what the changed files belong to: the rest is the
/// same for all inputs.
pub(crate) fn sysfs(data: &[u8]) {
    thread_local! { static HOST: Tree = Tree::new(tree::SYSFS); }
    let read = |reader: &Reader, changed: &Changed| {
        let is_of_pci = changed.any(&["sys/devices/pci", "sys/bus/pci"]);
        let mut facts = Facts::default();
        if is_of_pci || changed.any(&["proc/dr", "proc/devices", "dev/nv", "dev/kfd", "sys/class/kfd"]) {
            facts.gpu = gpu::read(reader, true);
            facts.imex = imex::read(reader);
        }
        if is_of_pci || changed.any(&["proc/driver/nvidia/gpus", "sys/devices/system"]) {
            facts.memory = coherent::read(reader, true);
            facts.data_direct = data_direct::read(reader);
        }
        if is_of_pci || changed.any(&["IB/", "sys/class/infiniband", "dev/infiniband"]) {
            facts.rdma = rdma::read(reader, &Looked::for_gids(&net::Net::default(), Some(3)));
            vpd::read(reader, &facts.gpu, &mut facts.rdma);
        }
        if changed.any(&["IB/ports"]) {
            for (hca, port) in traffic::ports(reader) {
                let looked = Counters::new(reader);
                let of_port = looked.of(&hca, port);
                traffic::read(&of_port);
                port_errors::read(&of_port);
                resent::read(&of_port);
                counters::read(&of_port);
            }
        }
        if changed.any(&["sys/class/dmi"]) {
            facts.dmi = dmi::read(reader);
        }
        facts
    };
    HOST.with(|host| {
        let (facts, unreadable) = host.with(data, read);
        replays(&Facts { unreadable, ..facts });
    });
}

/// Fuzzes the files of /proc, and the files in a container's image that name hosts and users.
pub(crate) fn proc(data: &[u8]) {
    thread_local! { static HOST: Tree = Tree::new(tree::PROC); }
    let read = |reader: &Reader, _: &Changed| {
        net::devices(reader);
        Facts {
            net: net::read(reader, Err(Errno::EPERM), |_: &BTreeSet<_>| Err(Errno::EPERM)),
            process: process::read(reader),
            homes: Some(home::read(reader, &Environment::default())),
            ..Facts::default()
        }
    };
    HOST.with(|host| {
        let (facts, unreadable) = host.with(data, read);
        replays(&Facts { unreadable, ..facts });
    });
}

/// Fuzzes the files that DRA drivers write (Kubernetes dynamic resource allocation).
pub(crate) fn dra(data: &[u8]) {
    super::dra::fuzz(&String::from_utf8_lossy(data));
}

/// Checks that the facts, written as a document, can be read back unchanged.
fn replays(facts: &Facts) {
    let written = serde_json::to_string(&Document::new(facts)).expect("facts become JSON");
    assert_eq!(Document::parse(&written).as_ref(), Ok(facts));
}

/// Fuzzes the kernel's messages about routes, rules, links, addresses, and counters.
pub(crate) fn netlink(data: &[u8]) {
    rtnetlink::fuzz(data);
    rdma_statistics::fuzz(data);
    events::fuzz(data);
}

/// Fuzzes the variables and arguments of a job's launcher.
pub(crate) fn launchers(environment: &Environment) {
    let command: Vec<String> = environment.iter().map(|(_, value)| value.to_owned()).collect();
    let words: Vec<CString> = command.iter().filter_map(|word| CString::new(word.as_str()).ok()).collect();
    ray_start::read(&words);
    let file = |_: &str| command.first().cloned();
    let seen = Seen { environment, command: &command, host: "node2", file: &file };
    if let Some(nodes) = launchers::nodes(&seen) {
        assert!(nodes.this < nodes.count && nodes.count <= MOST_NODES, "{nodes:?}");
    }
    for hosts in command.iter().filter_map(|value| hostlist::expand(value)) {
        let short = hostlist::compress(&hosts);
        assert!(short.len() <= hosts.join(",").len() + 2 * hosts.len(), "{short}");
    }
}
