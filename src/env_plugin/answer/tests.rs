use super::*;

const DECISION: &str = "\
rdma-init env plugin 1
node 5d2c
sys /elsewhere
set NCCL_IB_HCA==mlx5_0:1,mlx5_1
set NCCL_SOCKET_IFNAME==eth0
set NCCL_IB_TC=106
user NCCL_DEBUG=INFO
user NCCL_SECRET
conf NCCL_IB_SL=3
hca mlx5_0 b859:0001 0000:17:00.0
hca mlx5_1 0000:0000 0000:27:00.0
interface eth0 - 0000:31:00.0
end
";

fn device<'a>(name: &'a str, id: &'a str, pci: &'a str) -> Device<'a> {
    Device { name: name.as_bytes(), id: id.as_bytes(), pci: pci.as_bytes() }
}

/// Returns the answer for a variable as text: `process`, `unset`, or the value, with `!` before it if it
/// replaces a foreign one.
fn asked(present: Present, name: &str, value: Option<&str>, marker: Option<&str>) -> String {
    let mut memory = [0; 512];
    let decision = Decision::parse(DECISION.as_bytes()).unwrap();
    let settled = Settled::new(&decision, present, &|_, _| false, &mut Arena::new(&mut memory)).unwrap();
    match settled.answer(name.as_bytes(), value.map(str::as_bytes), marker.map(str::as_bytes)) {
        Answer::OfProcess => "process".to_owned(),
        Answer::Unset => "unset".to_owned(),
        Answer::Decided(value) => value.to_str().unwrap().to_owned(),
        Answer::InPlaceOfForeign(value) => format!("!{}", value.to_str().unwrap()),
    }
}

/// Returns the list of HCAs with these late ports, if the node has these HCAs and these ports are ACTIVE.
fn with_late(late: &str, present: &[Device], active: &[(&str, &str)]) -> String {
    let text = DECISION.replace("end\n", &format!("{late}end\n"));
    let mut memory = [0; 512];
    let decision = Decision::parse(text.as_bytes()).unwrap();
    let is_active = |hca: &[u8], port: &[u8]| {
        active.iter().any(|(name, number)| name.as_bytes() == hca && number.as_bytes() == port)
    };
    let present = Present { hcas: Some(present), interfaces: None };
    let settled = Settled::new(&decision, present, &is_active, &mut Arena::new(&mut memory)).unwrap();
    let Answer::Decided(value) = settled.answer(b"NCCL_IB_HCA", None, None) else { panic!("{late}") };
    value.to_str().unwrap().to_owned()
}

#[test]
fn a_port_that_has_come_up_is_added_under_the_name_that_its_hca_has_now() {
    let decided =
        [device("mlx5_0", "b859:0001", "0000:17:00.0"), device("mlx5_1", "b859:0007", "0000:27:00.0")];
    let third = |name| [&decided[..], &[device(name, "b859:0003", "0000:37:00.0")]].concat();
    let late = "late mlx5_2 1 mlx5_2 b859:0003 0000:37:00.0\n";
    let written = "=mlx5_0:1,mlx5_1";
    assert_eq!(with_late(late, &third("mlx5_2"), &[("mlx5_2", "1")]), "=mlx5_0:1,mlx5_1,mlx5_2");
    assert_eq!(with_late(late, &third("mlx5_5"), &[("mlx5_5", "1")]), "=mlx5_0:1,mlx5_1,mlx5_5");
    let of_second = late.replace("late mlx5_2 1", "late mlx5_2:2 2");
    assert_eq!(with_late(&of_second, &third("mlx5_2"), &[("mlx5_2", "2")]), "=mlx5_0:1,mlx5_1,mlx5_2:2");
    // The late port is still down, another port is up, or another HCA has its name.
    assert_eq!(with_late(late, &third("mlx5_2"), &[]), written);
    assert_eq!(with_late(late, &third("mlx5_2"), &[("mlx5_2", "2")]), written);
    let other = [&decided[..], &[device("mlx5_2", "b859:0009", "0000:47:00.0")]].concat();
    assert_eq!(with_late(late, &other, &[("mlx5_2", "1")]), written);
}

fn marker(node: &str, list: &[(&str, &str)]) -> String {
    let entries: Vec<String> = list
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8(hash(value.as_bytes()).into()).unwrap()))
        .collect();
    format!("1:{node}:{}", entries.join(","))
}

