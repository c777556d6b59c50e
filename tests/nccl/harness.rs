//! Tests the harness itself: on a described host, each version of NCCL does what its source code says.

use std::net::IpAddr;

use nix::libc::{self, EPERM, SIGSEGV};

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::host::{
    Address, Hca, Host, Interface, LINK_ETHERNET, LINK_INFINIBAND, PORT_ACTIVE, PORT_DOWN, Port, ROCE_V1,
    ROCE_V2, Slot, TypeFile,
};
use super::outcome::{Failure, Ib, Level, Outcome};
use crate::support::nccl::{Library, newest, some};

/// Runs cases with each of these libraries. `check` gets the library, because the expected result depends on its
/// version.
fn with_each(libraries: Vec<Library>, cases: &[Case], check: impl Fn(&Library, Vec<Outcome>)) {
    for library in libraries {
        let outcomes = Nccl::start(&library).run(cases);
        check(&library, outcomes);
    }
}

fn up(name: &str, index: u32, address: &str) -> Interface {
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    Interface { name: name.to_owned(), index, flags, address: Address::Ip(address.parse().unwrap()) }
}

fn slot(index: u32, gid: &str, kind: &str) -> Slot {
    Slot { index, gid: gid.parse().unwrap(), file: TypeFile::Text(kind.to_owned()) }
}

fn roce(name: &str, pci_address: &str, slots: Vec<Slot>) -> Hca {
    let port = Port { number: 1, state: PORT_ACTIVE, link_layer: LINK_ETHERNET, table_size: 8, slots };
    Hca {
        name: name.to_owned(),
        pci_path: Some(format!("/sys/devices/pci0000:00/{pci_address}")),
        ports: vec![port],
        ..Hca::default()
    }
}

/// Makes two HCAs in a container. In the second table, entries 2 and 3 are empty for the container, because
/// they have the host's own address.
fn host() -> Host {
    let link_local = || vec![slot(0, "fe80::1", ROCE_V1), slot(1, "fe80::1", ROCE_V2)];
    let mut first = link_local();
    first.extend([slot(2, "::ffff:10.1.0.1", ROCE_V1), slot(3, "::ffff:10.1.0.1", ROCE_V2)]);
    let mut second = link_local();
    second.extend([slot(4, "::ffff:10.2.0.1", ROCE_V1), slot(5, "::ffff:10.2.0.1", ROCE_V2)]);
    Host {
        hcas: vec![roce("mlx5_0", "0000:17:00.0", first), roce("mlx5_1", "0000:27:00.0", second)],
        interfaces: vec![
            up("lo", 1, "127.0.0.1/8"),
            up("docker0", 2, "172.17.0.1/16"),
            up("eth0", 3, "10.0.0.5/16"),
        ],
        ..Host::default()
    }
}

fn case(host: Host, environment: &[(&str, &str)], asks: &[Ask]) -> Case {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Case { host, environment: environment.collect(), asks: asks.to_vec() }
}

/// Returns each HCA as `mlx5_0:1/RoCE@3`; if something failed, the failure is in parentheses instead of the
/// GID index.
fn shown(ib: &Ib) -> Vec<String> {
    let failed = |failure: &Failure| format!("({failure})");
    if ib.code != 0 {
        return vec![failed(&Failure { code: ib.code, warnings: ib.warnings.clone() })];
    }
    let slot = |gid: &Option<_>| match gid {
        Some(Ok(slot)) => format!("{slot}"),
        Some(Err(failure)) => failed(failure),
        None => "?".to_owned(),
    };
    ib.using.iter().map(|u| format!("{}:{}/{}@{}", u.hca, u.port, u.link_layer, slot(&u.gid))).collect()
}

fn ib(outcome: &Outcome) -> &Ib {
    outcome.ib.as_ref().unwrap_or_else(|| panic!("{outcome:?}"))
}

#[test]
fn hcas_and_their_slots() {
    let with = |environment| case(host(), environment, &[Ask::Ib]);
    let cases = [with(&[]), with(&[("NCCL_IB_HCA", "=mlx5_1")]), with(&[("NCCL_IB_GID_INDEX", "0x5")])];
    with_each(some(&["2.21.5"]), &cases, |library, outcomes| {
        // NCCL has searched for the GID index since 2.21.
        let [first, second] = if library.is_at_least("2.21") { [3, 5] } else { [0, 0] };
        let [first, second] = [format!("mlx5_0:1/RoCE@{first}"), format!("mlx5_1:1/RoCE@{second}")];
        assert_eq!(shown(ib(&outcomes[0])), [first.as_str(), &second], "{}", library.version);
        assert_eq!(ib(&outcomes[0]).warnings, [""; 0]);
        assert_eq!(shown(ib(&outcomes[1])), [second]);
        assert_eq!(shown(ib(&outcomes[2])), ["mlx5_0:1/RoCE@5", "mlx5_1:1/RoCE@5"]);
    });
}

