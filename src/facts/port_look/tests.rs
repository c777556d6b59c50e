use super::*;
use crate::facts::fake_root::FakeRoot;

#[test]
fn a_look_again_shows_what_is_there_now() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let files = |state: &str, sent: &str| {
        root.files(port, &[("state", state), ("counters/port_xmit_data", sent)]);
    };
    let mut looker = Looker::new(&root.path(""));
    let (before, device) = (PortLook::default(), DeviceIdentity::default());
    let mut look = || {
        let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
        let look = looker.look(std::iter::once(known)).remove(0);
        (look.errors.state(), look.traffic.sent.bytes)
    };
    files("4: ACTIVE\n", "1\n");
    assert_eq!(look(), (Some(4), Some(4)));
    files("1: DOWN\n", "2\n");
    assert_eq!(look(), (Some(1), Some(8)));
    // The device goes, and another one gets its name.
    std::fs::rename(root.path("sys/class/infiniband/x_0"), root.path("away")).unwrap();
    assert_eq!(look(), (None, None));
    files("4: ACTIVE\n", "7\n");
    assert_eq!(look(), (Some(4), Some(28)));
    // Another file in the place of an open one shows in the end.
    std::fs::remove_file(root.path(&format!("{port}/state"))).unwrap();
    files("2: INIT\n", "8\n");
    assert_eq!(look(), (Some(4), Some(32)));
    assert!((0..=LOOKS).any(|_| look() == (Some(2), Some(32))));
}

#[test]
fn a_device_is_followed_to_another_name() {
    let root = FakeRoot::new();
    let class = "sys/class/infiniband";
    let put = |hca: &str, sent: &str| {
        let files = [("ports/1/state", "4: ACTIVE\n"), ("ports/1/counters/port_xmit_data", sent)];
        root.files(&format!("{class}/{hca}"), &files);
        root.file(&format!("{class}/{hca}/node_guid"), "b859:9f03:00aa:0001\n");
    };
    put("x_0", "1\n");
    let device = DeviceIdentity { node_guid: Some("b859:9f03:00aa:0001".into()), pci_address: None };
    let before = PortLook::default();
    let mut looker = Looker::new(&root.path(""));
    let mut look = || {
        let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
        let look = looker.look(std::iter::once(known)).remove(0);
        (look.errors.state(), look.traffic.sent.bytes, look.renamed)
    };
    let mv = |from: &str, to: &str| {
        std::fs::rename(root.path(&format!("{class}/{from}")), root.path(&format!("{class}/{to}"))).unwrap();
    };
    assert_eq!(look(), (Some(4), Some(4), None));
    mv("x_0", "x_9");
    let other = Some("x_9".to_owned());
    // At once, or at the next look at least.
    look();
    assert_eq!(look(), (Some(4), Some(4), other.clone()));
    // A made-up file is the same under its new name.
    root.file(&format!("{class}/x_9/ports/1/counters/port_xmit_data"), "3\n");
    for _ in 0..2 * LOOKS {
        assert_eq!(look(), (Some(4), Some(12), other.clone()));
    }
    // Another device takes the name.
    put("x_0", "5\n");
    root.file(&format!("{class}/x_0/node_guid"), "b859:9f03:00aa:0002\n");
    assert_eq!(look().2, other);
    std::fs::rename(root.path(&format!("{class}/x_9")), root.path("away")).unwrap();
    look();
    assert_eq!(look(), (None, None, None), "the other device is not this one");
    std::fs::rename(root.path(&format!("{class}/x_0")), root.path("away_2")).unwrap();
    std::fs::rename(root.path("away"), root.path(&format!("{class}/x_0"))).unwrap();
    look();
    assert_eq!(look(), (Some(4), Some(12), None));
}

#[test]
fn every_second_look_at_a_port_that_rests_shows_all_of_it() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let mut looker = Looker::new(&root.path(""));
    let (before, device) = (PortLook::default(), DeviceIdentity::default());
    let mut partial = Vec::new();
    let mut shown = |sent: u64, downs: u64| {
        let [sent, downs] = [sent, downs].map(|count| format!("{count}\n"));
        let counters = [("counters/port_xmit_data", &*sent), ("counters/link_downed", &*downs)];
        root.files(port, &[&[("state", "4: ACTIVE\n")], &counters[..]].concat());
        let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
        let look = looker.look(std::iter::once(known)).remove(0);
        partial.push(look.is_partial);
        let rises = look.errors.since(&zero());
        rises.first().map_or(0, |rise| rise.count)
    };
    let rests: Vec<u64> = (1..9).map(|downs| shown(5, downs)).collect();
    assert_eq!(rests, [1, 1, 3, 3, 5, 5, 7, 7]);
    let moves: Vec<u64> = (9..13).map(|downs| shown(downs, downs)).collect();
    assert_eq!(moves, [9, 10, 11, 12]);
    // What a look does not show, it does not count as read.
    let wanted = [false, true].repeat(4).into_iter().chain([false; 4]);
    assert_eq!(partial, wanted.collect::<Vec<_>>());
}

