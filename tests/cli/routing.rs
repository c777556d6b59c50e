//! Compares what the program reads and judges in real network namespaces with the routes that the kernel
//! itself selects there for an HCA's packets.

use std::process::Command;

use rdma_init::facts::net::Net;
use rdma_init::findings::routes::{Way, way};
use serde_json::Value;

use crate::support::{binary, skip};

/// Two interfaces with their other ends, as in a container with a rail.
const LINKS: &str = "
    ip link add eth0 type veth peer name peer0
    ip link add eth1 type veth peer name peer1
    for link in lo eth0 peer0 eth1 peer1; do
        ip link set $link addrgenmode none
        ip link set $link up
    done
    ip addr add 10.1.0.5/24 dev eth0
    ip addr add fd00:1::5/64 dev eth0 nodad
";

/// A network namespace that a shell script has set up.
struct Made {
    net: Net,
    /// The answer of `ip route get` to each question.
    answers: Vec<String>,
}

/// Runs the script in a new network namespace. Returns `None` if this machine cannot create one. Each
/// question is `DESTINATION from ADDRESS oif INTERFACE`, which is the kernel's own lookup for RoCE.
fn made(lines: &str, questions: &[&str]) -> Option<Made> {
    let able = Command::new("unshare")
        .args(["--net", "--", "ip", "link", "add", "probe", "type", "veth"])
        .output()
        .unwrap();
    if !able.status.success() {
        let why = String::from_utf8_lossy(&able.stderr);
        skip(&format!("no network namespace with a veth link can be made, or not by this user: {why}"));
        return None;
    }
    let asked: Vec<String> = questions
        .iter()
        .map(|question| format!("echo; echo ANSWER; ip route get {question} 2>&1 || true"))
        .collect();
    let script = format!("set -e\n{LINKS}\n{lines}\n\"$0\" inspect --json\n{}", asked.join("\n"));
    let output = Command::new("unshare")
        .args(["--net", "--", "sh", "-c", &script])
        .arg(binary())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let mut parts = stdout.split("\nANSWER\n");
    let facts: Value = serde_json::from_str(parts.next().unwrap()).unwrap();
    assert_eq!(facts["unreadable"], Value::Array(Vec::new()));
    let net = serde_json::from_value(facts["net"].clone()).unwrap();
    Some(Made { net, answers: parts.map(|answer| answer.trim().to_owned()).collect() })
}

impl Made {
    /// Returns the routes as sorted texts, because their order depends on how the kernel stores its tables.
    fn routes(&self) -> Vec<String> {
        let line = |route: &rdma_init::facts::route::Route| {
            let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let source = route.source.map(|source| format!(" from {source}")).unwrap_or_default();
            let table = route.table;
            format!(
                "{}{source}{via} dev {} metric {} table {table}",
                route.destination, route.interface, route.metric
            )
        };
        let mut routes: Vec<String> = self.net.routes.iter().map(line).collect();
        routes.sort();
        routes
    }
}

#[test]
fn every_table_rule_and_next_hop_is_read() {
    let lines = "
        ip addr add 172.16.1.9/32 dev eth1
        ip addr add fd00:33::9/128 dev eth1 nodad
        ip route add default metric 100 nexthop via 10.1.0.1 dev eth0 weight 2 nexthop via 10.1.0.2 dev eth0
        ip route add default via 172.16.1.1 dev eth1 onlink table 101
        ip route add 10.77.0.0/16 via inet6 fe80::7 dev eth1
        ip route add unreachable 10.78.0.0/16
        ip route add 10.9.0.0/16 dev eth1 table 70000
        ip -6 route add default metric 77 nexthop via fd00:1::1 dev eth0 nexthop via fd00:1::2 dev eth0
        ip -6 route add default via fe80::1 dev eth1 table 101
        ip rule add from 172.16.1.9 table 101 priority 1000
        ip rule add not fwmark 0x10/0xff iif eth0 to 10.0.0.0/8 ipproto tcp dport 80 table 70000 priority 77
        ip rule add from 10.5.0.0/16 prohibit priority 78
        ip -6 rule add from fd00:33::9 table 101 priority 1000
    ";
    let Some(made) = made(lines, &[]) else { return };
    assert_eq!(
        made.routes(),
        [
            "0.0.0.0/0 via 10.1.0.1 dev eth0 metric 100 table 254",
            "0.0.0.0/0 via 10.1.0.2 dev eth0 metric 100 table 254",
            "0.0.0.0/0 via 172.16.1.1 dev eth1 metric 0 table 101",
            "10.1.0.0/24 dev eth0 metric 0 table 254",
            "10.77.0.0/16 via fe80::7 dev eth1 metric 0 table 254",
            "10.9.0.0/16 dev eth1 metric 0 table 70000",
            "::/0 via fd00:1::1 dev eth0 metric 77 table 254",
            "::/0 via fd00:1::2 dev eth0 metric 77 table 254",
            "::/0 via fe80::1 dev eth1 metric 1024 table 101",
            "fd00:1::/64 dev eth0 metric 256 table 254",
            "fd00:33::9/128 dev eth1 metric 256 table 254",
        ]
    );
    let rules: Vec<String> = made.net.rules.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "0: from all lookup 255",
            "77: not from all to 10.0.0.0/8 iif eth0 fwmark 0x10 dport ipproto lookup 70000",
            "78: from 10.5.0.0/16 prohibit",
            "1000: from 172.16.1.9 lookup 101",
            "32766: from all lookup 254",
            "32767: from all lookup 253",
            "0: from all lookup 255",
            "1000: from fd00:33::9 lookup 101",
            "32766: from all lookup 254",
        ]
    );
}