#[test]
fn ports_that_are_down_devices_that_do_not_open_and_no_device() {
    let mut changed = host();
    changed.hcas[0].open_error = EPERM;
    let infiniband = Port { link_layer: LINK_INFINIBAND, number: 2, ..changed.hcas[1].ports[0].clone() };
    changed.hcas[1].ports.push(infiniband);
    changed.hcas[1].ports[0].state = PORT_DOWN;
    let none = Host { hcas: Vec::new(), ..host() };
    let environment = [("NCCL_IB_GID_INDEX", "0")];
    let cases = [case(changed, &environment, &[Ask::Ib]), case(none, &[], &[Ask::Ib])];
    with_each(vec![newest()], &cases, |library, outcomes| {
        assert_eq!(shown(ib(&outcomes[0])), ["mlx5_1:2/IB@0"], "{}", library.version);
        let warnings = &ib(&outcomes[0]).warnings;
        assert!(warnings.contains(&"NET/IB : Unable to open device mlx5_0".to_owned()), "{warnings:?}");
        assert_eq!((ib(&outcomes[1]).code, shown(ib(&outcomes[1]))), (0, vec![]), "{}", library.version);
    });
}

#[test]
fn the_order_of_the_bus_counts_in_newer_versions() {
    let mut reversed = host();
    reversed.hcas.reverse();
    with_each(some(&["2.30.7"]), &[case(reversed, &[], &[Ask::Ib])], |library, outcomes| {
        let names: Vec<_> = ib(&outcomes[0]).using.iter().map(|used| used.hca.as_str()).collect();
        let sorted = library.is_at_least("2.29.7");
        assert_eq!(
            names,
            if sorted { ["mlx5_0", "mlx5_1"] } else { ["mlx5_1", "mlx5_0"] },
            "{}",
            library.version
        );
    });
}

#[test]
fn types_that_cannot_be_read() {
    let with = |file: TypeFile| {
        let mut host = host();
        host.hcas.truncate(1);
        host.hcas[0].ports[0].slots = vec![
            slot(0, "::ffff:10.1.0.1", ROCE_V1),
            Slot { file, ..slot(1, "::ffff:10.1.0.1", ROCE_V2) },
            slot(2, "::ffff:10.1.0.1", ROCE_V2),
        ];
        case(host, &[], &[Ask::Ib])
    };
    with_each(
        some(&["2.21.5", "2.23.4", "2.26.2"]),
        &[with(TypeFile::Missing), with(TypeFile::Invalid)],
        |library, outcomes| {
            let slots = outcomes.iter().map(|outcome| shown(ib(outcome)).join(" "));
            let slots: Vec<_> = slots.map(|shown| shown.replace("mlx5_0:1/RoCE@", "")).collect();
            let failed = |what| format!("(2: NET/IB: {what} failed in ncclIbRoceGetVersionNum: ");
            let missing = failed("open") + "No such file or directory)";
            let expected = match library {
                library if !library.is_at_least("2.21") => ["0".to_owned(), "0".to_owned()],
                library if !library.is_at_least("2.23") => ["(2: )".to_owned(), "(2: )".to_owned()],
                library if !library.is_at_least("2.26") => [missing, failed("read") + "Invalid argument)"],
                // NCCL skips an empty GID entry. Since 2.31 it searches when it lists the devices, so a failed
                // search makes the list fail.
                _ => [missing, "2".to_owned()],
            };
            assert_eq!(slots, expected, "{}", library.version);
        },
    );
}

#[test]
fn the_bootstrap_interface() {
    let bootstrap = |interfaces, environment| {
        case(Host { interfaces, ..Host::default() }, environment, &[Ask::Bootstrap])
    };
    let null = Interface { address: Address::None, ..up("eth1", 4, "10.9.0.1/16") };
    let link = Interface { address: Address::Link, ..null.clone() };
    let cases = [
        bootstrap(host().interfaces, &[]),
        bootstrap(vec![null, link, up("eth1", 4, "fe80::7/64"), up("eth1", 4, "10.9.0.1/16")], &[]),
        bootstrap(host().interfaces, &[("NCCL_SOCKET_IFNAME", "docker")]),
        bootstrap(host().interfaces, &[("NCCL_COMM_ID", "172.17.0.9:1")]),
        bootstrap(host().interfaces, &[("NCCL_SOCKET_IFNAME", "=eth")]),
    ];
    with_each(some(&[]), &cases, |library, outcomes| {
        let chosen = |outcome: &Outcome| {
            let found: (String, IpAddr) = outcome.bootstrap.clone().unwrap().unwrap();
            format!("{} {}", found.0, found.1)
        };
        let chosen: Vec<_> = outcomes[..4].iter().map(chosen).collect();
        // In 2.29, an IPv4 subnet matches the addresses outside of it.
        let reversed = library.is_at_least("2.29") && !library.is_at_least("2.30");
        let matching = if reversed { "lo 127.0.0.1" } else { "docker0 172.17.0.1" };
        let expected = ["eth0 10.0.0.5", "eth1 fe80::7", "docker0 172.17.0.1", matching];
        assert_eq!(chosen, expected, "{}", library.version);
        let failure = outcomes[4].bootstrap.clone().unwrap().unwrap_err();
        assert!(failure.to_string().ends_with("no socket interface found"), "{}: {failure}", library.version);
    });
}

