//! Tests random hosts with random environments, many of them odd. The model must predict what NCCL does
//! with them, in each version.

use fastrand::Rng;
use rdma_init::facts::Facts;
use rdma_init::facts::gid::{Gid, GidTable};
use rdma_init::facts::net::{Interface, Net};
use rdma_init::facts::rdma::{Access, Hca, Port, Uverbs};

use super::driver::Nccl;
use super::model::{Environment, case, observed, predicted, version};
use crate::support::nccl::libraries;

/// The number of cases for each version. It cannot be much lower: only one or two have a NIC of more than four ports,
/// and four a range without a slash that counts.
const CASES: usize = 1000;

fn pick<'a>(random: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[random.usize(..texts.len())]
}

fn gid(random: &mut Rng) -> String {
    match random.u8(..10) {
        0 | 1 => "fe80::1".to_owned(),
        2 => "fe80:0:0:1::1".to_owned(),
        3 => "::".to_owned(),
        4 => format!("fd0{}::{}", random.u8(..3), random.u8(1..9)),
        5 => "ff0e::ffff:10.1.0.1".to_owned(),
        _ => format!("::ffff:10.{}.0.{}", random.u8(..3), random.u8(1..9)),
    }
}

fn table(random: &mut Rng) -> GidTable {
    let size = random.u32(1..12);
    let slots = (0..size).filter(|_| random.u8(..4) > 0).collect::<Vec<_>>();
    let slots = slots.into_iter().map(|index| Gid {
        index,
        gid: gid(random).parse().unwrap(),
        kind: pick(random, &["RoCE v2", "RoCE v2", "IB/RoCE v1", "RoCE v3"]).to_owned().into(),
        netdev: None,
    });
    // The facts list no empty slots.
    let slots: Vec<Gid> = slots.filter(|slot| !slot.gid.is_unspecified()).collect();
    GidTable { size, scanned: size, slots }
}

fn hca(random: &mut Rng, number: u32) -> Hca {
    let port = |random: &mut Rng, number| Port {
        number,
        link_layer: pick(random, &["Ethernet", "Ethernet", "Ethernet", "InfiniBand", "Unspecified"])
            .to_owned()
            .into(),
        state: pick(random, &["ACTIVE", "ACTIVE", "ACTIVE", "DOWN", "INIT"]).to_owned(),
        gids: table(random),
        ..Port::default()
    };
    let ports = if random.u8(..5) == 0 { 2 } else { 1 };
    let access = match random.u8(..8) {
        0 => Access::NoNode,
        1 => Access::Failed("EPERM".to_owned()),
        _ => Access::Opened,
    };
    // A separate device, one function of a multi-function device, or a virtual function.
    let pci_address = match random.u8(..3) {
        0 => format!("0000:{:02x}:00.{}", 0xa0 + random.u8(..2), number % 8),
        1 => format!("0001:a0:{:02x}.{}", number / 8 + random.u32(..3), number % 8),
        _ => format!("0000:{number:02x}:00.0"),
    };
    Hca {
        name: format!("mlx5_{number}"),
        driver: Some("mlx5_core".to_owned()),
        system_guid: Some(format!("0000:0000:0000:000{}", random.u8(..2))),
        pci_address: Some(pci_address),
        uverbs: Some(Uverbs { name: format!("uverbs{number}"), access, ..Uverbs::default() }),
        ports: (1..=ports).map(|number| port(random, number)).collect(),
        ..Hca::default()
    }
}

fn net(random: &mut Rng) -> Net {
    let names = ["lo", "docker0", "virbr0", "eth0", "eth1", "eth10", "ib0", "bond0", "e"];
    let chosen: Vec<(usize, &str)> = names.into_iter().enumerate().filter(|_| random.bool()).collect();
    let interfaces = chosen.into_iter().map(|(number, name)| {
        let mut addresses = Vec::new();
        if random.u8(..4) > 0 {
            addresses.push(match name {
                "lo" => "127.0.0.1/8".to_owned(),
                _ => format!("10.{}.0.{}/{}", number % 4, number + 1, pick(random, &["8", "16", "24", "32"])),
            });
        }
        if random.bool() {
            addresses.push(match name {
                "lo" => "::1/128".to_owned(),
                _ => format!("fd0{}::{}/64", number % 3, number + 1),
            });
        }
        if random.bool() && name != "lo" {
            addresses.push(format!("fe80::{}/64", number + 1));
        }
        let flags: &[&str] = if random.u8(..5) > 0 { &["UP", "RUNNING"] } else { &["UP"] };
        Interface {
            name: name.to_owned(),
            index: Some(number as u32 + 1),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..Interface::default()
        }
    });
    Net { interfaces: interfaces.collect(), ..Net::default() }
}

fn facts(random: &mut Rng) -> Facts {
    // Few hosts have more HCAs than an NCCL version supports.
    let count = if random.u8(..20) == 0 { random.u32(14..40) } else { random.u32(..7) };
    Facts {
        rdma: (0..count).map(|number| hca(random, number)).collect(),
        net: net(random),
        ..Facts::default()
    }
}

