//! Tests with servers on loopback that give the answers that a test wants, and with files in a
//! temporary directory.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use simple_dns::rdata::{A, AAAA, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};

use super::exchange::{Reply, ask};
use super::message::{Family, ServerAnswer, answer, question};
use super::settings::ResolverSettings;
use super::*;

/// Returns the messages with which a server answers a question. The bool says whether the question
/// arrived over TCP. Over UDP, the server sends all of the messages; over TCP, only the first.
type Says = fn(&Packet, bool) -> Vec<Vec<u8>>;

struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server, which runs until the tests end.
    fn start(says: Says) -> Server {
        // A UDP socket of another test may have the same port.
        let (stream, datagrams) = loop {
            let stream = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(datagrams) = UdpSocket::bind(stream.local_addr().unwrap()) {
                break (stream, datagrams);
            }
        };
        let address = stream.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = datagrams.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::SeqCst);
                for bytes in says(&Packet::parse(&buffer[..length]).unwrap(), false) {
                    datagrams.send_to(&bytes, from).unwrap();
                }
            }
        });
        thread::spawn(move || {
            for connection in stream.incoming() {
                let mut connection = connection.unwrap();
                let mut length = [0; 2];
                connection.read_exact(&mut length).unwrap();
                let mut bytes = vec![0; u16::from_be_bytes(length).into()];
                connection.read_exact(&mut bytes).unwrap();
                let Some(bytes) = says(&Packet::parse(&bytes).unwrap(), true).into_iter().next() else {
                    continue;
                };
                connection.write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes()).unwrap();
                connection.write_all(&bytes).unwrap();
            }
        });
        Server { address, asked }
    }
}

fn settings(servers: &[&Server]) -> ResolverSettings {
    let mut settings = ResolverSettings::parse(b"search ns.svc svc\noptions ndots:5 attempts:1 timeout:3\n");
    settings.servers = servers.iter().map(|server| server.address).collect();
    settings
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn family(packet: &Packet) -> Family {
    match packet.questions[0].qtype {
        simple_dns::QTYPE::TYPE(simple_dns::TYPE::A) => Family::Ipv4,
        _ => Family::Ipv6,
    }
}

fn reply<'a>(packet: &Packet<'a>) -> Packet<'a> {
    let mut reply = Packet::new_reply(packet.id());
    reply.questions.clone_from(&packet.questions);
    reply
}

fn record<'a>(name: &Name<'a>, data: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(name.clone(), CLASS::IN, 5, data)
}

/// Makes this many addresses of the question's family.
fn addresses_of<'a>(packet: &Packet<'a>, name: &Name<'a>, number: u8) -> Vec<ResourceRecord<'a>> {
    let data = |last: u8| match family(packet) {
        Family::Ipv4 => RData::A(A { address: u32::from_be_bytes([10, 0, 0, last]) }),
        Family::Ipv6 => RData::AAAA(AAAA { address: (0xfd00 << 112) + u128::from(last) }),
    };
    (1..=number).map(|last| record(name, data(last))).collect()
}

fn is_asked_for(packet: &Packet, name: &str) -> bool {
    packet.questions[0].qname == Name::new(name).unwrap()
}

fn bytes(packet: &Packet) -> Vec<Vec<u8>> {
    vec![packet.build_bytes_vec_compressed().unwrap()]
}

/// Answers as a server that knows `node2.svc` and, as an alias, `alias.svc`.
fn knows_node2(packet: &Packet, _: bool) -> Vec<Vec<u8>> {
    let mut reply = reply(packet);
    let node2 = Name::new("node2.svc").unwrap();
    if is_asked_for(packet, "node2.svc") {
        reply.answers = addresses_of(packet, &node2, 1);
    } else if is_asked_for(packet, "alias.svc") {
        let alias = packet.questions[0].qname.clone();
        reply.answers = vec![record(&alias, RData::CNAME(CNAME(node2.clone())))];
        reply.answers.extend(addresses_of(packet, &node2, 1));
        // This address belongs to another name, which was not requested.
        reply.answers.extend(addresses_of(packet, &Name::new("other.svc").unwrap(), 9));
    } else {
        *reply.rcode_mut() = RCODE::NameError;
    }
    bytes(&reply)
}

fn silent(_: &Packet, _: bool) -> Vec<Vec<u8>> {
    Vec::new()
}

fn shown(found: &[IpAddr]) -> Vec<String> {
    found.iter().map(IpAddr::to_string).collect()
}