#[test]
fn conf_files() {
    let names = ["NCCL_A", "NCCL_B", "NCCL_C", "NCCL_D", "#NCCL_E"].map(str::to_owned);
    let file = |path: &str, text: &str| (path.to_owned(), text.as_bytes().to_vec());
    let host = Host {
        files: vec![
            file("/database/.nccl.conf", "NCCL_A=database\nNCCL_B=database\n"),
            file("/home/.nccl.conf", "NCCL_A=home\nNCCL_B=home\n"),
            file("/etc/nccl.conf", "NCCL_B=etc\nNCCL_C=\nno variable\nNCCL_D=\u{e9} = 1 \n#NCCL_E=1"),
            file("/own.conf", "NCCL_C=own\n"),
        ],
        home: Some("/database".to_owned()),
        ..Host::default()
    };
    let with = |environment| case(host.clone(), environment, &[Ask::Conf(names.to_vec())]);
    let cases = [
        with(&[("HOME", "/home")]),
        with(&[("NCCL_CONF_FILE", "/own.conf"), ("NCCL_A", "first"), ("NCCL_A", "second")]),
    ];
    with_each(some(&["2.23.4", "2.26.2", "2.30.7"]), &cases, |library, outcomes| {
        let values = |outcome: &Outcome| {
            let values =
                outcome.conf.iter().map(|value| value.clone().map(|v| String::from_utf8(v).unwrap()));
            values.map(|value| value.unwrap_or("-".to_owned())).collect::<Vec<_>>()
        };
        let home = if library.is_at_least("2.30") { "home" } else { "database" };
        let comment = if library.is_at_least("2.26") { "-" } else { "1" };
        assert_eq!(values(&outcomes[0]), [home, home, "", "\u{e9} = 1 ", comment], "{}", library.version);
        // NCCL has read NCCL_CONF_FILE since 2.23.
        let [b, c] = if library.is_at_least("2.23") { ["etc", "own"] } else { ["database", ""] };
        assert_eq!(values(&outcomes[1]), ["first", b, c, "\u{e9} = 1 ", comment], "{}", library.version);
    });
}

#[test]
fn integers_and_levels() {
    let param = || Ask::Param { name: "NCCL_IB_TC".to_owned(), default: 7 };
    let numbers = ["106", "0x6a", "010", " -1s", "word", "", "99999999999999999999"];
    let numbers = numbers.map(|number| case(Host::default(), &[("NCCL_IB_TC", number)], &[param()]));
    let level = |disable: Option<&str>| Ask::Level {
        name: "NCCL_NET_GDR_LEVEL".to_owned(),
        disable: disable.map(str::to_owned),
    };
    let levels = ["PXB", "SYS", "0", "9", "pxb"];
    let levels = levels.map(|text| case(Host::default(), &[("NCCL_NET_GDR_LEVEL", text)], &[level(None)]));
    let disabled = case(Host::default(), &[("OFF", "1")], &[level(Some("OFF")), param()]);
    let cases = [&numbers[..], &levels[..], &[disabled]].concat();
    with_each(some(&[]), &cases, |library, outcomes| {
        let numbers: Vec<_> = outcomes[..7].iter().flat_map(|outcome| outcome.params.clone()).collect();
        let word = if library.is_at_least("2.32") { 7 } else { 0 };
        assert_eq!(numbers, [106, 106, 8, -1, word, 7, 7], "{}", library.version);
        let levels: Vec<Level> = outcomes[7..].iter().flat_map(|outcome| outcome.levels.clone()).collect();
        let names: Vec<_> = levels[..5].iter().map(|level| level.name.as_deref()).collect();
        assert_eq!(names, [Some("PXB"), Some("SYS"), Some("LOC"), Some("SYS"), None], "{}", library.version);
        assert_eq!((levels[2].number, levels[4].number, levels[5].number), (0, -2, 0), "{}", library.version);
        assert_eq!(outcomes[12].params, [7]);
    });
}

#[test]
fn a_crash_is_an_outcome_and_what_came_before_is_kept() {
    let range = case(host(), &[("NCCL_IB_ADDR_RANGE", "10.1.0.0")], &[Ask::Bootstrap, Ask::Ib]);
    with_each(some(&["2.21.5", "2.23.4"]), &[range.clone(), range], |library, outcomes| {
        let crashes = library.is_at_least("2.21") && !library.is_at_least("2.23");
        for outcome in outcomes {
            assert_eq!(outcome.crash, crashes.then_some(SIGSEGV), "{}", library.version);
            assert!(outcome.bootstrap.as_ref().unwrap().is_ok());
            assert_eq!(
                ib(&outcome).using.iter().filter(|used| used.gid.is_none()).count(),
                2 * usize::from(crashes)
            );
        }
    });
}