#[test]
fn only_a_whole_decision_is_parsed() {
    let whole = Decision::parse(DECISION.as_bytes()).unwrap();
    assert_eq!((whole.sys, whole.proc), (&b"/elsewhere"[..], &b"/proc"[..]));
    for length in 0..DECISION.len() {
        assert!(Decision::parse(&DECISION.as_bytes()[..length]).is_none(), "{length}");
    }
    for broken in [
        DECISION.replace("plugin 1", "plugin 2"),
        DECISION.replace("node 5d2c\n", ""),
        DECISION.replace("106", "1\u{0}6"),
        DECISION.replace("eth0 - 0000:31:00.0", "eth0"),
        format!("{DECISION}set NCCL_IB_TC=1\n"),
        DECISION.replace("end\n", &format!("{}end\n", "set A=1\n".repeat(MOST_VARIABLES))),
        DECISION.replace("end\n", "late mlx5_2 1\nend\n"),
        DECISION.replace("end\n", &format!("{}end\n", "late a 1 a - -\n".repeat(MOST_LATE + 1))),
    ] {
        assert!(Decision::parse(broken.as_bytes()).is_none(), "{broken}");
    }
    assert!(Decision::parse(DECISION.replace("sys ", "later ").as_bytes()).is_some());
    assert_eq!(Decision::parse(DECISION.replace("sys ", "boot ").as_bytes()).unwrap().boot, b"/elsewhere");
    let small = &mut [0; 16];
    let decision = Decision::parse(DECISION.as_bytes()).unwrap();
    assert!(Settled::new(&decision, Present::default(), &|_, _| false, &mut Arena::new(small)).is_none());
}

#[test]
fn the_value_of_the_process_stands_unless_it_is_a_copy() {
    let asked = |name: &str, value: Option<&str>, marker: Option<&str>| {
        asked(Present::default(), name, value, marker)
    };
    assert_eq!(asked("NCCL_IB_TC", None, None), "106");
    assert_eq!(asked("NCCL_IB_TC", Some("41"), None), "process");
    assert_eq!(asked("NCCL_IB_TC", Some(""), None), "process");
    assert_eq!(asked("NCCL_ALGO", None, None), "process");
    assert_eq!(asked("NCCL_ALGO", Some("Ring"), None), "process");
    let list = [("IB_TC", "41"), ("ALGO", "Ring"), ("DEBUG", "WARN"), ("SECRET", "x")];
    let foreign = marker("77aa", &list);
    let foreign = Some(foreign.as_str());
    assert_eq!(asked("NCCL_IB_TC", Some("41"), foreign), "106");
    assert_eq!(asked("NCCL_ALGO", Some("Ring"), foreign), "unset");
    assert_eq!(asked("NCCL_DEBUG", Some("WARN"), foreign), "INFO");
    // This node's user set it, but its value is unknown.
    assert_eq!(asked("NCCL_SECRET", Some("x"), foreign), "process");
    // This node's conf file sets it, and NCCL has read that file.
    assert_eq!(asked("NCCL_IB_SL", None, foreign), "process");
    let copy = marker("77aa", &[("IB_SL", "5")]);
    assert_eq!(asked("NCCL_IB_SL", Some("5"), Some(copy.as_str())), "3");
    assert_eq!(asked("NCCL_IB_SL", Some("5"), None), "process");
    // A person changed the value after it was copied.
    assert_eq!(asked("NCCL_IB_TC", Some("42"), foreign), "process");
    assert_eq!(asked("NCCL_ALGO", Some("Tree"), foreign), "process");
    assert_eq!(asked("NCCL_IB_SL", Some("41"), foreign), "process");
    let own = marker("5d2c", &list);
    assert_eq!(asked("NCCL_IB_TC", Some("41"), Some(own.as_str())), "process");
    for broken in ["", "1", "1:77aa", "2:77aa:IB_TC=0", "1:77aa:IB_TC", "1:77aa:,=,"] {
        assert_eq!(asked("NCCL_IB_TC", Some("41"), Some(broken)), "process", "{broken}");
    }
}

#[test]
fn devices_are_found_under_their_new_names() {
    let with = |present: &[Device]| {
        asked(Present { hcas: Some(present), interfaces: None }, "NCCL_IB_HCA", None, None)
    };
    let usual =
        [device("mlx5_0", "b859:0001", "0000:17:00.0"), device("mlx5_1", "0000:0000", "0000:27:00.0")];
    assert_eq!(with(&usual), "=mlx5_0:1,mlx5_1");
    let swapped = [device("mlx5_1", "b859:0001", ""), device("mlx5_0", "0000:0000", "0000:27:00.0")];
    assert_eq!(with(&swapped), "=mlx5_1:1,mlx5_0");
    // The GUID identifies the device, wherever it is now; without a GUID, its PCI address does.
    let moved = [device("ibp1", "b859:0001", "0000:99:00.0"), device("mlx5_7", "", "0000:27:00.0")];
    assert_eq!(with(&moved), "=ibp1:1,mlx5_7");
    assert_eq!(with(&[]), "=mlx5_0:1,mlx5_1");
    let of_two = [device("a", "b859:0001", ""), device("b", "b859:0001", "")];
    assert_eq!(with(&of_two), "=mlx5_0:1,mlx5_1");
    let interfaces = [device("ens5", "", "0000:31:00.0")];
    let present = || Present { hcas: None, interfaces: Some(&interfaces) };
    assert_eq!(asked(present(), "NCCL_SOCKET_IFNAME", None, None), "=ens5");
    // The environment and a conf file contain the value as it was decided, with the marker.
    let own = marker("5d2c", &[("SOCKET_IFNAME", "=eth0")]);
    let asked = |value, marker| asked(present(), "NCCL_SOCKET_IFNAME", Some(value), marker);
    assert_eq!(asked("=eth0", Some(own.as_str())), "=ens5");
    assert_eq!(asked("=ens5", Some(own.as_str())), "process");
    // The value no longer names any device, even if a person set it.
    assert_eq!(asked("=eth0", None), "!=ens5");
}

