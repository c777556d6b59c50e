//! Compares the interfaces and addresses that the program reads with those of getifaddrs(3), which NCCL and
//! other libraries use.

use std::collections::BTreeSet;
use std::process::Command;

use nix::ifaddrs::getifaddrs;
use nix::libc;
use rdma_init::facts::net::{InterfaceAddress, system_addresses};

use crate::support::namespace;

/// Links of each kind that has addresses: with labels, with a peer, with several addresses of both families,
/// without any, down, and with an index larger than the preceding ones.
const LINKS: &str = "
    link set lo up
    link add eth0 type veth peer name peer0
    link add eth9 index 900 type veth peer name peer9
    link add eth1 index 30 type veth peer name peer1
    link set eth0 up
    link set eth9 up
    addr add 10.1.2.5/24 dev eth9 label eth9:1
    addr add 10.1.0.5/24 dev eth0
    addr add 10.1.1.5/16 dev eth0 label eth0:storage
    addr add 10.1.0.6/24 dev eth0
    addr add 10.9.0.1 peer 10.9.0.2/32 dev eth9
    addr add fd00:1::5/64 dev eth0 nodad
    addr add fd00:2::5 peer fd00:2::6/128 dev eth9 nodad
    addr add 169.254.1.1/32 dev eth1";

fn of_libc() -> Vec<(String, Option<String>)> {
    let list = getifaddrs().unwrap().map(|entry| {
        let address = entry.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| v4.ip().to_string());
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().to_string()))
        });
        let bits = entry.netmask.and_then(|mask| {
            let v4 = mask.as_sockaddr_in().map(|v4| u32::from(v4.ip()).count_ones());
            v4.or_else(|| mask.as_sockaddr_in6().map(|v6| u128::from(v6.ip()).count_ones()))
        });
        let net = address.map(|address| format!("{address}/{}", bits.unwrap()));
        (format!("{} {:?}", entry.interface_name, names(entry.flags.bits())), net)
    });
    list.collect()
}

/// Returns the names of the flags that the program reports.
fn names(flags: i32) -> Vec<&'static str> {
    let all = [
        (libc::IFF_UP, "UP"),
        (libc::IFF_BROADCAST, "BROADCAST"),
        (libc::IFF_LOOPBACK, "LOOPBACK"),
        (libc::IFF_POINTOPOINT, "POINTOPOINT"),
        (libc::IFF_RUNNING, "RUNNING"),
        (libc::IFF_MULTICAST, "MULTICAST"),
    ];
    all.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| *name).collect()
}

fn shown(entry: InterfaceAddress) -> (String, Option<String>) {
    (format!("{} {:?}", entry.name, entry.flags), entry.address.map(|net| net.to_string()))
}

#[test]
fn interfaces_are_those_of_getifaddrs_in_its_order() {
    if !namespace::can_be_made() {
        return;
    }
    // A network namespace belongs to a thread.
    std::thread::spawn(|| {
        // SAFETY: the call takes a plain number, and affects this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        for line in LINKS.lines().filter(|line| !line.trim().is_empty()) {
            let made = Command::new("ip").args(line.split_whitespace()).status().unwrap();
            assert!(made.success(), "{line}");
        }
        let ours: Vec<_> = system_addresses().unwrap().into_iter().map(shown).collect();
        assert_eq!(ours, of_libc());
        // This checks that the compared addresses include each kind.
        let addresses: BTreeSet<&str> = ours.iter().filter_map(|(_, address)| address.as_deref()).collect();
        for wanted in ["10.1.1.5/16", "10.9.0.1/32", "fd00:2::5/128", "169.254.1.1/32"] {
            assert!(addresses.contains(wanted), "{wanted}: {ours:?}");
        }
        assert!(ours.iter().any(|(name, _)| name.starts_with("eth0:storage ")), "{ours:?}");
    })
    .join()
    .unwrap();
}
