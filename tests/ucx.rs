//! This machine's UCX on simulated hosts: it uses the ports and the GIDs that the program predicts. It loads
//! the libibverbs of tests/ucx/verbs.c.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{repository, skip};
use fastrand::Rng;
use rdma_init::fabric::{Rails, candidates};
use rdma_init::facts::Facts;
use rdma_init::facts::gid::{Gid, GidTable};
use rdma_init::facts::rdma::{Access, Hca, LinkLayer, NodeType, Port, Uverbs};
use rdma_init::facts::settings::Settings;
use rdma_init::libraries::LibraryContext;
use rdma_init::libraries::ucx::{Release, taken::taken};
use tempfile::TempDir;

/// The number of hosts.
const CASES: usize = 120;

type Environment = Vec<(&'static str, String)>;
/// The GID index of each port; `None` on InfiniBand, and if a variable sets it.
type Ports = BTreeMap<String, Option<u32>>;

fn pick<'a>(random: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[random.usize(..texts.len())]
}

fn table(random: &mut Rng, is_roce: bool) -> GidTable {
    let size = random.u32(1..9);
    // Few tables have gaps, and most hosts have a GID at index 0.
    let used = (0..size).filter(|_| random.u8(..6) > 0).collect::<Vec<u32>>();
    let slots = used.into_iter().map(|index| {
        let gid = match random.u8(..8) {
            0 | 1 => format!("fe80::{}", random.u8(1..9)),
            2 | 3 => format!("fd0{}::{}", random.u8(..3), random.u8(1..9)),
            _ => format!("::ffff:10.{}.0.{}", random.u8(..3), random.u8(1..9)),
        };
        let kind = if is_roce { pick(random, &["RoCE v2", "RoCE v2", "IB/RoCE v1"]) } else { "IB/RoCE v1" };
        Gid { index, gid: gid.parse().unwrap(), kind: kind.to_owned().into(), netdev: None }
    });
    GidTable { slots: slots.collect(), size, scanned: size }
}

fn hca(random: &mut Rng, number: u32) -> Hca {
    let ports = if random.u8(..5) == 0 { 2 } else { 1 };
    let port = |number| {
        let layer = pick(random, &["Ethernet", "Ethernet", "Ethernet", "InfiniBand"]);
        let state = pick(random, &["ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE", "DOWN", "INIT"]).to_owned();
        let gids = table(random, layer == "Ethernet");
        Port { number, link_layer: layer.to_owned().into(), state, gids, ..Port::default() }
    };
    let ports = (1..=ports).map(port).collect();
    let access = match random.u8(..8) {
        0 => Access::NoNode,
        1 => Access::Failed("EPERM".to_owned()),
        _ => Access::Opened,
    };
    let name = match random.u8(..4) {
        0 => format!("rocep{number}s0"),
        _ => format!("mlx5_{number}"),
    };
    let node_type = if random.u8(..10) == 0 { NodeType::Rnic } else { NodeType::Ca };
    let uverbs = Some(Uverbs { name: format!("uverbs{number}"), access, ..Uverbs::default() });
    Hca { name, node_type, uverbs, ports, ..Hca::default() }
}

/// Returns a list of devices, most of which exist.
fn list(random: &mut Rng, hcas: &[Hca]) -> String {
    let entry = |random: &mut Rng| match hcas.is_empty() || random.u8(..6) == 0 {
        true => pick(random, &["mlx5_99:1", "eth0", "lo", "all"]).to_owned(),
        false => {
            let port = pick(random, &[":1", ":1", ":1", ":2", ""]);
            format!("{}{port}", hcas[random.usize(..hcas.len())].name)
        }
    };
    let entries: Vec<String> = (0..random.usize(1..4)).map(|_| entry(random)).collect();
    format!("{}{}", pick(random, &["", "", "", "^", "="]), entries.join(","))
}

fn environment(random: &mut Rng, hcas: &[Hca]) -> Environment {
    let mut environment = Environment::new();
    if random.u8(..3) == 0 {
        let index = pick(random, &["auto", "0", "1", "3", "7"]);
        environment.push(("UCX_IB_GID_INDEX", index.to_owned()));
    }
    if random.bool() {
        environment.push(("UCX_NET_DEVICES", list(random, hcas)));
    }
    if random.u8(..3) == 0 {
        // Before 1.15, "^rc" leaves only DC, which these HCAs do not have.
        let values = [
            "all",
            "rc",
            "rc_verbs,self",
            "ud,tcp",
            "tcp,self",
            "^rc_verbs",
            "^ib",
            "^tcp",
            "ib",
            "",
            "all,rc",
            "^",
            "RC",
            "rc;tcp",
            "RC,self",
            "ud_verbs:aux",
            "\\rc_verbs,self",
        ];
        environment.push(("UCX_TLS", pick(random, &values).to_owned()));
    }
    environment
}