/// Tables arrive in no particular order, so a rule's table may arrive before the main one.
#[test]
fn a_table_of_twenty_thousand_routes_hides_neither_the_default_route_nor_the_way_out_of_a_rail() {
    let lines = "
        ip addr add 172.16.1.9/32 dev eth1
        ip route add default via 10.1.0.1
        for table in 100 101; do
            for a in $(seq 0 79); do
                for b in $(seq 0 255); do echo route add 20.$a.$b.0/24 dev eth0 table $table; done
            done
            echo route add 30.0.0.0/8 dev eth1 table $table
        done | ip -batch -
        ip rule add from 172.16.1.9 table 100
    ";
    let Some(made) = made(lines, &[]) else { return };
    assert_eq!(
        made.routes(),
        [
            "0.0.0.0/0 via 10.1.0.1 dev eth0 metric 0 table 254",
            "10.1.0.0/24 dev eth0 metric 0 table 254",
            "20.0.0.0/24 dev eth0 metric 0 table 100",
            "20.0.0.0/24 dev eth0 metric 0 table 101",
            "30.0.0.0/8 dev eth1 metric 0 table 100",
            "30.0.0.0/8 dev eth1 metric 0 table 101",
            "fd00:1::/64 dev eth0 metric 256 table 254",
        ]
    );
    assert_eq!(way(&made.net, "172.16.1.9".parse().unwrap(), "eth1"), Some(Way::Out));
}

/// Compares the program's judgement of a rail with the kernel's answer.
fn compare(lines: &str, family: &str, expected: &Way, answer: &str) {
    let (address, other) = match family {
        "inet" => ("172.16.1.9", "172.16.7.7"),
        _ => ("fd00:33::9", "fd00:33:7::7"),
    };
    let add = format!("ip addr add {address} dev eth1 {}", if family == "inet" { "" } else { "nodad" });
    let Some(made) = made(&format!("{add}\n{lines}"), &[&format!("{other} from {address} oif eth1")]) else {
        return;
    };
    assert_eq!(way(&made.net, address.parse().unwrap(), "eth1").as_ref(), Some(expected), "{lines}");
    assert!(made.answers[0].contains(answer), "{lines}: {}", made.answers[0]);
}

#[test]
fn the_kernel_goes_the_way_that_is_judged_for_ipv4() {
    let compare = |lines: &str, expected, answer| compare(lines, "inet", &expected, answer);
    // The kernel returns neither an error nor a gateway, regardless of the tables.
    compare("", Way::OnLink, "172.16.7.7 from 172.16.1.9 dev eth1");
    compare("ip route add default via 10.1.0.1", Way::OnLink, "172.16.7.7 from 172.16.1.9 dev eth1");
    compare("ip rule add from 172.16.1.9 unreachable", Way::OnLink, "172.16.7.7 from 172.16.1.9 dev eth1");
    let table = "ip route add default via 172.16.1.1 dev eth1 onlink table 101";
    compare(table, Way::OnLink, "172.16.7.7 from 172.16.1.9 dev eth1");
    compare(&format!("{table}; ip rule add from 172.16.1.9 table 101"), Way::Out, "via 172.16.1.1 dev eth1");
    compare(&format!("{table}; ip rule add oif eth1 table 101"), Way::Out, "via 172.16.1.1 dev eth1");
    compare("ip route add 172.16.0.0/16 dev eth1", Way::Out, "dev eth1");
}

#[test]
fn the_kernel_goes_the_way_that_is_judged_for_ipv6() {
    let compare = |lines: &str, expected, answer| compare(lines, "inet6", &expected, answer);
    let elsewhere = || Way::Elsewhere("eth0".into());
    let default = "ip -6 route add default via fd00:1::1 dev eth0";
    let table = "ip -6 route add default via fe80::1 dev eth1 table 101";
    compare("", Way::Nowhere, "Network is unreachable");
    compare(default, elsewhere(), "via fd00:1::1 dev eth0");
    compare(table, Way::Nowhere, "Network is unreachable");
    compare(&format!("{table}; ip -6 rule add from fd00:33::9 table 101"), Way::Out, "via fe80::1 dev eth1");
    let rules = "ip -6 rule add from fd00:33::8 table 101; ip -6 rule add from fd00:33::9 iif eth1 table 101";
    compare(&format!("{default}; {table}; {rules}"), elsewhere(), "via fd00:1::1 dev eth0");
    let marked = "ip -6 rule add not fwmark 1 table 101";
    compare(&format!("{default}; {table}; {marked}"), Way::Out, "via fe80::1 dev eth1");
    let ended =
        "ip -6 rule add from fd00:33::9 unreachable priority 5; ip -6 rule add oif eth1 table 101 priority 9";
    compare(&format!("{table}; {ended}"), Way::Nowhere, "Network is unreachable");
    compare("ip -6 route add fd00:33::/32 dev eth1", Way::Out, "dev eth1");
}