#[test]
fn a_value_of_foreign_devices_alone_is_replaced_without_a_marker() {
    let here = [device("mlx5_0", "b859:0001", ""), device("mlx5_10", "", "0000:27:00.0")];
    let asked = |value| {
        let present = Present { hcas: Some(&here), interfaces: Some(&[]) };
        asked(present, "NCCL_IB_HCA", Some(value), None)
    };
    let decided = "!=mlx5_0:1,mlx5_10";
    for (value, wanted) in [
        ("mlx5_7", decided),
        ("=mlx5_1", decided),
        ("=mlx5_7:1,mlx5_8:1", decided),
        // The value is a prefix of a device that is present.
        ("mlx5_1", "process"),
        ("mlx5", "process"),
        ("=mlx5_7,mlx5_0:2", "process"),
        ("^mlx5_7", "process"),
        ("^=mlx5_7", "process"),
        ("", "process"),
        ("=", "process"),
        (",", "process"),
        // A person may want no device at all.
        ("none", "process"),
        ("0", "process"),
        (" ", "process"),
    ] {
        assert_eq!(asked(value), wanted, "{value}");
    }
    let unknown = self::asked(Present::default(), "NCCL_IB_HCA", Some("=mlx5_7"), None);
    assert_eq!(unknown, "process");
    let other = Present { hcas: Some(&here), interfaces: Some(&here) };
    assert_eq!(self::asked(other, "NCCL_IB_TC", Some("mlx5_7"), None), "process");
}

/// If the value is only a name, it selects by prefix.
#[test]
fn an_interface_is_found_under_its_new_name_if_its_name_alone_was_filled_in() {
    let asked = |written: &str, saved: &str, present: &[Device]| {
        let text =
            format!("rdma-init env plugin 1\nnode 5d2c\nset NCCL_SOCKET_IFNAME={written}\n{saved}end\n");
        let mut memory = [0; 512];
        let decision = Decision::parse(text.as_bytes()).unwrap();
        let present = Present { hcas: None, interfaces: Some(present) };
        let settled = Settled::new(&decision, present, &|_, _| false, &mut Arena::new(&mut memory)).unwrap();
        match settled.answer(b"NCCL_SOCKET_IFNAME", None, None) {
            Answer::Decided(value) => value.to_str().unwrap().to_owned(),
            Answer::Unset => "unset".to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let saved = "interface eth0 - 0000:31:00.0\n";
    let renamed =
        [device("lo", "", ""), device("ens5", "", "0000:31:00.0"), device("eth0", "", "0000:41:00.0")];
    assert_eq!(asked("eth0", saved, &renamed), "=ens5");
    assert_eq!(asked("eth0", saved, &[device("eth0", "", "0000:31:00.0")]), "eth0");
    // The process's network namespace lacks it, and NCCL would fail with the name.
    assert_eq!(asked("eth0", saved, &[]), "unset");
    assert_eq!(asked("=eth0", saved, &[device("eth0.7", "", "")]), "unset");
    // The value may mean, or exclude, other devices.
    assert_eq!(asked("eth", saved, &renamed), "eth");
    assert_eq!(asked("^eth0", saved, &renamed), "^eth0");
    let two = format!("{saved}interface eth0.7 - 0000:51:00.0\n");
    assert_eq!(asked("eth0", &two, &renamed), "eth0");
}

/// Only the marker shows that an equal value is this node's own.
#[test]
fn a_persons_list_of_hcas_gets_no_port_that_came_up_late() {
    let text = DECISION.replace("end\n", "late mlx5_2 1 mlx5_2 b859:0003 0000:37:00.0\nend\n");
    let names = ["mlx5_0", "mlx5_1", "mlx5_2"];
    let places = ["0000:17:00.0", "0000:27:00.0", "0000:37:00.0"];
    let here: Vec<Device> = std::iter::zip(names, places).map(|(name, pci)| device(name, "", pci)).collect();
    let mut memory = [0; 512];
    let decision = Decision::parse(text.as_bytes()).unwrap();
    let present = Present { hcas: Some(&here), interfaces: None };
    let settled = Settled::new(&decision, present, &|_, _| true, &mut Arena::new(&mut memory)).unwrap();
    let written = "=mlx5_0:1,mlx5_1";
    let asked = |marker: Option<&str>| {
        let marker = marker.map(str::as_bytes);
        match settled.answer(b"NCCL_IB_HCA", Some(written.as_bytes()), marker) {
            Answer::Decided(value) => value.to_str().unwrap(),
            _ => "process",
        }
    };
    let with = |value| marker("5d2c", &[("IB_HCA", value)]);
    assert_eq!(asked(Some(&with(written))), "=mlx5_0:1,mlx5_1,mlx5_2");
    assert_eq!(asked(Some(&with("=mlx5_1"))), "process");
    assert_eq!(asked(None), "process");
}