/// Writes a host in the format that tests/ucx/verbs.c reads.
fn write(facts: &Facts, folder: &Path) {
    for hca in &facts.rdma {
        let of_hca = folder.join(&hca.name);
        fs::create_dir_all(&of_hca).unwrap();
        let access = hca.uverbs.as_ref().map(|uverbs| &uverbs.access);
        for (file, is_there) in [
            ("node", access != Some(&Access::NoNode)),
            ("closed", matches!(access, Some(Access::Failed(_)))),
            ("rnic", hca.node_type == NodeType::Rnic),
        ] {
            if is_there {
                fs::write(of_hca.join(file), "").unwrap();
            }
        }
        for port in &hca.ports {
            let of_port = of_hca.join(format!("ports/{}", port.number));
            let (gids, types) = (of_port.join("gids"), of_port.join("gid_attrs/types"));
            for folder in [&gids, &types] {
                fs::create_dir_all(folder).unwrap();
            }
            let number = ["", "DOWN", "INIT", "ARMED", "ACTIVE"].iter().position(|name| **name == port.state);
            fs::write(of_port.join("state"), format!("{}: {}\n", number.unwrap(), port.state)).unwrap();
            let layer = if port.link_layer == LinkLayer::Ethernet { "Ethernet" } else { "InfiniBand" };
            fs::write(of_port.join("link_layer"), layer).unwrap();
            fs::write(gids.join("size"), port.gids.size.to_string()).unwrap();
            for slot in &port.gids.slots {
                fs::write(gids.join(slot.index.to_string()), slot.gid.to_string()).unwrap();
                fs::write(types.join(slot.index.to_string()), String::from(slot.kind.clone())).unwrap();
            }
        }
    }
}

/// Returns the output of `ucx_info`, to which UCX also writes its log.
fn ucx_info(verbs: &Path, host: &Path, environment: &Environment, arguments: &[&str]) -> String {
    let output = Command::new("ucx_info")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LD_PRELOAD", verbs)
        .env("MADE_UP_HOST", host)
        .env("UCX_LOG_LEVEL", "debug")
        .envs(environment.iter().cloned())
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Returns what UCX uses; nothing if UCX fails.
fn observed(verbs: &Path, host: &Path, environment: &Environment) -> Ports {
    let context = ucx_info(verbs, host, environment, &["-p", "-u", "t"]);
    let resource = |line: &str| {
        let (transport, device) = line.split(" -- ").nth(1)?.split_once('/')?;
        ["rc_verbs", "ud_verbs"].contains(&transport).then(|| device.trim().to_owned())
    };
    let ports: Vec<String> = context.lines().filter_map(resource).collect();
    if ports.is_empty() {
        return Ports::new();
    }
    // A context's ports are not opened yet. Opening them needs no list.
    let opened = ucx_info(verbs, host, environment, &["-d", "-t", "rc_verbs"]);
    let slots: BTreeMap<&str, u32> = opened
        .lines()
        .filter_map(|line| {
            let (before, slot) = line.split_once(" using gid_index ")?;
            Some((before.rsplit(' ').next()?, slot.trim().parse().ok()?))
        })
        .collect();
    ports.iter().map(|port| (port.clone(), slots.get(port.as_str()).copied())).collect()
}

fn predicted(facts: &Facts, environment: &Environment, release: Release) -> Ports {
    let ports = candidates(facts);
    let value = |name: &str| {
        let set = environment.iter().find(|(variable, _)| *variable == name);
        set.map(|(_, value)| value.as_str())
    };
    let rails = Rails { ports: &ports, gid_index: None, interface: None };
    let subject = LibraryContext {
        facts,
        rails: &rails,
        values: &value,
        is_kept: &|_| false,
        settings: &Settings::default(),
        is_allowed: &|_| true,
    };
    let is_auto = value("UCX_IB_GID_INDEX").is_none_or(|index| index == "auto");
    let ports = taken(&subject, release).map(|taken| taken.ports).unwrap_or_default();
    let slot = |slot: Option<u32>| slot.filter(|_| is_auto);
    ports.into_iter().map(|port| (port.name, slot(port.slot.map(|slot| slot.index)))).collect()
}

/// Returns the release of this machine's UCX; `None` if it has none.
fn release() -> Option<Release> {
    let output = Command::new("ucx_info").arg("-v").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.lines().next()?.rsplit(' ').next()?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    Some(Release(numbers.next()?, numbers.next()?))
}

fn build(folder: &Path) -> PathBuf {
    let library = folder.join("libverbs.so");
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o"])
        .args([&library, &repository("tests/ucx/verbs.c")])
        .status()
        .unwrap();
    assert!(built.success(), "tests/ucx/verbs.c cannot be built (see above)");
    library
}

#[test]
fn ucx_takes_on_any_host_what_is_predicted() {
    let Some(release) = release() else {
        return skip("there is no ucx_info here: tests/vm/setup.sh installs it");
    };
    let folder = TempDir::new().unwrap();
    let verbs = build(folder.path());
    let mut taken = 0;
    for seed in 0..CASES as u64 {
        let mut random = Rng::with_seed(seed);
        let count = random.u32(..6);
        let facts =
            Facts { rdma: (0..count).map(|number| hca(&mut random, number)).collect(), ..Facts::default() };
        let environment = environment(&mut random, &facts.rdma);
        let host = folder.path().join(seed.to_string());
        fs::create_dir_all(&host).unwrap();
        write(&facts, &host);
        let predicted = predicted(&facts, &environment, release);
        let observed = observed(&verbs, &host, &environment);
        taken += observed.len();
        assert_eq!(
            predicted, observed,
            "the prediction and UCX {release:?} on host {seed} with {environment:?}\n{:#?}",
            facts.rdma
        );
    }
    // Otherwise, UCX does not see the hosts at all.
    assert!(taken > CASES / 2, "UCX takes {taken} ports in all");
}
