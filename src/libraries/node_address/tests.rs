use super::route::{Takes, by_route};
use super::*;
use crate::fabric::Rails;
use crate::facts::Facts;
use crate::facts::names::Names;
use crate::facts::route::Route;

const VLLM: AddressingProgram = AddressingProgram {
    library: "vLLM",
    variable: "VLLM_HOST_IP",
    also: None,
    of_interface: None,
    asks_for_name: false,
};
const SGLANG: AddressingProgram = AddressingProgram {
    library: "SGLang",
    variable: "SGLANG_HOST_IP",
    also: Some("HOST_IP"),
    of_interface: Some("SGLANG_LOCAL_IP_NIC"),
    asks_for_name: true,
};

fn facts(routes: &[(&str, &str, Option<&str>, u32)]) -> Facts {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.to_owned(),
        flags: vec!["UP".to_owned(), "RUNNING".to_owned()],
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..Interface::default()
    };
    let mut facts = Facts::default();
    facts.net.interfaces = vec![
        interface("lo", &["127.0.0.1/8", "::1/128"]),
        interface("eth0", &["10.9.0.5/24", "10.0.0.5/24", "fd00::5/64"]),
        interface("wlan0", &["192.168.1.5/24", "fe80::5/64"]),
    ];
    facts.net.routes = routes
        .iter()
        .map(|(interface, destination, gateway, metric)| Route {
            interface: (*interface).to_owned(),
            destination: destination.parse().unwrap(),
            source: None,
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            metric: *metric,
            table: crate::facts::route::MAIN,
        })
        .collect();
    facts
}

fn taken(routes: &[(&str, &str, Option<&str>, u32)]) -> String {
    match by_route(&facts(routes)) {
        Some(Takes::ByRoute { address, interface }) => format!("{address} on {interface}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn the_best_route_leads_to_the_address_beside_its_gateway() {
    let eth0 = ("eth0", "0.0.0.0/0", Some("10.0.0.1"), 100);
    assert_eq!(taken(&[eth0]), "10.0.0.5 on eth0");
    assert_eq!(taken(&[("eth0", "0.0.0.0/0", None, 0)]), "10.9.0.5 on eth0");
    let wlan0 = ("wlan0", "0.0.0.0/0", Some("192.168.1.1"), 600);
    assert_eq!(taken(&[wlan0, eth0]), "10.0.0.5 on eth0", "the lower metric wins");
    assert_eq!(taken(&[("wlan0", "8.0.0.0/8", None, 600), eth0]), "192.168.1.5 on wlan0");
    let equal = ("wlan0", "0.0.0.0/0", Some("192.168.1.1"), 100);
    assert_eq!(taken(&[equal, eth0]), "192.168.1.5 on wlan0", "the first of two");
    assert_eq!(taken(&[("eth0", "::/0", Some("fd00::1"), 0)]), "fd00::5 on eth0");
    assert_eq!(taken(&[("wlan0", "::/0", Some("fe80::1"), 0)]), "None", "it has no such address");
    assert_eq!(taken(&[("eth0", "10.0.0.0/24", None, 0)]), "None");
}

/// Returns the fill and the finding's message, with eth0 as the job's interface.
fn asked(program: &AddressingProgram, facts: &Facts, set: &[(&str, &str)]) -> (Option<String>, String) {
    let rails = Rails { ports: &[], gid_index: None, interface: Some("eth0") };
    let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let subject = LibraryContext::of(facts, &rails, &value);
    let message = program.finding(&subject).map(|finding| finding.message).unwrap_or_default();
    (program.fill(&subject).and_then(|fill| fill.value), message)
}

/// Returns the fill, and asserts that there is no finding.
fn filled(program: &AddressingProgram, facts: &Facts, set: &[(&str, &str)]) -> Option<String> {
    let (filled, message) = asked(program, facts, set);
    assert_eq!(message, "");
    filled
}

/// Returns the finding's message, and asserts that there is no fill.
fn said(program: &AddressingProgram, facts: &Facts, set: &[(&str, &str)]) -> String {
    let (filled, message) = asked(program, facts, set);
    assert_eq!(filled, None);
    message
}

#[test]
fn an_address_is_filled_in_where_the_program_would_take_another_one() {
    let own = facts(&[("eth0", "0.0.0.0/0", Some("10.0.0.1"), 0)]);
    let wlan = facts(&[("wlan0", "0.0.0.0/0", Some("192.168.1.1"), 0)]);
    let mut isolated = facts(&[]);
    let address = Some("10.9.0.5".to_owned());
    for program in [&VLLM, &SGLANG] {
        assert_eq!(filled(program, &own, &[]), None, "it is right by itself");
        assert_eq!(filled(program, &wlan, &[]), address);
        let variable = program.variable;
        assert_eq!(filled(program, &wlan, &[(variable, "10.9.0.5")]), None);
        assert_eq!(filled(program, &own, &[(variable, "")]), None, "an empty value stands");
        assert_eq!(filled(program, &own, &[(variable, "node-0")]), None);
        for (value, what) in [
            ("127.0.0.1", "they look for it on themselves"),
            ("0.0.0.0", "they look for it on themselves"),
            ("10.9.9.9", "no interface of this container has this address"),
            ("192.168.1.5", "is an address of wlan0, but NCCL bootstraps on eth0"),
        ] {
            let said = said(program, &own, &[(variable, value)]);
            assert!(said.contains(what), "{value}: {said}");
        }
    }
    assert_eq!(filled(&VLLM, &isolated, &[]), address);
    assert_eq!(filled(&SGLANG, &isolated, &[]), None, "DNS may know the host's name");
    let mut name = |address: &str| {
        let host_addresses = vec![address.parse().unwrap()];
        isolated.names = Some(Names { host: "node".to_owned(), host_addresses, ..Names::default() });
        filled(&SGLANG, &isolated, &[])
    };
    assert_eq!(name("127.0.1.1"), address);
    assert_eq!(name("10.0.0.5"), None);
    assert_eq!(name("192.168.1.5"), address);
    // Only SGLang reads HOST_IP, which often contains the host's address.
    assert_eq!(filled(&SGLANG, &own, &[("HOST_IP", "10.200.0.1")]), address);
    assert_eq!(filled(&SGLANG, &wlan, &[("HOST_IP", "10.0.0.5")]), None);
    assert_eq!(filled(&VLLM, &own, &[("HOST_IP", "10.200.0.1")]), None);
    let lost =
        "SGLANG_LOCAL_IP_NIC=eth7: no interface here has this name and an address, so SGLang ignores it.";
    assert_eq!(said(&SGLANG, &wlan, &[("SGLANG_LOCAL_IP_NIC", "eth7")]), lost);
    assert_eq!(filled(&SGLANG, &wlan, &[("SGLANG_LOCAL_IP_NIC", "eth0")]), None);
    let mut alone = wlan.clone();
    alone.platform.nodes = Some(crate::facts::launchers::Nodes { count: 1, this: 0 });
    assert_eq!(filled(&VLLM, &alone, &[]), None);
    assert_eq!(filled(&VLLM, &alone, &[("VLLM_HOST_IP", "127.0.0.1")]), None);
}