fn list(random: &mut Rng, names: &[&str]) -> String {
    let signs = pick(random, &["", "", "=", "^", "^=", "=^"]);
    let entries: Vec<String> = (0..random.usize(..4))
        .map(|_| {
            let name = pick(random, names);
            let port =
                pick(random, &["", "", "", ":1", ":2", ":-1", ":", ":1:3", ":x", "::1", "::2", ":1:2:0"]);
            format!("{name}{port}")
        })
        .collect();
    format!("{signs}{}", entries.join(pick(random, &[",", ",", ",", ";", ", ", ",,"])))
}

fn environment(random: &mut Rng) -> Environment {
    let mut environment = Environment::new();
    let mut set = |random: &mut Rng, of_ten: u8, name: &str, value: &dyn Fn(&mut Rng) -> String| {
        if random.u8(..10) < of_ten {
            environment.push((name.to_owned(), value(random)));
        }
    };
    let hcas = ["mlx5", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_", "erdma", "^mlx5_1", "=mlx5_2", " mlx5_1"];
    let interfaces = ["eth", "eth0", "eth1", "ib", "lo", "docker", "e", "bond0", " eth0", "^eth0"];
    set(random, 6, "NCCL_IB_HCA", &|random| list(random, &hcas));
    set(random, 5, "NCCL_SOCKET_IFNAME", &|random| list(random, &interfaces));
    let word = |texts: &'static [&'static str]| move |random: &mut Rng| pick(random, texts).to_owned();
    set(random, 3, "NCCL_SOCKET_FAMILY", &word(&["AF_INET", "AF_INET6", "", "af_inet6", "AF_INET6 "]));
    set(random, 3, "NCCL_IB_ADDR_FAMILY", &word(&["AF_INET", "AF_INET6", "AF_INET6", "", "inet6"]));
    set(
        random,
        3,
        "NCCL_IB_ADDR_RANGE",
        &word(&[
            "10.1.0.0/16",
            "10.0.0.0/8",
            "10.2.0.3/32",
            "0.0.0.0/0",
            "10.1.0.0",
            "fd00::/16",
            "fd01::/64",
            "::/0",
            "fd01::3/128",
            "10.1.0.0/40",
            "10.1.0.0/-4",
            "10.1.0.0/x",
            "fd00::/129",
            "",
            "10.1.0.0/16,10.2.0.0/16",
        ]),
    );
    set(random, 2, "NCCL_IB_ROCE_VERSION_NUM", &word(&["1", "2", "", "3", "two"]));
    set(random, 2, "NCCL_IB_GID_INDEX", &word(&["0", "3", "5", "-1", "", "three", "0x3", "03", "3s", "-2"]));
    set(random, 2, "NCCL_IB_MERGE_NICS", &word(&["0", "1", "", "no"]));
    set(random, 2, "NCCL_IB_MERGE_VFS", &word(&["0", "1", "2"]));
    set(random, 2, "NCCL_IB_DEVICE_PCI_ORDER", &word(&["0", "1"]));
    set(random, 2, "NCCL_NET_MERGE_POLICY", &word(&["RAIL", "rail", "ALL", "other"]));
    set(random, 2, "NCCL_NET_MERGE_LEVEL", &word(&["LOC", "PORT", "port", "", "PORTS", "PIX", "LOCAL"]));
    set(random, 1, "NCCL_IB_DISABLE", &word(&["0", "1", "", "true", "yes", "-1", "0x"]));
    set(
        random,
        1,
        "NCCL_COMM_ID",
        &word(&[
            "10.1.0.9:4000",
            "10.3.0.1:1",
            "192.0.2.1:4000",
            "[fd01::9]:4000",
            "[fe80::9%eth0]:4000",
            "[fe80::9]:1",
            "",
            "1",
            "[zz]:1",
        ]),
    );
    environment
}

#[test]
fn the_model_says_what_nccl_does() {
    let seed = std::env::var("RDMA_INIT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_121);
    let mut random = Rng::with_seed(seed);
    let hosts: Vec<_> = (0..CASES).map(|_| (facts(&mut random), environment(&mut random))).collect();
    let cases: Vec<_> = hosts.iter().map(|(facts, environment)| case(facts, environment)).collect();
    let mut wrong = Vec::new();
    for library in libraries() {
        let outcomes = Nccl::start(&library).run(&cases);
        let mut ports = 0;
        for ((facts, environment), outcome) in hosts.iter().zip(&outcomes) {
            let (predicted, observed) = (predicted(facts, environment, version(&library)), observed(outcome));
            ports += observed.ports.len();
            if predicted != observed {
                wrong.push(format!(
                    "NCCL {} with {environment:?}\npredicted {predicted:?}\nobserved  {observed:?}\n{}\n{facts:?}",
                    library.version, outcome.log
                ));
            }
        }
        println!("NCCL {}: {} hosts, {ports} ports", library.version, outcomes.len());
    }
    let some = wrong.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(wrong.is_empty(), "{} of seed {seed} differ, such as\n{some}", wrong.len());
}