/// Something has happened, and may be in any file.
#[test]
fn a_look_after_an_event_shows_all() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let mut looker = Looker::new(&root.path(""));
    let (before, device) = (PortLook::default(), DeviceIdentity::default());
    let mut shown = |downs: u64, is_after_event: bool| {
        let downs = format!("{downs}\n");
        root.files(
            port,
            &[("state", "4: ACTIVE\n"), ("counters/port_xmit_data", "5\n"), ("counters/link_downed", &downs)],
        );
        if is_after_event {
            looker.look_at_all();
        }
        let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
        let look = looker.look(std::iter::once(known)).remove(0);
        look.errors.since(&zero()).first().map_or(0, |rise| rise.count)
    };
    assert_eq!(
        [shown(1, false), shown(2, false), shown(3, true), shown(4, true), shown(5, false)],
        [1, 1, 3, 4, 4]
    );
    for downs in 6..6 + 2 * u64::from(LOOKS) {
        assert_eq!(shown(downs, true), downs);
    }
}

/// A driver that is loaded again within an interval: no look sees the device gone.
#[test]
fn a_device_that_goes_and_comes_back_between_two_looks_is_another_one() {
    let root = FakeRoot::new();
    let class = "sys/class/infiniband";
    let put = || root.file(&format!("{class}/x_0/ports/1/state"), "4: ACTIVE\n");
    put();
    let device = DeviceIdentity::default();
    let reader = root.reader();
    let before = first(&reader, &Counters::new(&reader), "x_0", 1, None);
    let mut looker = Looker::new(&root.path(""));
    let mut look = || {
        let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
        looker.look(std::iter::once(known)).remove(0)
    };
    for _ in 0..2 * LOOKS {
        assert!(!look().is_replaced_since(&before));
    }
    let last = look();
    std::fs::rename(root.path(&format!("{class}/x_0")), root.path("away")).unwrap();
    put();
    assert!((0..2).any(|_| look().is_replaced_since(&last)), "within two looks");
    let now = look();
    assert!(!look().is_replaced_since(&now) && now.errors.is_active());
}

#[test]
fn the_files_of_a_port_at_rest_are_only_compared() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let file = |name: &str, text: &str| root.file(&format!("{port}/{name}"), text);
    let (sent, downs) = ("counters/port_xmit_data", "counters/link_downed");
    for (name, text) in [
        ("state", "4: ACTIVE\n"),
        ("rate", "200 Gb/sec (4X HDR)\n"),
        (sent, "1\n"),
        ("counters/port_xmit_packets", "1\n"),
        (downs, "0\n"),
    ] {
        file(name, text);
    }
    let (before, device) = (PortLook::default(), DeviceIdentity::default());
    let mut looker = Looker::new(&root.path(""));
    let mut look = |count: usize| {
        let mut shown = None;
        for _ in 0..count {
            let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
            let look = looker.look(std::iter::once(known)).remove(0);
            let rises = look.errors.since(&zero());
            shown =
                Some((look.errors.state(), look.traffic.sent.bytes, rises.first().map(|rise| rise.count)));
        }
        let files = looker.ports[0].files.as_ref().map(|files| files.each_ref().map(Vec::len));
        (shown.unwrap(), files)
    };
    // The state and the bytes; all others but the packets.
    let files = Some([2, 2]);
    assert_eq!(look(5), ((Some(4), Some(4), None), files));
    file(downs, "3\n");
    assert_eq!(look(2), ((Some(4), Some(4), Some(3)), files));
    file("state", "1: DOWN\n");
    assert_eq!(look(1), ((Some(1), Some(4), Some(3)), files));
    file(sent, "2\n");
    assert_eq!(look(1), ((Some(1), Some(8), Some(3)), files));
    assert_eq!(look(LOOKS as usize * 2), ((Some(1), Some(8), Some(3)), files));
    std::fs::rename(root.path("sys/class/infiniband/x_0"), root.path("away")).unwrap();
    assert_eq!(look(2), ((None, None, None), None));
}