#[test]
fn a_name_is_looked_for_in_the_search_list() {
    let server = Server::start(knows_node2);
    for name in ["node2", "NODE2", "alias", "node2.svc"] {
        let found = by_dns(&settings(&[&server]), name, soon()).unwrap();
        assert_eq!(shown(&found), ["10.0.0.1", "fd00::1"], "{name}");
    }
    let asked = server.asked.load(Ordering::SeqCst);
    let why = by_dns(&settings(&[&server]), "node2.", soon()).unwrap_err();
    assert_eq!(why, "DNS (127.0.0.1) does not know it (node2)");
    assert_eq!(server.asked.load(Ordering::SeqCst) - asked, 2, "one name, two families");
    let why = by_dns(&settings(&[&server]), "node3", soon()).unwrap_err();
    assert_eq!(why, "DNS (127.0.0.1) does not know it (node3.ns.svc, node3.svc, node3)");
}

#[test]
fn families_are_asked_for_as_the_settings_say() {
    let server = Server::start(knows_node2);
    let mut settings = settings(&[&server]);
    settings.one_by_one = true;
    assert_eq!(shown(&by_dns(&settings, "node2", soon()).unwrap()), ["10.0.0.1", "fd00::1"]);
    settings.only_ipv4 = true;
    assert_eq!(shown(&by_dns(&settings, "node2", soon()).unwrap()), ["10.0.0.1"]);
    settings.only_tcp = true;
    let asked = server.asked.load(Ordering::SeqCst);
    assert_eq!(shown(&by_dns(&settings, "node2", soon()).unwrap()), ["10.0.0.1"]);
    assert_eq!(server.asked.load(Ordering::SeqCst), asked, "no datagram");
}

