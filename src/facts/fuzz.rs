//! Entry points for the fuzzers; see [`crate::fuzz`].

mod tree;

use std::collections::BTreeSet;
use std::ffi::CString;

use nix::errno::Errno;

use self::tree::Tree;
use super::document::Document;
use super::environment::Environment;
use super::launchers::{self, Seen};
use super::port_counters::Counters;
use super::rdma::Looked;
use super::{
    Facts, Reader, coherent, counters, data_direct, dmi, gpu, home, hostlist, imex, launchers::MOST_NODES,
    net, port_errors, process, ray_start, rdma, rdma_statistics, resent, rtnetlink, traffic, vpd,
};

/// Fuzzes the sysfs files of an RDMA host and its GPUs.
pub(crate) fn sysfs(data: &[u8]) {
    thread_local! { static HOST: Tree = Tree::new(tree::SYSFS); }
    let read = |reader: Reader| {
        let mut rdma = rdma::read(&reader, &Looked::for_gids(&net::Net::default(), Some(3)));
        let gpu = gpu::read(&reader, true);
        vpd::read(&reader, &gpu, &mut rdma);
        for (hca, port) in traffic::ports(&reader) {
            let looked = Counters::new(&reader);
            let of_port = looked.of(&hca, port);
            traffic::read(&of_port);
            port_errors::read(&of_port);
            resent::read(&of_port);
            counters::read(&of_port);
        }
        Facts {
            rdma,
            gpu,
            imex: imex::read(&reader),
            memory: coherent::read(&reader),
            data_direct: data_direct::read(&reader),
            dmi: dmi::read(&reader),
            unreadable: reader.into_unreadable(),
            ..Facts::default()
        }
    };
    HOST.with(|host| replays(&host.with(data, read)));
}

/// Fuzzes the files of /proc, and the files in a container's image that name hosts and users.
pub(crate) fn proc(data: &[u8]) {
    thread_local! { static HOST: Tree = Tree::new(tree::PROC); }
    let read = |reader: Reader| Facts {
        net: net::read(&reader, Err(Errno::EPERM), |_: &BTreeSet<_>| Err(Errno::EPERM)),
        process: process::read(&reader),
        homes: Some(home::read(&reader, &Environment::default())),
        unreadable: reader.into_unreadable(),
        ..Facts::default()
    };
    HOST.with(|host| {
        let facts = host.with(data, read);
        host.with(data, |reader| drop(net::devices(&reader)));
        replays(&facts);
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