/// Each place is in files that were not read before.
#[test]
fn a_gid_of_a_port_at_rest_is_followed_from_place_to_place() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let (own, none) =
        ("0000:0000:0000:0000:0000:ffff:0a00:0003\n", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    let file = |name: &str, text: &str| root.file(&format!("{port}/{name}"), text);
    file("state", "4: ACTIVE\n");
    file("counters/port_xmit_data", "1\n");
    for index in 1..5 {
        file(&format!("gids/{index}"), if index == 1 { own } else { none });
        file(&format!("gid_attrs/types/{index}"), "RoCE v2\n");
    }
    let gid = "::ffff:10.0.0.3".parse().unwrap();
    let used = UsedGid { index: 1, gid, kind: GidType::RoceV2, is_searched: Some(true) };
    let (before, device) = (PortLook::default(), DeviceIdentity::default());
    let mut looker = Looker::new(&root.path(""));
    let mut look = |count: usize| {
        let mut shown = None;
        for _ in 0..count {
            let known = KnownPort { hca: "x_0", port: 1, gid: Some(&used), device: &device, before: &before };
            shown = looker.look(std::iter::once(known)).remove(0).gid;
        }
        shown.unwrap()
    };
    let moves = |from: u32, to: u32| {
        file(&format!("gids/{to}"), own);
        file(&format!("gids/{from}"), none);
    };
    assert_eq!(look(6), GidPlace::InPlace);
    for (from, to, place) in [
        (1, 2, GidPlace::At(2)),
        (2, 3, GidPlace::At(3)),
        (3, 4, GidPlace::At(4)),
        (4, 1, GidPlace::InPlace),
        (1, 2, GidPlace::At(2)),
    ] {
        moves(from, to);
        assert_eq!(look(2), place, "within two looks");
        assert_eq!(look(4), place);
    }
    moves(2, 1);
    assert_eq!(look(6), GidPlace::InPlace);
    for index in 1..5 {
        file(&format!("gid_attrs/types/{index}"), "IB/RoCE v1\n");
    }
    assert_eq!(look(2), GidPlace::Retyped);
    assert_eq!(look(4), GidPlace::Retyped);
    moves(1, 2);
    file("gid_attrs/types/2", "RoCE v2\n");
    assert_eq!(look(2), GidPlace::At(2));
}

/// No counter has counted anything.
fn zero() -> PortErrors {
    let root = FakeRoot::new();
    root.file("sys/class/infiniband/x_0/ports/1/counters/link_downed", "0\n");
    let reader = root.reader();
    port_errors::read(&Counters::new(&reader).of("x_0", 1))
}

#[test]
fn a_gid_is_found_where_it_is() {
    let root = FakeRoot::new();
    let port = "sys/class/infiniband/x_0/ports/1";
    let gid = "::ffff:10.0.0.3".parse().unwrap();
    let used = UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: Some(true) };
    let look = |files: &[(&str, &str)]| {
        root.files(port, files);
        let reader = root.reader();
        let found = read(&reader, &Counters::new(&reader), "x_0", 1, Some(&used), None);
        (found.gid.unwrap(), found.rate)
    };
    let (own, none) =
        ("0000:0000:0000:0000:0000:ffff:0a00:0003\n", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    let gone = GidPlace::Gone { has_address: true };
    assert_eq!(look(&[]), (gone, None));
    let rate = ("rate", "200 Gb/sec (4X HDR)\n");
    assert_eq!(look(&[("gids/3", own), rate]), (GidPlace::InPlace, Some("200 Gb/sec (4X HDR)".to_owned())));
    // RoCE v1 has the same GID.
    let v1 = [("gids/3", none), ("gids/4", own), ("gid_attrs/types/4", "IB/RoCE v1\n")];
    assert_eq!(look(&v1).0, gone);
    assert_eq!(look(&[("gids/5", own), ("gid_attrs/types/5", "RoCE v2\n")]).0, GidPlace::At(5));
    // It swaps its index with that of RoCE v1.
    let v2_at = |index: &str| {
        let other = if index == "3" { "4" } else { "3" };
        let types = [index, other].map(|index| format!("gid_attrs/types/{index}"));
        look(&[
            ("gids/3", own),
            ("gids/4", own),
            ("gids/5", none),
            (&types[0], "RoCE v2\n"),
            (&types[1], "IB/RoCE v1\n"),
        ])
        .0
    };
    assert_eq!([v2_at("3"), v2_at("4")], [GidPlace::InPlace, GidPlace::At(4)]);
    assert_eq!(look(&[("gids/4", none)]).0, GidPlace::Retyped);
}