#[test]
fn a_long_answer_comes_over_tcp() {
    let server = Server::start(|packet, over_tcp| {
        let mut reply = reply(packet);
        let name = packet.questions[0].qname.clone();
        reply.answers = addresses_of(packet, &name, if over_tcp { 200 } else { 1 });
        if !over_tcp {
            reply.set_flags(PacketFlag::TRUNCATION);
        }
        bytes(&reply)
    });
    let found = by_dns(&settings(&[&server]), "node2.", soon()).unwrap();
    // Only this many addresses of each family are used.
    assert_eq!(found.len(), 2 * MOST);
    assert_eq!(shown(&found[..2]), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn the_next_server_is_asked_if_one_fails_or_is_silent() {
    let fails = Server::start(|packet, _| {
        let mut reply = reply(packet);
        *reply.rcode_mut() = RCODE::ServerFailure;
        bytes(&reply)
    });
    let (quiet, good) = (Server::start(silent), Server::start(knows_node2));
    // The kernel reports that no server is at this address.
    let gone =
        Server { address: UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap(), ..good.clone() };
    let found = by_dns(&settings(&[&fails, &gone, &quiet, &good]), "node2.svc.", soon()).unwrap();
    assert_eq!(shown(&found), ["10.0.0.1", "fd00::1"]);
    let why = by_dns(&settings(&[&fails]), "node2.", soon()).unwrap_err();
    assert!(why.contains("cannot resolve node2") && why.contains("ServerFailure"), "{why}");
    let why = by_dns(&settings(&[&gone]), "node2.", soon()).unwrap_err();
    assert!(why.contains("refused"), "{why}");
}

impl Clone for Server {
    fn clone(&self) -> Server {
        Server { address: self.address, asked: self.asked.clone() }
    }
}

#[test]
fn dns_queries_end_at_the_deadline() {
    let quiet = Server::start(silent);
    let until = Instant::now() + Duration::from_millis(300);
    let why = by_dns(&settings(&[&quiet; 3]), "node2", until).unwrap_err();
    assert_eq!(why, "no DNS server of /etc/resolv.conf (127.0.0.1, 127.0.0.1, 127.0.0.1) answers");
    // It asked the first server alone, for both families: the next one's turn comes only after 3 s.
    let asked = quiet.asked.load(Ordering::SeqCst);
    assert!(asked <= 2, "{asked} questions");
    // An answer over TCP that never ends does not help, either.
    let endless = Server::start(|packet, over_tcp| {
        let mut reply = reply(packet);
        reply.set_flags(PacketFlag::TRUNCATION);
        if over_tcp { Vec::new() } else { bytes(&reply) }
    });
    let until = Instant::now() + Duration::from_millis(500);
    assert_eq!(ask(&settings(&[&endless]), endless.address, "node2", until), Reply::Silent);
}

#[test]
fn one_family_is_enough_where_a_server_ignores_the_other() {
    let server = Server::start(|packet, over_tcp| match family(packet) {
        Family::Ipv4 => knows_node2(packet, over_tcp),
        Family::Ipv6 => Vec::new(),
    });
    let found = by_dns(&settings(&[&server]), "node2", soon()).unwrap();
    assert_eq!(shown(&found), ["10.0.0.1"]);
}

#[test]
fn what_answers_another_question_is_no_answer() {
    let server = Server::start(|packet, over_tcp| {
        let right = knows_node2(packet, over_tcp).remove(0);
        let lie = |change: fn(&mut Packet)| {
            let mut reply = reply(packet);
            reply.answers = addresses_of(packet, &packet.questions[0].qname, 99);
            change(&mut reply);
            reply.build_bytes_vec().unwrap()
        };
        vec![
            b"nonsense".to_vec(),
            Vec::new(),
            right[..right.len() - 3].to_vec(),
            lie(|reply| reply.set_id(reply.id().wrapping_add(1))),
            lie(|reply| reply.remove_flags(PacketFlag::RESPONSE)),
            lie(|reply| reply.questions.clear()),
            lie(|reply| reply.questions[0].qname = Name::new("node3").unwrap()),
            right,
        ]
    });
    let found = by_dns(&settings(&[&server]), "node2", soon()).unwrap();
    assert_eq!(shown(&found), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn names_that_lead_in_a_circle_have_no_address() {
    let asked = question(7, "a.b", Family::Ipv4).unwrap();
    let mut packet = Packet::parse(&asked).unwrap().into_reply();
    let (a, b) = (Name::new("a.b").unwrap(), Name::new("b.a").unwrap());
    packet.answers = vec![
        record(&a, RData::CNAME(CNAME(b.clone()))),
        record(&b, RData::CNAME(CNAME(a.clone()))),
        record(&Name::new("c").unwrap(), RData::A(A { address: 1 })),
    ];
    let found = answer(&packet.build_bytes_vec().unwrap(), 7, "a.b", Family::Ipv4);
    assert_eq!(found, Some(ServerAnswer::Addresses(Vec::new())));
}

#[test]
fn a_hostile_answer_ends_nothing() {
    let asked = question(7, "node2.svc", Family::Ipv4).unwrap();
    let mut good = Vec::new();
    for says in [knows_node2, |packet: &Packet, _| {
        let mut reply = reply(packet);
        let name = packet.questions[0].qname.clone();
        reply.answers = addresses_of(packet, &name, 100);
        bytes(&reply)
    }] {
        good.extend(says(&Packet::parse(&asked).unwrap(), false));
    }
    let mut random = fastrand::Rng::with_seed(14);
    for _ in 0..20_000 {
        let mut bytes = random.choice(&good).unwrap().clone();
        for _ in 0..random.usize(1..8) {
            // The bytes after the ID: a wrong ID would stop the parser at once.
            let at = random.usize(2..bytes.len());
            let any = random.u8(..);
            bytes[at] = random.choice([0, 1, 12, 0xc0, 0xff, any]).unwrap();
        }
        if random.u8(..4) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        if let Some(ServerAnswer::Addresses(found)) = answer(&bytes, 7, "node2.svc", Family::Ipv4) {
            assert!(found.len() <= MOST);
        }
    }
}

#[test]
fn an_address_and_localhost_need_no_lookup() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/hosts"), "6.6.6.6 localhost x.localhost 127.0.0.1\n").unwrap();
    let of = |host: &str| addresses_below(root.path(), host, 5, Instant::now());
    for (host, wanted) in [
        ("10.0.0.1", &["10.0.0.1:5"][..]),
        ("fd00::1", &["[fd00::1]:5"]),
        ("fe80::1%1", &["[fe80::1%1]:5"]),
        ("fe80::1%lo", &["[fe80::1%1]:5"]),
        ("localhost", &["127.0.0.1:5", "[::1]:5"]),
        ("X.LocalHost.", &["127.0.0.1:5", "[::1]:5"]),
    ] {
        let wanted: Vec<SocketAddr> = wanted.iter().map(|address| address.parse().unwrap()).collect();
        assert_eq!(of(host).unwrap(), wanted, "{host}");
    }
    for host in ["", ".", "a..b", "a b", "a\u{1b}[31m", "\\046", &"a".repeat(64), "fe80::1%nosuch", "::g"] {
        let why = of(host).unwrap_err();
        assert!(why.contains("is neither an address nor the name of a host"), "{why}");
        assert!(!why.contains('\u{1b}'));
    }
}

#[test]
fn the_hosts_file_comes_first() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/hosts"), "fd00::2 node2\n10.0.0.2 node2\n").unwrap();
    let found = addresses_below(root.path(), "node2", 5, Instant::now()).unwrap();
    assert_eq!(found, ["10.0.0.2:5".parse().unwrap(), "[fd00::2]:5".parse().unwrap()]);
}

#[test]
fn the_error_for_an_unresolved_name_lists_unreadable_files() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    for file in ["etc/hosts", "etc/resolv.conf"] {
        nix::unistd::mkfifo(&root.path().join(file), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let why = addresses_below(root.path(), "node2", 5, Instant::now()).unwrap_err();
    for part in [
        "it is not in /etc/hosts, and no DNS server",
        "; /etc/hosts: it is not a regular file; /etc/resolv.conf: it is not a regular file",
    ] {
        assert!(why.contains(part), "{why}");
    }
}
